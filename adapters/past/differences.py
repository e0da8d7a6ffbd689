"""Where a stored cycle and the one that the core derives part: the error that says so, and what differs, for people and as JSON.

A pure function of two batches: ``describe`` names the first part that differs (the decisions, then what stands beside them), with
both sides. It decides nothing, and nothing is derived or read here.
"""

from __future__ import annotations

from typing import Any

import msgspec

from apportion.core.decisions import decode_batch
from apportion.core.errors import ApportionError


class Difference(ApportionError):
    """A stored cycle is not the one the core derives; ``document`` shows where."""

    def __init__(self, document: dict[str, Any]) -> None:
        what, detail = document["what"], document.get("detail", "")
        super().__init__(
            f"the cycle of seq {document['seq']:,} differs from what the core derives ({what}{': ' * bool(detail)}{detail})"
        )
        self.document = document


def describe(stored_body: bytes, derived_body: bytes) -> dict[str, Any]:
    """Return where two batches of one cycle differ: the part, the first differing decision, and both sides of it."""
    try:
        stored = decode_batch(stored_body)
    except msgspec.MsgspecError as error:
        derived = decode_batch(derived_body)
        text = stored_body[:400].decode("utf-8", "replace")
        return {
            "what": "unreadable batch",
            "seq": derived.seq,
            "cycle": derived.cycle,
            "detail": f"the stored bytes are not a batch ({error})",
            "stored": text,
            "derived": msgspec.to_builtins(derived),
        }
    derived = decode_batch(derived_body)
    found: dict[str, Any] = {"seq": derived.seq, "time_ms": derived.time_ms, "cycle": derived.cycle}
    for position in range(max(len(stored.decisions), len(derived.decisions))):
        left = stored.decisions[position] if position < len(stored.decisions) else None
        right = derived.decisions[position] if position < len(derived.decisions) else None
        if left != right:
            left_fields, right_fields = msgspec.to_builtins(left) or {}, msgspec.to_builtins(right) or {}
            names = sorted({*left_fields, *right_fields})
            return {
                **found,
                "what": "decision",
                "position": position,
                "fields": [name for name in names if left_fields.get(name) != right_fields.get(name)],
                "stored": left_fields or None,
                "derived": right_fields or None,
                "decisions_stored": len(stored.decisions),
                "decisions_derived": len(derived.decisions),
            }
    for name in ("books", "chain", "core", "cycle", "seq", "time_ms", "digest"):
        left_part, right_part = getattr(stored, name), getattr(derived, name)
        if left_part != right_part:
            return {
                **found,
                "what": name,
                "detail": _MEANING.get(name, ""),
                "stored": msgspec.to_builtins(left_part),
                "derived": msgspec.to_builtins(right_part),
            }
    return {
        **found,
        "what": "bytes",
        "detail": "the two batches say the same in other bytes",
        "stored": stored_body.decode("utf-8", "replace"),
        "derived": derived_body.decode("utf-8", "replace"),
    }


_MEANING = {
    "chain": "the records in the log are not the ones this cycle was decided on",
    "digest": "the decisions agree and the state after them does not",
    "books": "the decisions agree and the pool's accounts do not",
    "core": "another logic number decided this cycle",
}
