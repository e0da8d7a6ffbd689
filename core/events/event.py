"""The base of all payloads.

Pure data.
"""

from __future__ import annotations

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of all payloads. Unknown fields are ignored (additive evolution), missing ones need a default."""
