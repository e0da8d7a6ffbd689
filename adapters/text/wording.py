"""The one table from a reason (an enum of ``core.reasons``) to a sentence with numbers to an action.

A pure function of the decision's own fields: enum value, numbers, and the few words around them. Pages, the command
line and messages all take their text from here, so one reason never reads two ways. It must never decide anything,
look anything up, or read a clock: what is not in the decision is not in the sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from apportion.adapters.text.template import fill
from apportion.core.reasons import Bound, Funding, NodeReason, Outcome, Payer, Pending, Refusal, Resize, TickWhy


class Words(NamedTuple):
    """Templates of one reason: what is the case, what a person can do about it (may be empty), and a label for tables."""

    sentence: str
    action: str
    label: str = ""


R, O, F, P, N = Refusal, Outcome, Funding, Pending, NodeReason  # noqa: E741 - short names keep the table readable

# One table per enum: the values are strings, and ``Refusal.BUDGET_CLOSED == Funding.BUDGET_CLOSED`` holds.
REFUSAL: dict[Enum, Words] = {
    R.MALFORMED_SUBJECT: Words(
        "the subject is not of the form ap.ev.<principal>.<type>[: {detail}]",
        "publish on ap.ev.<your principal>.<event type>",
    ),
    R.TOO_LARGE: Words(
        "the event's body is larger than the log accepts[: {bytes} bytes, at most {limit}]",
        "keep large data in files and pass their paths",
    ),
    R.BROKEN_JSON: Words(
        "the body is not a JSON envelope[: {detail}]",
        "send an object with id, type, v and data; `apportion schema` prints the exact form",
    ),
    R.TYPE_MISMATCH: Words(
        "the type in the body is not the type in the subject[: {detail}]",
        "publish each event on the subject of its own type",
    ),
    R.UNKNOWN_TYPE: Words("no event has this type[: {detail}]", "`apportion schema` lists all event types"),
    R.UNKNOWN_VERSION: Words(
        "this core does not know that version[ of {event_type}][: {detail}]",
        "upgrade the core, or publish a version it knows (`apportion schema`)",
    ),
    R.INVALID_DATA: Words(
        "a value is missing or not accepted[ ({field})][: {detail}]",
        "correct the field; `apportion schema` shows its rule",
    ),
    R.LOG_NOT_OPENED: Words(
        "the log has not been opened: its first record must be log.opened",
        "start with `apportion up`, or publish log.opened first",
    ),
    R.LOG_ALREADY_OPENED: Words(
        "the log is open already; log.opened can only be its first record",
        "use a new directory or stream for a new log",
    ),
    R.NOT_PERMITTED: Words(
        "not permitted[: {detail}]",
        "ask an operator, or an administrator of the budget: `apportion member grant BUDGET {principal}`",
    ),
    R.UNKNOWN_POOL: Words("there is no pool [{entity}]", "`apportion status` lists the pools"),
    R.UNKNOWN_LEVEL: Words(
        "the topology has no such level[: {detail}]", "name a level of the pool (--pool), or node: --within rack, --near rack"
    ),
    R.UNKNOWN_NODE: Words("there is no node [{entity}]", "`apportion node list` shows the nodes"),
    R.UNKNOWN_BUDGET: Words(
        "there is no budget [{entity}][: {detail}]",
        "`apportion budget list` shows the budgets; an operator creates one with `apportion budget set`",
    ),
    R.UNKNOWN_WORKLOAD: Words("there is no workload [{entity}]", "`apportion queue` lists the workloads"),
    R.DUPLICATE: Words("[{entity} ]exists already[: {detail}]", "use another id, or look at the one that exists"),
    R.BUDGET_CLOSED: Words("budget [{entity} ]is closed[ at {at_ms}]", "charge another budget (`apportion budget list`)"),
    R.BUDGET_NOT_LEAF: Words(
        "budget [{entity} ]has budgets below it, and workloads charge leaves only",
        "choose one of the budgets below it (`apportion budget list`)",
    ),
    R.BUDGET_IN_USE: Words(
        "budget [{entity} ]still has workloads, budgets below it or a balance[: {detail}]",
        "finish or cancel its workloads, close what is below it, and transfer its balance first",
    ),
    R.OVERCOMMITTED: Words(
        "the shares of the budgets beside each other would add up to more than 100 %[: {sum_ppm}][ from {at_ms} on]",
        "lower another budget's share first",
    ),
    R.BALANCE_TOO_LOW: Words(
        "the budget does not have that much left[: {left_gpu_us} left]",
        "take less, or ask for a grant",
    ),
    R.NEVER_FITS: Words(
        "no pool named has, or ever had, nodes for this shape"
        "[: it needs {nodes_needed:such node|such nodes} of {nodes_able} there are]"
        "[; the largest node has {largest_node_milli}][; the largest such request that could start is {largest_milli}]",
        "ask for fewer GPUs, spread them over more nodes (--nodes), wish for less, or name another pool (--pool)",
    ),
    R.BAD_SHAPE: Words(
        "the GPUs cannot be laid out this way[: {detail}][, of {node_milli} each]",
        "ask for a number of GPUs that divides over the nodes; a fraction of a GPU fits on one node only",
    ),
    R.MIN_RUNTIME_ABOVE_CAP: Words(
        "min_runtime is above the pool's cap[ of {cap_ms}]",
        "ask for less protected time and checkpoint more often",
    ),
    R.WORKLOAD_ENDED: Words("the workload [{entity} ]has ended", "nothing to do; submit it again to run it again"),
    R.NODE_OCCUPIED: Words(
        "node [{entity} ]cannot change its size while it holds runs",
        "cordon it, wait until it is empty, then join it again",
    ),
    R.POOL_TOO_LARGE: Words(
        "the pool would hold more GPUs than one pool can[: {pool_milli}, at most {limit_milli}]",
        "put the node into another pool (--pool)",
    ),
    R.STALE: Words(
        "the report is about something that is over[: {entity}][ ({detail})]", "nothing to do; it changed nothing"
    ),
}
OUTCOME: dict[Enum, Words] = {
    O.SUCCEEDED: Words("it finished[ after {ran_ms}]", ""),
    O.FAILED: Words("its process failed[ with exit code {exit_code}]", "read its output with `apportion logs {job}`"),
    O.CANCELLED: Words("it was cancelled", ""),
    O.PREEMPTED: Words(
        "it made room for a funded request",
        "it is queued again if it resumes; `apportion job {job}` shows the certificate",
    ),
    O.DRAINED: Words(
        "its node is to be emptied, and it was asked to go; what it lost by that was given back by the pool's refund rule",
        "it is queued again if it resumes; `apportion node list` shows which nodes are drained, by when and why",
    ),
    O.MOVED: Words(
        "it made room for somebody who fits only so, and goes on elsewhere; what it lost by that was given back by the refund rule",
        "nothing to do; submit without --movable to stay where it starts",
    ),
    O.NODE_LOST: Words(
        "its node left, went silent or broke; the pool's refund rule applied",
        "it is queued again if it resumes; `apportion node list` shows the node",
    ),
    O.START_FAILED: Words(
        "it did not start in time, or the node's agent refused to start it",
        "read its output with `apportion logs {job}`; check that the command exists on the node",
    ),
    O.LOST: Words(
        "the node's agent no longer knows it; it was charged up to its last confirmation",
        "it is queued again if it resumes; otherwise submit it again",
    ),
    O.RETIRED: Words("its service needs it no more", "nothing to do; `apportion service` shows what its traffic needs"),
}
PAYER: dict[Enum, Words] = {
    Payer.BUDGET: Words("its budget pays", ""),
    Payer.UNFUNDED: Words("unfunded: it uses idle GPUs, and may be preempted by funded work", ""),
}
FUNDING: dict[Enum, Words] = {
    F.WITHIN_ALLOWANCE: Words(
        "it fits into its budget's allowance[ of {allowance_milli}][ ({running_milli} ran before it)]",
        "",
        "within its allowance",
    ),
    F.ABOVE_ALLOWANCE: Words(
        "it, or one before it in order, is above its budget's allowance[ of {allowance_milli}]"
        "[ ({before_milli:comes|come} before it)][; {running_milli:of it runs|of it run}, and it needs {need_milli}]",
        "wait, or ask for a larger share; unfunded work runs while GPUs are idle",
        "above its allowance",
    ),
    F.BALANCE_SPENT: Words(
        "its budget's granted GPU time is used up[: {line} has {left_gpu_us} left, and {needs_gpu_us} have to be promised to it]",
        "ask for a grant or a transfer; unfunded work runs while GPUs are idle",
        "granted time used up",
    ),
    F.IDLE_CYCLES: Words(
        "it asked for idle cycles only (min_runtime 0), which are never funded",
        "submit with --min-runtime to be protected",
        "idle cycles only",
    ),
    F.BUDGET_CLOSED: Words(
        "its budget is closed", "submit to another budget; unfunded work runs while GPUs are idle", "budget closed"
    ),
    F.IDLE_HOLD: Words(
        "it holds GPUs and does no work[ since {idle_since_ms}], and its pool lets no budget pay for that",
        "end it, or let it work: a heartbeat that sees work makes its budget pay again",
        "does no work",
    ),
}
PENDING: dict[Enum, Words] = {
    P.HELD: Words(
        "GPUs are held for it and their last run is ending[: {held_milli} of {need_milli} held]",
        "nothing to do; it starts when they are free",
        "its GPUs are being freed",
    ),
    P.BACKOFF: Words(
        "its last start or run failed, or its last runs ended before anything was safe, and the next one waits[ until {until_ms}]",
        "read its output with `apportion logs {job}`; save checkpoints more often, or cancel it if the command is wrong",
        "backs off",
    ),
    P.NO_CAPACITY: Words(
        "it is larger than the pool's healthy nodes could hold if they were empty"
        "[: it needs {nodes_needed:such node|such nodes}, {nodes_able} could serve]",
        "wait until nodes return (`apportion node list`), or ask for a smaller shape",
        "larger than the healthy nodes",
    ),
    P.DRAINING: Words(
        "nodes are being drained[, the first of them by {until_ms}], and it does not state to be over by then"
        "[; it needs {nodes_needed:node|nodes}, and beside those {nodes_able} could serve]",
        "state --expected-runtime: what is over in time may still start there; `apportion node list` shows the deadlines",
        "nodes are being drained",
    ),
    P.PROTECTED_RUNS: Words(
        "nodes are kept for it, and work that may not be interrupted has to end there first"
        "[; by what that work has stated it starts by {earliest_ms}][, {late_ms} later than told before]"
        "[; the largest node offers {largest_free_milli} now, {largest_node_milli} at most]"
        "[; of the {nodes_needed:node|nodes} it needs {nodes_free:is|are} free]"
        "[; {ahead:of its budget goes|of its budget go} first]",
        "wait; a smaller request may fit earlier",
        "next; waits for protected work",
    ),
    P.RESERVED: Words(
        "free GPUs exist but are kept for work that comes first[, some of which starts by {earliest_ms}]"
        "[: {kept_milli} on nodes on which it could start now]"
        "[; {ahead:of its budget goes|of its budget go} first]",
        "state --expected-runtime: a short job may fit before that starts",
        "free GPUs are kept for others",
    ),
    P.NO_DOMAIN: Words(
        "it would fit, but not within one domain of the level it asks for[: it needs {need_milli}, free {free_milli}]"
        "[; {ahead:of its budget goes|of its budget go} first]",
        "wait, or wish for it instead of asking for it (--near in place of --within)",
        "enough free, but not in one domain",
    ),
    P.NO_ROOM: Words(
        "enough GPUs are free, but not on nodes with the labels, CPU or memory it asks for, or apart from others of its group"
        "[: it needs {need_milli}, free {free_milli}][; it lacks: {lacks}][; {ahead:of its budget goes|of its budget go} first]",
        "wait, or ask for less beside GPUs (--label, --gpu-memory, --cpu, --memory, --exclusive, --apart)",
        "free GPUs lack what it asks for",
    ),
    P.NO_BLOCK: Words(
        "enough GPUs are free, but not on one node or enough whole nodes[: it needs {need_milli}, free {free_milli}]"
        "[; the largest node offers {largest_free_milli} now, {largest_node_milli} at most]"
        "[; of the {nodes_needed:node|nodes} it needs {nodes_free:is|are} free]"
        "[; {ahead:of its budget goes|of its budget go} first]",
        "wait, or ask for fewer GPUs per node (--nodes)",
        "enough free, but not together",
    ),
    P.NO_FREE_GPUS: Words(
        "fewer GPUs are free than it needs[: it needs {need_milli}, free {free_milli}]"
        "[; {ahead:of its budget goes|of its budget go} first]",
        "wait; `apportion share` shows whose turn it is, and work above its share is what makes room",
        "fewer GPUs free than it needs",
    ),
    P.BUDGET_ORDER: Words(
        "[it would fit, {free_milli:is|are} free, but ]the first of its budget must not start later by what it takes"
        "[; {ahead:of its budget goes|of its budget go} first][: the first is {first}]",
        "state --expected-runtime: a short job may go before; or change the order with --priority",
        "the first of its budget goes first",
    ),
    P.PLANNED: Words(
        "GPUs are free[ ({free_milli})], but the plan of its pool needs them before it would be over, or waits for its next step",
        "`apportion plan show` shows the plan; state a shorter --expected-runtime, or fewer GPUs",
        "the plan starts it later",
    ),
}
NODE: dict[Enum, Words] = {
    N.HEARTBEAT_TIMEOUT: Words(
        "it has not been heard from for more than its limit[ of {timeout_ms}][; last seen {last_seen_ms}]",
        "check that the node and its agent run; a heartbeat brings it back",
    ),
    N.START_FAILURES: Words(
        "runs in a row failed to start on it[: {failures}]",
        "look at the agent's log, then `apportion node uncordon`",
    ),
    N.STOP_TIMEOUT: Words(
        "a run on it did not end after it was killed",
        "look for stuck processes on the node, then `apportion node uncordon`",
    ),
    N.DRAINED: Words(
        "the deadline of its drain has come[: {deadline_ms}][; runs still there: {runs}]",
        "do what it was drained for, then `apportion node uncordon`",
    ),
}
TICK: dict[Enum, Words] = {
    TickWhy.DIRTY: Words("an input changed something that may change a decision", ""),
    TickWhy.DUE: Words("a deadline in the state had come", ""),
    TickWhy.PLAN: Words("it was time for the rolling plan", ""),
}

RESIZE: dict[Enum, Words] = {
    Resize.LEAST: Words("no traffic was observed or forecast", "publish `demand.observed`: `apportion demand JOB TRAFFIC`"),
    Resize.TRAFFIC: Words("its traffic needs so many[: {need}]", ""),
    Resize.FORECAST: Words("traffic is forecast that needs so many by when one that starts now would serve[: {need}]", ""),
    Resize.HELD: Words("it needed so many in its hold time[: {need}]", ""),
}
BOUND: dict[Enum, Words] = {
    Bound.LEAST: Words("it has at least its minimum", "submit it with a lower min_replicas"),
    Bound.MOST: Words("it has at most its maximum", "submit it with a higher max_replicas"),
    Bound.SWAP: Words("it may change by so much in one step of the plan", "submit it with a higher swap_replicas"),
    Bound.STALE: Words("no traffic was observed for 15 minutes, so it does not shrink", "look at who publishes `demand.observed`"),
}

WORDS: dict[type[Enum], dict[Enum, Words]] = {
    Refusal: REFUSAL,
    Outcome: OUTCOME,
    Payer: PAYER,
    Funding: FUNDING,
    Pending: PENDING,
    NodeReason: NODE,
    TickWhy: TICK,
    Resize: RESIZE,
    Bound: BOUND,
}
ENUMS: dict[str, type[Enum]] = {
    "refusal": Refusal,
    "outcome": Outcome,
    "payer": Payer,
    "funding": Funding,
    "pending": Pending,
    "node": NodeReason,
    "tick": TickWhy,
    "resize": Resize,
    "bound": Bound,
}
PLANNED = "[; it is planned to start by {planned_ms}][, told before: {moved_from_ms}]"  # of conservative backfill
_NOTHING_AT_0 = {"ahead", "earliest_ms"}  # nobody goes first; nobody knows


def words(reason: Enum, numbers: Mapping[str, int | str] | None = None) -> tuple[str, str]:
    """Return ``(sentence, action)`` for a reason and the numbers of its decision."""
    template = WORDS[type(reason)][reason]
    values = {name: value for name, value in (numbers or {}).items() if name not in _NOTHING_AT_0 or value}
    sentence = template.sentence + PLANNED if isinstance(reason, Pending) else template.sentence
    return fill(sentence, values), fill(template.action, {"job": "JOB", "principal": "NAME", **values})


def words_of(enum: str, value: str, numbers: Mapping[str, int | str] | None = None) -> tuple[str, str]:
    """Like ``words``, by the enum's short name (``refusal``, ``pending`` ...) and the stored value.

    A value this release does not know (written by a newer core) is shown as it is stored.
    """
    try:
        return words(ENUMS[enum](value), numbers)
    except ValueError:
        return value, "this release has no words for it; upgrade apportion"


def label_of(enum: str, value: str) -> str:
    """Return the reason in a few words, for a column of a table."""
    try:
        reason = ENUMS[enum](value)
    except ValueError:
        return value
    return WORDS[type(reason)][reason].label or words(reason)[0]
