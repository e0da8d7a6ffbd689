"""What stops the core, as opposed to what it refuses.

A *refusal* is an expected outcome and a value of an enum in ``reasons.py``: bad input never raises here.
An *error* means that the program, the log or a snapshot is not what it must be: the process stops loudly with
the sequence number, and nothing after it is decided. Every message says what was wrong, with the value, and what to do.
"""

from __future__ import annotations


class ApportionError(Exception):
    """Base of all errors of this package."""


class LogGap(ApportionError):
    """A record is missing: the sequence read is not the one expected. Met when the log was cut or the reader is broken."""

    def __init__(self, expected_seq: int, got_seq: int) -> None:
        super().__init__(
            f"gap in the log: expected seq {expected_seq}, got {got_seq}; "
            "stop, compare the stream with its archive, and restore it before starting again"
        )
        self.expected_seq = expected_seq
        self.got_seq = got_seq


class LogMismatch(ApportionError):
    """The log is not the one this state was built from: shorter than the cursor, or another record at the cursor."""


class Divergence(ApportionError):
    """A stored cycle and the derived one differ. Met by verify, by a standby, and by a core of the wrong version."""

    def __init__(self, seq: int, what: str, stored: str, derived: str) -> None:
        super().__init__(f"cycle at seq {seq}: {what} differs\n  stored:  {stored}\n  derived: {derived}")
        self.seq = seq
        self.what = what
        self.stored = stored
        self.derived = derived


class CoreMissing(ApportionError):
    """The log asks for a logic number that this program is not. ``seq`` is the record that does."""

    def __init__(self, number: int, seq: int, own: int) -> None:
        super().__init__(
            f"the log asks for core {number} from seq {seq} on, this program is core {own}; "
            f"install the version of apportion that implements core {number}"
        )
        self.number = number
        self.seq = seq


class Fenced(ApportionError):
    """Another core has written decisions this one has not made. Met by a stalled leader that wakes up."""


class SnapshotInvalid(ApportionError):
    """Snapshot bytes do not carry the digest they promise, or were written by another schema."""


class InvariantBroken(ApportionError):
    """A rule that must hold after every cycle does not. Always a bug; the state is not to be used further."""

    def __init__(self, seq: int, rule: str) -> None:
        super().__init__(f"invariant broken at seq {seq}: {rule}; keep the log and report it, decisions have stopped")
        self.seq = seq
        self.rule = rule


def check(holds: bool, seq: int, rule: str) -> None:
    """Stop with ``InvariantBroken`` unless ``holds``; stays on in production."""
    if not holds:
        raise InvariantBroken(seq, rule)
