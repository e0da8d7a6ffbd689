"""Who may do what, as a pure function of the state.

Operators are named in ``log.opened``. Members hold roles on a budget path, valid for everything below it. The principal is
always the one in the record's subject. ``No`` is the value by which a fold function refuses.
"""

from __future__ import annotations

from typing import NamedTuple

from apportion.core.reasons import Refusal
from apportion.core.state.state import ADMINISTER, CHARGE, WEIGHT_SHIFT, State

ROLES = {"charge": CHARGE, "administer": ADMINISTER}


class No(NamedTuple):
    """A refusal: the reason, and what a person needs to put it right."""

    reason: Refusal
    field: str = ""
    detail: str = ""
    numbers: dict[str, int] = {}  # noqa: RUF012 - a NamedTuple default, never written to
    entity: str = ""


def is_operator(state: State, principal: str) -> bool:
    """Tell whether the principal may operate the cluster."""
    row = state.principal.row_of.get(principal)
    return row is not None and bool(state.principal.operator[row])


def has_role(state: State, principal: str, path: str, roles: int) -> bool:
    """Tell whether the principal holds one of ``roles`` (bits) on ``path`` or above it."""
    while path:
        if state.members.get(f"{path} {principal}", 0) & roles:
            return True
        path = path.rpartition("/")[0]
    return False


def weight_milli(state: State, principal: str, path: str) -> int:
    """Return the weight of a member on ``path`` or the nearest path above it on which he was given a role; else 1,000."""
    while path:
        if held := state.members.get(f"{path} {principal}", 0):
            return held >> WEIGHT_SHIFT
        path = path.rpartition("/")[0]
    return 1_000


def may_administer(state: State, principal: str, path: str) -> bool:
    """Tell whether the principal may change the budget at ``path``."""
    return is_operator(state, principal) or has_role(state, principal, path, ADMINISTER)


def may_charge(state: State, principal: str, path: str) -> bool:
    """Tell whether the principal may submit work to the budget at ``path``."""
    return is_operator(state, principal) or has_role(state, principal, path, CHARGE | ADMINISTER)


def speaks_for_node(state: State, principal: str, node: int) -> bool:
    """Tell whether reports about the node may come from this principal."""
    return principal == state.principal.keys[state.node.agent[node]] or is_operator(state, principal)


def principal_row(state: State, principal: str) -> int:
    """Return the row of a principal, adding it on first sight."""
    row = state.principal.row_of.get(principal)
    return state.principal.add(principal) if row is None else row


def not_permitted(principal: str, what: str) -> No:
    """Refuse because of rights, naming both sides."""
    return No(Refusal.NOT_PERMITTED, detail=f"{principal} may not {what}")
