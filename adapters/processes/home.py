"""The directory one local installation lives in (``.apportion`` by default): every path in one place.

A pure function of the directory; creating folders is the only thing it does to the world.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

DEFAULT_DIR = ".apportion"


@dataclass(frozen=True)
class Home:
    """Paths under one state directory."""

    root: Path

    @classmethod
    def of(cls, directory: str | Path | None = None) -> Home:
        """Return the home at ``directory``, else at ``$APPORTION_DIR``, else at ``./.apportion``."""
        return cls(Path(directory or os.environ.get("APPORTION_DIR") or DEFAULT_DIR).resolve())

    @property
    def jetstream(self) -> Path:
        """JetStream's file storage."""
        return self.root / "jetstream"

    @property
    def server_file(self) -> Path:
        """JSON ``{url, pid, port}`` of the running embedded nats-server; absent when none runs."""
        return self.root / "server.json"

    @property
    def http_file(self) -> Path:
        """JSON ``{url, pid, port}`` of the projector's live reads over HTTP; absent when it does not listen."""
        return self.root / "http.json"

    @property
    def snapshots(self) -> Path:
        """Snapshots of the core's state."""
        return self.root / "snapshots"

    @property
    def archive(self) -> Path:
        """Both logs in daily files (``apportion archive``): ``$APPORTION_ARCHIVE``, or ``archive`` here."""
        named = os.environ.get("APPORTION_ARCHIVE")
        return Path(named).resolve() if named else self.root / "archive"

    @property
    def projection(self) -> Path:
        """The projector's DuckDB file; one process has it open."""
        return self.root / "projection.duckdb"

    @property
    def published(self) -> Path:
        """Consistent copies of the projection for ad-hoc SQL, under unique names."""
        return self.root / "published"

    @property
    def forecasts(self) -> Path:
        """Fitted models of the forecaster."""
        return self.root / "forecasts"

    @property
    def agents(self) -> Path:
        """Working files of node agents: ``agents/<node>/<workload>#<run>/{stdout,stderr,run.json}``."""
        return self.root / "agents"

    @property
    def logs(self) -> Path:
        """Log files of the processes that ``up`` starts."""
        return self.root / "logs"

    def ensure(self) -> Home:
        """Create the directory and return self."""
        self.root.mkdir(parents=True, exist_ok=True)
        return self
