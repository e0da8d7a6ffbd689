"""What a command ends with when it cannot do what was asked: an exit code and three plain statements.

Pure data. ``main`` prints it (as JSON with ``--json``) and exits. A user's error must never end in a traceback.
"""

from __future__ import annotations

from typing import Any

OK = 0
FAILED = 1  # a check failed, or the core refused
USAGE = 2
UNREACHABLE = 3
STALE = 4
INTERRUPTED = 130

CODE_NAMES = {FAILED: "failed", USAGE: "usage", UNREACHABLE: "unreachable", STALE: "stale", INTERRUPTED: "interrupted"}


class Failure(Exception):
    """A command could not do what was asked: ``what`` was wrong (with the value) and what to ``do``."""

    def __init__(self, code: int, what: str, do: str = "", **more: Any) -> None:
        super().__init__(what)
        self.code = code
        self.what = what
        self.do = do
        self.more = more

    def document(self) -> dict[str, Any]:
        """Return the failure as ``--json`` prints it on stderr."""
        error = {"code": self.code, "kind": CODE_NAMES.get(self.code, "error"), "what": self.what, "do": self.do}
        return {"error": {**error, **self.more}}


def usage(what: str, do: str = "") -> Failure:
    """Return a failure for a value the user gave."""
    return Failure(USAGE, what, do)


def unreachable(what: str, do: str = "") -> Failure:
    """Return a failure for something that does not answer."""
    return Failure(UNREACHABLE, what, do)
