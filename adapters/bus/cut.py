"""What a cut stream says of itself: up to where it was cut, and which archive holds what is no longer in it.

``Cut`` stands in the stream's own metadata, so every reader of the stream knows it, on whichever machine it runs, and it is as
durable as the stream. It is declared before the first record goes (``shortening``), and is a promise about the archive, not about
the stream: behind ``cut_seq`` the stream may hold records or not (a server that was killed may find some again), the archive has
them.

Pure functions of what STREAM.INFO says. Nothing here asks or changes a server.
"""

from __future__ import annotations

from typing import Any

import msgspec

KEY = "apportion_cut"
FENCE = "ap.cut"


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """Up to where a stream was cut. All sequences are the stream's own."""

    format: int = 1
    cut_seq: int  # the last one that may be gone
    archived_seq: int  # up to here the archive was compared with the stream, byte for byte; a good way beyond the cut
    chain: str  # of the archive's segment that ends at archived_seq: its hash covers all segments before it
    archive: str  # where the archive was, on the machine that cut
    log_id: str


def declared(config: dict[str, Any]) -> Cut | None:
    """Return what a stream's settings declare, None when it was never cut. Raises ``ValueError`` when that makes no sense."""
    text = (config.get("metadata") or {}).get(KEY)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Cut)
    except msgspec.MsgspecError as error:
        raise ValueError(f"the metadata {KEY} cannot be read ({error}): it was written by another program") from error


def declaring(config: dict[str, Any], cut: Cut) -> dict[str, Any]:
    """Return the settings with ``cut`` declared."""
    return {**config, "metadata": {**(config.get("metadata") or {}), KEY: msgspec.json.encode(cut).decode()}}


def fence_of(stream: str) -> str:
    """Return the one subject that a stream listens to while it is being cut: nobody publishes there."""
    return f"{FENCE}.{stream}"


def is_fenced(config: dict[str, Any]) -> bool:
    """Tell whether a cut is in progress, or was interrupted."""
    return any(str(subject).startswith(f"{FENCE}.") for subject in config.get("subjects") or ())
