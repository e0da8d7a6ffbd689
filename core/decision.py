"""The base of all decisions.

Pure data.
"""

from __future__ import annotations

import msgspec


class Decision(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True, gc=False):
    """Base of all decisions."""
