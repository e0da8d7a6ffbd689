"""The streams, as data: what they are, how they are made once, and how a running server is checked against it.

``EVENTS`` is the one total order of inputs; ``DECISIONS`` has one writer at a time and one batch per cycle. Both are
created in one administrative step (``create``) and audited by every process that starts (``audit``). No service declares
a stream: client libraries silently *overwrite* the settings of an existing one.

The findings of ``audit`` are a pure function of what the server answers. They are to be refused at start, not repaired.

Decisions
    * ``deny_delete`` and ``deny_purge``: history cannot be edited. (Deleting the whole stream stays possible to whoever
      may call the API, so deployments deny STREAM.DELETE by permission.)
    * ``discard: new`` with ``max_bytes``: a full log refuses new events loudly; it never forgets old ones.
    * The users of EVENTS choose their headers, so everything that headers could do there is off: roll-up, TTL,
      schedules, counters, atomic batches (fifty open ones would block everybody).
    * ``max_msg_size`` of EVENTS is twice what the core accepts: an oversized body arrives, and is refused visibly by the
      core; ten megabytes do not arrive at all.
    * Duplicate window: one hour, as a help for producers that retry after an outage. It costs about 170 bytes of server
      memory per event in it, so accelerated simulation uses two minutes. Idempotency does not rest on it but on the
      natural keys of the core.
    * ``allow_direct`` is off: a direct read may be answered by a replica that lags.
    * A stream begins at sequence 1, or declares up to where it was cut and that an archive has the rest (``cut``).
"""

from __future__ import annotations

from typing import Any

import msgspec

from apportion.adapters.bus.connection import ApiError, Connection
from apportion.adapters.bus.cut import declared, is_fenced
from apportion.core.envelope import DECISION_SUBJECT, EVENT_PREFIX, MAX_BODY_BYTES
from apportion.core.errors import ApportionError

EVENTS = "EVENTS"
DECISIONS = "DECISIONS"
MAX_EVENT_BYTES = 2 * MAX_BODY_BYTES
MAX_DECISION_MESSAGE_BYTES = 1024 * 1024
DUPLICATE_WINDOW_S = 3600
SIMULATION_DUPLICATE_WINDOW_S = 120
DEFAULT_ROOM_BYTES = 64 * 1024**3
SMALLEST_ROOM_BYTES = 64 * 1024**2

_NS = 1_000_000_000
_STREAM_NOT_FOUND = 10059
_NAME_IN_USE = 10058
_NO_ROOM = 10047
FULL = frozenset({10023, 10047, 10077})  # no room is left; sending again does not help

_COMMON: dict[str, Any] = {
    "retention": "limits",
    "storage": "file",
    "discard": "new",
    "compression": "s2",
    "max_age": 0,
    "max_msgs": -1,
    "max_msgs_per_subject": -1,
    "no_ack": False,
    "sealed": False,
    "deny_delete": True,
    "deny_purge": True,
    "allow_rollup_hdrs": False,
    "allow_direct": False,
    "allow_msg_ttl": False,
    "allow_msg_schedules": False,
    "allow_msg_counter": False,
    "allow_batched": False,
}
REQUIRED: dict[str, dict[str, Any]] = {
    EVENTS: {
        **_COMMON,
        "subjects": [f"{EVENT_PREFIX}.*.>"],
        "max_msg_size": MAX_EVENT_BYTES,
        "allow_atomic": False,
    },
    DECISIONS: {
        **_COMMON,
        "subjects": [DECISION_SUBJECT],
        "max_msg_size": MAX_DECISION_MESSAGE_BYTES,
        "allow_atomic": True,
    },
}
_FORBIDDEN = ("mirror", "sources", "republish", "subject_transform")
_DEFAULTS: dict[str, Any] = {"compression": "none", "max_age": 0, "max_msgs": -1, "max_msgs_per_subject": -1}


class TopologyError(ApportionError):
    """The streams are missing or not as required. Met at the start of every process."""


class StreamState(msgspec.Struct):
    """What STREAM.INFO says of the content."""

    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0


class StreamInfo(msgspec.Struct):
    """STREAM.INFO, answered by the stream's leader."""

    config: dict[str, Any]
    state: StreamState
    created: str = ""
    cluster: dict[str, Any] | None = None

    @property
    def lagging(self) -> list[str]:
        """The replicas that do not have all of the stream now."""
        replicas = (self.cluster or {}).get("replicas") or ()
        return [str(one.get("name")) for one in replicas if not one.get("current") or one.get("offline")]

    def unheard(self, for_s: float) -> list[str]:
        """The replicas that lag, or were not heard of for so long: one that has just died still counts as current."""
        replicas = (self.cluster or {}).get("replicas") or ()
        silent = [str(one.get("name")) for one in replicas if int(one.get("active", 0)) >= for_s * _NS]
        return sorted({*self.lagging, *silent})


async def stream_info(connection: Connection, stream: str, timeout_s: float = 5.0) -> StreamInfo:
    """Ask the stream's leader. Raises as ``Connection.api``."""
    return await connection.api(f"STREAM.INFO.{stream}", None, StreamInfo, timeout_s)


