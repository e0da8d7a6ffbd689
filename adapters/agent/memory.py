"""What an agent remembers over restarts: who it is, how far it has read, how far its heartbeat has counted.

Two files in ``agents/<node>/``. ``agent.json`` is identity: the log it belongs to, its secret, its GPUs; written when
one of them changes. ``follow.json`` is the fold of the decisions at a cursor; written now and then, and allowed to be
old, because reading a batch again changes nothing.

The heartbeat counter is reserved in blocks: what is on disk is always above what was sent, so it grows over any crash
at the price of a gap.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from pathlib import Path

import msgspec

from apportion.adapters.agent import shim
from apportion.adapters.agent.orders import Orders
from apportion.core.errors import ApportionError, LogMismatch

BEAT_BLOCK = 100


class Identity(msgspec.Struct, kw_only=True):
    """Content of ``agent.json``."""

    node: str
    principal: str
    secret: str  # hex; the key of report ids
    log_id: str = ""
    gpu_ids: tuple[str, ...] = ()
    gpu_kind: str = ""
    beat_reserved: int = 0
    joins: int = 0  # how often it has joined


class Follow(msgspec.Struct, kw_only=True):
    """Content of ``follow.json``: the orders as of the batch at DECISIONS sequence ``cursor``, with hash ``mark``.

    ``before`` is the sequence of the batch before it: reading starts there, to compare that batch with its mark.
    """

    before: int
    cursor: int
    mark: str
    orders: Orders


class WrongAgent(ApportionError):
    """The working files belong to another node or another log."""


def mark_of(body: bytes) -> str:
    """Return what identifies a batch read at a cursor."""
    return hashlib.sha256(body).hexdigest()[:32]


class Memory:
    """The files of one agent."""

    def __init__(self, agent_dir: Path, node: str, principal: str) -> None:
        """Open or begin the memory of ``node``. Raises ``WrongAgent`` when another agent has it, or it is another's."""
        agent_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.agent_dir = agent_dir
        self._lock = os.open(agent_dir / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise WrongAgent(f"another agent for node {node!r} works in {agent_dir}; stop it first") from None
        self._identity_path = agent_dir / "agent.json"
        self._follow_path = agent_dir / "follow.json"
        try:
            self.identity = msgspec.json.decode(self._identity_path.read_bytes(), type=Identity)
        except FileNotFoundError:
            self.identity = Identity(node=node, principal=principal, secret=secrets.token_hex(32))
            self.save_identity()
        if (self.identity.node, self.identity.principal) != (node, principal):
            self.close()
            raise WrongAgent(
                f"{agent_dir} belongs to node {self.identity.node!r} as principal {self.identity.principal!r}, not to "
                f"{node!r} as {principal!r}; start the agent with those names, or with another --dir"
            )
        self._beat = self.identity.beat_reserved
        self._saved_cursor = -1

    @property
    def secret(self) -> bytes:
        """Return the key of this agent's report ids."""
        return bytes.fromhex(self.identity.secret)

    def close(self) -> None:
        """Let another agent work here."""
        os.close(self._lock)

    def save_identity(self) -> None:
        """Write ``agent.json`` durably."""
        shim.write_durably(str(self._identity_path), msgspec.json.encode(self.identity))

    def bind_log(self, log_id: str) -> None:
        """Remember the log this agent follows. Raises ``LogMismatch`` when it followed another one before."""
        if self.identity.log_id and self.identity.log_id != log_id:
            raise LogMismatch(
                f"this agent followed log {self.identity.log_id!r}, the server has log {log_id!r}: it was replaced. "
                f"Stop what still runs here, move {self.agent_dir} away, and start the agent again"
            )
        if not self.identity.log_id:
            self.identity.log_id = log_id
            self.save_identity()

    def next_beat(self) -> int:
        """Return a heartbeat number above every one returned before, also before a crash."""
        self._beat += 1
        if self._beat > self.identity.beat_reserved:
            self.identity.beat_reserved = self._beat + BEAT_BLOCK
            self.save_identity()
        return self._beat

    def load_follow(self) -> Follow | None:
        """Return the orders as last saved, or None for an agent that never followed the log."""
        try:
            follow = msgspec.json.decode(self._follow_path.read_bytes(), type=Follow)
        except FileNotFoundError:
            return None
        self._saved_cursor = follow.cursor
        return follow

    def save_follow(self, follow: Follow) -> None:
        """Keep the orders as of ``follow.cursor``."""
        if follow.cursor == self._saved_cursor:
            return
        shim.write_durably(str(self._follow_path), msgspec.json.encode(follow))
        self._saved_cursor = follow.cursor
