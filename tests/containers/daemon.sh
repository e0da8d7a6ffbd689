#!/usr/bin/env bash
# A Docker daemon of one's own for the container tests: own data, own socket, no firewall rules, loopback ports only.
#
#   sudo tests/containers/daemon.sh start DIR     prints the four `export` lines that testcontainers needs
#   sudo tests/containers/daemon.sh stop DIR      ends that daemon and removes DIR
#
# Nothing is pulled: the tests build their image from the nats-server that is already in .venv. Needs root and dockerd
# (Debian: docker.io). Ends with 1 and one line that says why where a daemon cannot run; every wait is bounded.
set -u

say() { echo "daemon.sh: $*" >&2; }

start() {
    local dir=$1
    [ "$(id -u)" = 0 ] || { say "dockerd needs root; run it as root, or point DOCKER_HOST at a daemon you may use"; return 1; }
    command -v dockerd >/dev/null 2>&1 || { say "no dockerd on the path; on Debian: apt-get install docker.io"; return 1; }
    command -v curl >/dev/null 2>&1 || { say "no curl on the path; it is how the daemon's answer is awaited"; return 1; }
    [ -z "$(ls -A "$dir" 2>/dev/null)" ] || { say "$dir is not empty; name a new directory, since stop removes it"; return 1; }
    mkdir -p "$dir" && touch "$dir/.own-docker-daemon" || return 1
    # --iptables=false and --ip: containers reach nothing, and their ports are published on loopback alone.
    setsid dockerd --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/pid" -H "unix://$dir/docker.sock" \
        --iptables=false --ip-forward=false --ip-masq=false --ip 127.0.0.1 >"$dir/log" 2>&1 </dev/null &
    local daemon=$!
    for _ in $(seq 150); do
        if curl -fsS --max-time 2 --unix-socket "$dir/docker.sock" http://d/_ping >/dev/null 2>&1; then
            # Without the last two, a process that itself runs in a container would dial its gateway instead.
            cat <<TXT
export DOCKER_HOST=unix://$dir/docker.sock
export TESTCONTAINERS_RYUK_DISABLED=true
export TESTCONTAINERS_CONNECTION_MODE=docker_host
export TESTCONTAINERS_HOST_OVERRIDE=127.0.0.1
TXT
            return 0
        fi
        kill -0 "$daemon" 2>/dev/null || break
        sleep 0.2
    done
    say "dockerd did not answer; its last lines:"
    tail -n 5 "$dir/log" >&2
    stop "$dir"
    return 1
}

stop() {
    local dir=$1
    [ -e "$dir/.own-docker-daemon" ] || { say "$dir was not made by start; nothing is removed"; return 1; }
    if [ -s "$dir/pid" ]; then
        local daemon
        daemon=$(cat "$dir/pid")
        kill "$daemon" 2>/dev/null
        for _ in $(seq 100); do
            kill -0 "$daemon" 2>/dev/null || break
            sleep 0.1
        done
        kill -0 "$daemon" 2>/dev/null && kill -9 "$daemon"
        ip link del docker0 2>/dev/null
    fi
    # Mounts that a killed daemon left behind would make the removal fail.
    awk -v dir="$dir/" 'index($2, dir) == 1 { print $2 }' /proc/self/mounts 2>/dev/null | sort -r | while read -r mount; do
        umount -l "$mount" 2>/dev/null
    done
    rm -rf "$dir"
}

case "${1:-}" in
start | stop) [ -n "${2:-}" ] || { say "which directory? usage: daemon.sh start|stop DIR"; exit 2; } ;;
*) say "usage: daemon.sh start|stop DIR"; exit 2 ;;
esac
"$1" "$2"
