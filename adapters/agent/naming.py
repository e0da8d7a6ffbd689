"""Names of hosts and users made into tokens of subjects and names of nodes.

A pure function of the text. What is changed is changed visibly: a character that a token cannot hold becomes ``-``, and
``up`` prints the result.
"""

from __future__ import annotations

import re

MAX_LENGTH = 100


def principal_token(text: str) -> str:
    """Return ``text`` as a principal: letters, digits, ``_`` and ``-``, beginning with a letter or digit."""
    token = re.sub(r"[^A-Za-z0-9_-]", "-", text)[:MAX_LENGTH].lstrip("_-")
    return token or "user"


def node_name(text: str) -> str:
    """Return ``text`` as a node's name: as a principal, and dots stay."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:MAX_LENGTH].lstrip("_.-")
    return name or "node"
