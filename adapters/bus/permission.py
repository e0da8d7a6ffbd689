"""What a user may not do on a server, as the server says it: on the connection, beside any answer.

A message that a user may not publish is dropped, and nobody answers it; who waited for an answer would wait as through an outage,
without end. ``refusal`` reads what the server says; ``NotPermitted`` tells a person what is missing. A pure function of that text;
it asks nothing and grants nothing. The client library passes it on in small letters, so subjects are compared in these.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from apportion.core.errors import ApportionError

_SAID = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"', re.IGNORECASE)


class Refusal(NamedTuple):
    """``publish`` or ``subscription``, and the subject in small letters."""

    what: str
    subject: str


class NotPermitted(ApportionError):
    """The server drops what this user sends, or delivers nothing to it. Nothing was stored."""

    def __init__(self, what: str, subject: str, url: str) -> None:
        does = "publish to" if what == "publish" else "subscribe to"
        super().__init__(
            f"this user may not {does} {subject} at {url}: its permissions on the server lack that (deploy/nats.conf shows "
            "what each role needs)"
        )
        self.subject = subject


def refusal(said: str) -> Refusal | None:
    """Return what the server refuses; None when it says something else."""
    found = _SAID.search(said)
    return None if found is None else Refusal(found[1].lower(), found[2].lower())
