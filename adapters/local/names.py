"""Who starts a local cluster, and on which host, as the tokens that subjects and node names can hold.

Asks the system for both names; ``up`` prints the note whenever a name had to be changed. It must never change one
silently: the principal decides what its events may do.
"""

from __future__ import annotations

import getpass
import socket

from apportion.adapters.agent.naming import node_name, principal_token


def user_principal() -> tuple[str, str]:
    """Return the user's principal, and a note when it is not the user's name letter by letter."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        user = "user"
    token = principal_token(user)
    note = "" if token == user else f"{user!r} acts as {token!r}: a principal has only letters, digits, '_' and '-'"
    return token, note


def host_node() -> tuple[str, str]:
    """Return the host's name as a node, and a note when it had to be changed."""
    host = socket.gethostname()
    name = node_name(host)
    return name, "" if name == host else f"host {host!r} is node {name!r}: a node's name has no other characters"
