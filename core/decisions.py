"""Every decision, and the CycleBatch that carries the decisions of one cycle.

Decisions are facts: they are folded like inputs, and everything a reader needs to understand one is in it, as enum and
numbers. A batch's bytes are a pure function of the log up to its tick, so two cores that read the same log write the same
bytes; that, and the expected last sequence of DECISIONS, is the whole fence.

A decision's id is ``<seq of the tick>.<position in the batch>``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import cast

import msgspec

from apportion.core.decided import Decided
from apportion.core.decision import Decision
from apportion.core.envelope import encode
from apportion.core.plans import PlanPublished as PlanPublished  # read with all others from here


class Piece(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The GPUs of one node in a placement: indexes in ``gpus``, each holding ``milli_each``."""

    node: str
    gpus: tuple[int, ...]
    milli_each: int


class WorkloadAdmitted(Decision, frozen=True, tag="workload.admitted"):
    """The workload is in its budget's queue with the shape the core made of the request."""

    workload: str
    event_seq: int
    budget: str
    pool: str
    nodes: int
    milli_per_node: int
    min_runtime_ms: int
    others: tuple[str, ...] = ()  # pools in which it may start when it cannot in this one, in order of its wish
    skipped: dict[str, str] = {}  # pools that it named and that can never take it, each with a Refusal


class WorkloadRejected(Decision, frozen=True, tag="workload.rejected"):
    """The submission was refused. ``field`` and ``numbers`` tell what to change."""

    workload: str
    event_seq: int
    principal: str
    reason: str  # Refusal
    field: str = ""
    detail: str = ""
    numbers: dict[str, int] = {}


class Rejected(Decision, frozen=True, tag="rejected"):
    """Any other input that was refused; it changed nothing."""

    event_seq: int
    event_type: str
    principal: str
    reason: str  # Refusal
    entity: str = ""
    field: str = ""
    detail: str = ""
    numbers: dict[str, int] = {}


class RunPlaced(Decision, frozen=True, tag="run.placed"):
    """Start this run on these GPUs. Charged from ``time_ms`` of the batch, to the budget in this pool.

    The pool may be another one than where the workload waited, if it accepts several.
    """

    workload: str
    run: int
    budget: str
    pool: str
    gpus_milli: int
    pieces: tuple[Piece, ...]
    payer: str  # Payer
    why: str  # Funding
    protected_until_ms: int
    reserved_gpu_us: int
    resume_from_ms: int = 0
    allowance_milli: int = 0  # of the budget, at this moment
    running_milli: int = 0  # of the budget, before this start
    beneficiary: bool = False  # starts on GPUs that were freed for it


class Certificate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Why a preemption was right, recomputable by hand (FUNDING rule 1.7).

    Allowances f and running r are in milli-GPU; the victim's ``running_milli`` already excludes victims chosen before
    it. Allowed because 2 * victim_running - victim_gpus > 2 * victim_allowance, or the victim ran on idle cycles, or it was
    demoted for doing no work: then ``numbers`` tell ``idle_since_ms``.

    Under a baseline ``policy`` the rule is another, and ``numbers`` are its own. ``priority``: victim_priority <
    beneficiary_priority. ``drf``: (beneficiary_line + beneficiary_gpus) / beneficiary_weight < victim_line / victim_weight, of
    the two lines below the first budget that both have in common.
    """

    beneficiary: str
    beneficiary_budget: str
    beneficiary_gpus_milli: int
    beneficiary_running_milli: int
    beneficiary_allowance_milli: int
    victim_budget: str
    victim_gpus_milli: int
    victim_running_milli: int
    victim_allowance_milli: int
    ran_ms: int
    lost_gpu_us: int  # work since the last checkpoint
    freed_milli: int  # by the whole plan
    needed_milli: int
    policy: str = "fair"
    numbers: dict[str, int] = {}


class RunPreempted(Decision, frozen=True, tag="run.preempted"):
    """Stop this run within its grace; its GPUs are held for the beneficiary."""

    workload: str
    run: int
    grace_until_ms: int
    certificate: Certificate


class RunCancelled(Decision, frozen=True, tag="run.cancelled"):
    """Stop this run within its grace because its workload was cancelled."""

    workload: str
    run: int
    event_seq: int
    grace_until_ms: int


class RunDrained(Decision, frozen=True, tag="run.drained"):
    """Stop this run within its grace because ``node``, on which it holds GPUs, is wanted empty by ``deadline_ms``.

    ``saved``: it is asked at its last safe point that comes in time, by its own pace; else because there is no more time.
    """

    workload: str
    run: int
    node: str
    deadline_ms: int
    grace_until_ms: int
    payer: str  # Payer; a budget only when ``forced``
    forced: bool = False
    saved: bool = False
    lost_gpu_us: int = 0  # work since the last checkpoint


class MoveCertificate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Why a move was right: who starts by it, and what the whole plan costs. All of it fits on GPUs that are free by count."""

    beneficiary: str
    beneficiary_budget: str
    needed_milli: int
    free_milli: int  # of the pool, now; never less than needed
    moves: int  # runs that the plan moves
    moved_milli: int  # by the whole plan
    gpus_milli: int  # of this run
    ran_ms: int
    lost_gpu_us: int  # of this run, since its last checkpoint
    plan_lost_gpu_us: int