async def create(
    connection: Connection,
    *,
    replicas: int = 1,
    max_file_bytes: int = 0,
    duplicate_window_s: int = DUPLICATE_WINDOW_S,
) -> None:
    """Create both streams where they are missing; an existing one is left exactly as it is.

    ``max_file_bytes`` is the room of the server, three quarters for EVENTS and a fifth for DECISIONS. 0 takes the
    largest room the server grants to both: an EVENTS that leaves none for DECISIONS, and that never had an event, is made
    smaller. Raises ``TopologyError`` when the result does not pass ``audit``.
    """
    room_bytes = max_file_bytes or DEFAULT_ROOM_BYTES
    while True:
        try:
            await _create_missing(connection, replicas, room_bytes, duplicate_window_s)
            break
        except ApiError as error:
            if error.err_code != _NO_ROOM or max_file_bytes or room_bytes < SMALLEST_ROOM_BYTES:
                raise
            room_bytes //= 2
            await _leave_room(connection, room_bytes)
    await require(connection)


async def _create_missing(connection: Connection, replicas: int, room_bytes: int, duplicate_window_s: int) -> None:
    limits = {EVENTS: room_bytes * 3 // 4, DECISIONS: room_bytes // 5}
    for name, required in REQUIRED.items():
        config = {
            **required,
            "name": name,
            "num_replicas": replicas,
            "max_bytes": limits[name],
            "duplicate_window": duplicate_window_s * _NS,
        }
        try:  # asked first: a server whose room is all reserved refuses to create even what it has
            await stream_info(connection, name)
            continue
        except ApiError as error:
            if error.err_code != _STREAM_NOT_FOUND:
                raise
        try:
            await connection.api(f"STREAM.CREATE.{name}", config, StreamInfo, timeout_s=10.0)
        except ApiError as error:
            if error.err_code != _NAME_IN_USE:
                raise


async def _leave_room(connection: Connection, room_bytes: int) -> None:
    """Let an EVENTS in which nothing ever was reserve its part of the room: it may have been made a moment ago, with all."""
    try:
        info = await stream_info(connection, EVENTS)
    except ApiError as error:
        if error.err_code != _STREAM_NOT_FOUND:
            raise
        return
    part = room_bytes * 3 // 4
    if info.state.last_seq == 0 and info.config["max_bytes"] > part:
        await connection.api(f"STREAM.UPDATE.{EVENTS}", {**info.config, "max_bytes": part}, StreamInfo, timeout_s=10.0)


async def audit(connection: Connection) -> list[str]:
    """Compare the server's streams with ``REQUIRED``; return one finding per difference, none when all is well."""
    findings: list[str] = []
    for name, required in REQUIRED.items():
        try:
            info = await stream_info(connection, name)
        except ApiError as error:
            if error.err_code != _STREAM_NOT_FOUND:
                raise
            findings.append(f"stream {name} does not exist")
            continue
        findings += [f"stream {name}: {finding}" for finding in differences(required, info)]
    return findings


def differences(required: dict[str, Any], info: StreamInfo) -> list[str]:
    """Return what is wrong with one stream, in words."""
    config = info.config
    if is_fenced(config):
        return ["a cut was interrupted and its fence stands, nothing can be stored: `apportion archive cut` again opens it"]
    found = []
    for setting, wanted in required.items():
        actual = config.get(setting, _DEFAULTS.get(setting, False if isinstance(wanted, bool) else None))
        if actual != wanted:
            found.append(f"{setting} is {actual!r}, must be {wanted!r}")
    found += [f"{setting} is set, must not be" for setting in _FORBIDDEN if config.get(setting)]
    if config.get("max_bytes", -1) <= 0:
        found.append("max_bytes is not set: the log would fill the disk, and a full disk stops the server")
    if config.get("duplicate_window", 0) < SIMULATION_DUPLICATE_WINDOW_S * _NS:
        found.append(f"duplicate_window is below {SIMULATION_DUPLICATE_WINDOW_S} s")
    return found + _beginning(info)


def _beginning(info: StreamInfo) -> list[str]:
    """Return what is wrong with where a stream begins: at 1, or where it was cut by us."""
    first_seq = info.state.first_seq
    try:
        cut = declared(info.config)
    except ValueError as error:
        return [str(error)]
    if first_seq <= 1 or (cut is not None and first_seq <= cut.archived_seq + 1):
        return []
    if cut is None:
        return [f"its first sequence is {first_seq}, must be 1: the beginning of the log is missing, and no cut is declared"]
    return [
        f"its first sequence is {first_seq}, but it was cut at {cut.cut_seq} and its archive was compared up to "
        f"{cut.archived_seq}: records between are missing"
    ]


async def require(connection: Connection) -> None:
    """Raise ``TopologyError`` with every finding unless the streams are as required."""
    try:
        findings = await audit(connection)
    except TimeoutError as error:
        raise TopologyError(f"JetStream does not answer at {connection.url}: {error}; is JetStream enabled?") from error
    if findings:
        listed = "\n  ".join(findings)
        raise TopologyError(
            f"the streams at {connection.url} are not as required:\n  {listed}\n"
            "create them with `apportion up`, or restore the log under the right settings; they are not changed silently"
        )