class RunMoved(Decision, frozen=True, tag="run.moved"):
    """Stop this run within its grace, so that the beneficiary starts on its GPUs; ``pieces`` are held for it to go on there."""

    workload: str
    run: int
    grace_until_ms: int
    pieces: tuple[Piece, ...]
    payer: str  # Payer
    certificate: MoveCertificate


class Move(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A run that would be moved, and where to."""

    workload: str
    run: int
    pieces: tuple[Piece, ...]
    lost_gpu_us: int = 0  # work since its last checkpoint, when this was decided


class MovesProposed(Decision, frozen=True, tag="moves.proposed"):
    """If these runs were moved, the workload could start on ``pieces``; nothing is done. Written on change; no moves = no more."""

    workload: str
    pieces: tuple[Piece, ...] = ()
    moves: tuple[Move, ...] = ()
    lost_gpu_us: int = 0

    @property
    def mark(self) -> int:
        """Return a number that tells plans apart: who is moved where, and who starts where; not what it costs. 0 = no plan."""
        if not self.moves:
            return 0
        told = encode([self.pieces, [(move.workload, move.run, move.pieces) for move in self.moves]])
        return 1 + int.from_bytes(hashlib.sha256(told).digest()[:6])


class GpusReserved(Decision, frozen=True, tag="gpus.reserved"):
    """These GPUs are held for the workload until it starts, or is withdrawn."""

    workload: str
    pieces: tuple[Piece, ...]
    unfunded: bool = False  # nobody pays for it: runs were moved so that it fits
    waits_in: str = ""  # without pieces: the pool in whose queue it waits from now on, where that is another one


class RunClosed(Decision, frozen=True, tag="run.closed"):
    """The final account of a run: who paid what, what was given back, and what happens to its workload."""

    workload: str
    run: int
    budget: str
    pool: str
    outcome: str  # Outcome
    placed_ms: int
    end_ms: int
    gpus_milli: int
    charged_gpu_us: int  # paid by the budget, before refund
    unfunded_gpu_us: int
    refunded_gpu_us: int = 0  # moved from the budget to down
    unfunded_refunded_gpu_us: int = 0  # moved from unfunded to down
    voided_gpu_us: int = 0  # reservation that was not used
    lost_gpu_us: int = 0  # work since the last checkpoint that must be done again
    progress_ms: int = 0
    exit_code: int = 0
    event_seq: int = 0
    requeued: bool = False
    not_before_ms: int = 0  # back-off of the next attempt
    blamed: tuple[str, ...] = ()  # nodes that a failed start is counted against
    waits_in: str = ""  # the pool in whose queue it waits again, where that is not the run's


class WorkloadClosed(Decision, frozen=True, tag="workload.closed"):
    """The workload is over and leaves the core's tables. Also for one that never ran (cancelled while pending)."""

    workload: str
    outcome: str  # Outcome
    runs: int
    event_seq: int = 0


class NodeSuspended(Decision, frozen=True, tag="node.suspended"):
    """The node takes no work until it is healthy again (heartbeats) or uncordoned (start failures, stop timeout, drained)."""

    node: str
    reason: str  # NodeReason
    numbers: dict[str, int] = {}


class FundingChanged(Decision, frozen=True, tag="funding.changed"):
    """From ``time_ms`` of the batch on, ``payer`` pays for this run."""

    workload: str
    run: int
    budget: str
    payer: str  # Payer
    why: str  # Funding
    allowance_milli: int = 0
    before_milli: int = 0  # funded in order before this run
    idle_since_ms: int = 0  # since when it has done no work, where that is the reason


class RunIdle(Decision, frozen=True, tag="run.idle"):
    """The run holds GPUs and has done no work on any node since ``since_ms``, for the pool's limit; 0 = it works again."""

    workload: str
    run: int
    budget: str
    pool: str
    gpus_milli: int
    since_ms: int
    limit_ms: int


class GrantIssued(Decision, frozen=True, tag="grant.issued"):
    """A period of a scheduled grant begins, or the last one is settled: what is new, what was carried into it, what lapsed."""

    pool: str
    budget: str
    event_seq: int  # the grant.scheduled it follows
    period_ms: int  # the instant it was due; the cycle may be later
    until_ms: int  # when the next one is due; 0 = never
    gpu_us: int
    carried_gpu_us: int = 0  # unspent before, and still there
    lapsed_gpu_us: int = 0  # unspent before, and taken back


class Elsewhere(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Why a workload did not start in another pool that it accepts."""

    pool: str
    reason: str  # Pending
    numbers: dict[str, int] = {}


class PendingExplained(Decision, frozen=True, tag="pending.explained"):
    """Why the workload waits; only written when the reason or its numbers' meaning changes.

    ``funded_since_ms`` among the numbers: it is at the head of its queue and would be funded, and has waited so since then.
    """

    workload: str
    reason: str  # Pending
    numbers: dict[str, int] = {}
    elsewhere: tuple[Elsewhere, ...] = ()  # the same of the other pools that it accepts, in order of its wish


class ServiceResized(Decision, frozen=True, tag="service.resized"):
    """A realtime service is to have ``replicas`` from now on; those that are missing are admitted, those too many retired."""

    workload: str
    budget: str
    pool: str
    before: int
    replicas: int
    gpus_milli: int  # of one replica
    why: str  # Resize
    bound: str = ""  # Bound, where it is to have another number than it needs
    numbers: dict[str, int] = {}


class RunRetired(Decision, frozen=True, tag="run.retired"):
    """Stop this run of a replica within its grace: its service needs it no more."""

    workload: str
    run: int
    service: str
    grace_until_ms: int


RunStop = RunPreempted | RunCancelled | RunDrained | RunMoved | RunRetired  # each stops a run within its grace


AnyDecision = (
    WorkloadAdmitted
    | WorkloadRejected
    | Rejected
    | RunPlaced
    | RunPreempted
    | RunCancelled
    | RunDrained
    | RunMoved
    | MovesProposed
    | GpusReserved
    | RunClosed
    | WorkloadClosed
    | NodeSuspended
    | FundingChanged
    | GrantIssued
    | RunIdle
    | PendingExplained
    | ServiceResized
    | RunRetired
    | PlanPublished
)


class PoolBooks(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The pool's accounts at the batch's time, in GPU-microseconds since the log was opened.

    ``supply = down + idle + unfunded + funded`` exactly; ``funded`` is the sum over the pool's budgets.
    """

    pool: str
    supply: int
    down: int
    idle: int
    unfunded: int
    funded: int
    pending_milli: int = 0
    free_milli: int = 0


class CycleBatch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One cycle: what was read (``chain``), what was decided, and what the state became (``digest``)."""

    core: int
    cycle: int
    seq: int  # the tick this cycle answers
    time_ms: int
    chain: str  # over all records read, up to and including the tick
    digest: str  # of the state after the decisions
    decisions: Sequence[AnyDecision]
    books: tuple[PoolBooks, ...] = ()


_batch_decoder = msgspec.json.Decoder(CycleBatch)


def encode_batch(batch: CycleBatch) -> bytes:
    """Return the batch's bytes: deterministic, the unit of comparison for verify."""
    if isinstance(batch.decisions, Decided):
        said = cast(Sequence[AnyDecision], msgspec.Raw(batch.decisions.encoded()))
        batch = msgspec.structs.replace(batch, decisions=said)
    return encode(batch)


def decode_batch(body: bytes) -> CycleBatch:
    """Decode a batch; raises msgspec's errors, which for a stored batch mean corruption."""
    return _batch_decoder.decode(body)
