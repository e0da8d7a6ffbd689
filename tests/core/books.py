"""Independent books: GPU time and lags integrated from who holds what, and what each decision must respect.

``Books`` watches a story. Between two records it adds (rate seen after the last record) x (time passed), with rates counted
from runs and GPUs one by one; at each cycle it goes through the decisions in order with its own idea of who runs, who pays
and who is protected. Nothing is taken from the core's accounts; they are what is being checked.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from apportion.core.decisions import (
    AnyDecision,
    Certificate,
    CycleBatch,
    FundingChanged,
    GpusReserved,
    GrantIssued,
    Piece,
    PlanPublished,
    RunCancelled,
    RunClosed,
    RunDrained,
    RunIdle,
    RunMoved,
    RunPlaced,
    RunPreempted,
    RunRetired,
    WorkloadAdmitted,
    WorkloadClosed,
)
from apportion.core.engine import Core
from apportion.core.envelope import Record
from apportion.core.state import schema
from apportion.core.state.state import State
from apportion.core.state.wishes import wish_of
from tests.core.invariants import asks_of, in_progress, offered, path_of, used_by_gpu
from tests.core.outlook import Outlook


@dataclass
class Live:
    """A run in progress as the decisions tell it."""

    leaf: tuple[str, str]  # pool, path
    milli: int
    payer: str
    protected_until_ms: int
    idle_cycles: bool
    gpus: frozenset[tuple[str, int]]
    resume_ms: int
    reserved: bool
    stopping: bool = False


class Books:
    """Watcher of a story; raises ``AssertionError`` at the record where something stops holding."""

    def __init__(self) -> None:
        self.time_ms = 0
        self.rates: Counter[tuple[str, int]] = Counter()  # (account, pool row or budget row)
        self.totals: Counter[tuple[str, int]] = Counter()
        self.lag: Counter[int] = Counter()
        self.outlook: Outlook | None = None  # as it was after the last record, with what is planned
        self.closed: Counter[tuple[str, str, str]] = Counter()  # (account, pool, path): time of closed runs, after refunds
        self.live: dict[str, Live] = {}
        self.admitted: dict[str, WorkloadAdmitted] = {}
        self.pool: dict[str, str] = {}  # of each workload: where it waits or runs
        self.visits = 0  # starts in another pool than where they waited
        self.min_ms: dict[tuple[str, str], int] = {}  # protected time by workload and pool
        self.held: dict[str, int] = {}
        self.moving: dict[str, Live] = {}  # stopped to go on elsewhere: they stay their budgets'
        self.promised: dict[str, str] = {}  # beneficiary -> its state as told
        self.preemptions = 0
        self.idle: dict[str, int] = {}  # run -> since when it does no work
        self.fruitless: Counter[str] = Counter()  # workload -> runs in a row that nobody failed and that brought nothing safe
        self.lost: set[tuple[str, str]] = set()  # budgets that lost a run in this cycle
        self.took_ms: dict[tuple[str, str], int] = {}  # budget -> when it last took GPUs from another one
        self.policies: list[int] = []  # of pools, after the last record
        self.periods: dict[tuple[str, str], tuple[int, int]] = {}  # what was given for the period that runs, and committed then
        self.begun: set[tuple[str, str, int, int]] = set()  # periods for which time was granted
        self.posted: Counter[tuple[str, int]] = Counter()  # forfeited and forgiven lag per line, own and below
        self.plain: Counter[int] = Counter()  # lag of every line as integrated on its own level, nothing forfeited

    # -- time ----------------------------------------------------------------------------------------------------------

    def after(self, core: Core, record: Record, batch: CycleBatch | None) -> None:
        """Integrate up to the record, take its cycle in, compare, and note the rates from here on."""
        state = core.state
        assert core.time_ms >= self.time_ms, "time never runs backwards"
        self._integrate(core.time_ms)
        self._inherit_lag(state)
        self._follow_policies(state)
        if batch is not None:
            self._forgive(state)
            self.lost = set()
            for decision in batch.decisions:
                self._take(state, decision, batch)
            self._check_promises(state)
        self.rates = rates_of(state)
        self._compare(state)
        self.outlook = Outlook(state, self.outlook)
        scheduled = state.schedule.row_of
        self.periods = {key: given for key, given in self.periods.items() if ":".join(key) in scheduled}

    def _integrate(self, until_ms: int) -> None:
        """Add rate x time up to ``until_ms``, in parts where an entitlement changes as planned."""
        outlook = self.outlook
        instants = sorted({change[0] for change in outlook.planned if change[0] <= until_ms}) if outlook else []
        for at_ms in [*instants, until_ms]:
            elapsed_ms = max(0, at_ms - self.time_ms)
            for key, rate in self.rates.items():
                self.totals[key] += rate * elapsed_ms
            for line, rate in outlook.rates().items() if outlook and elapsed_ms else ():
                self.plain[line] += rate * elapsed_ms
                if line in outlook.leaves:
                    self.lag[line] += rate * elapsed_ms
            self.time_ms += elapsed_ms
            if outlook and at_ms in instants:
                outlook.step(at_ms, lambda line: self.totals["charged_us", line])

    def _inherit_lag(self, state: State) -> None:
        """A line that got its first child hands down its lag, and what was posted on it."""
        for line in self.outlook.leaves if self.outlook else ():
            below = [other for other in range(state.budget.used) if int(state.budget.parent[other]) == line]
            if below:
                self.lag[below[0]] = self.lag.pop(line, 0)
                self.plain[below[0]] = self.plain[line]
                for account in ("forfeited_us", "forgiven_us"):
                    self.posted[account, below[0]] = self.posted[account, line]

    def _follow_policies(self, state: State) -> None:
        """Another policy owes nothing of what the one before it did."""
        now = [int(policy) for policy in state.pool.column("policy")]
        changed = [pool for pool, policy in enumerate(self.policies) if now[pool] != policy]
        for leaf in [leaf for leaf in self.lag if int(state.budget.pool[leaf]) in changed]:
            amount = self.lag.pop(leaf)
            for line in path_of(state, leaf):
                self.posted["forfeited_us" if amount > 0 else "forgiven_us", line] += abs(amount)
        self.policies = now

    def _forgive(self, state: State) -> None:
        """What is owed to a leaf without demand, or barred, pays the debts of others, pro rata, to the last unit.

        Both are those of the instant before the cycle's decisions, as they were noted after the record before the tick.
        """
        for leaf in sorted(self.lag):
            pool = int(state.budget.pool[leaf])
            assert self.outlook is not None, "a cycle cannot be the first record"
            if self.lag[leaf] <= 0 or not (self.outlook.idle(leaf) or self.outlook.barred[leaf]):
                continue
            debtors = [
                other for other in sorted(self.lag) if self.lag[other] < 0 and int(state.budget.pool[other]) == pool
            ]
            debts = [-self.lag[other] for other in debtors]
            part = self.rates["supply", pool]
            for line in path_of(state, leaf):
                part = part * self.outlook.tree.weight[line] // 1_000_000
            banked = 0 if self.outlook.barred[leaf] else part * int(state.pool.bank_ms[pool])
            amount = min(self.lag[leaf] - banked, sum(debts))
            if amount <= 0:
                continue
            parts = [amount * debt // sum(debts) for debt in debts]
            remainders = sorted(range(len(debts)), key=lambda k: (-(amount * debts[k] % sum(debts)), k))
            for k in remainders[: amount - sum(parts)]:
                parts[k] += 1
            self.lag[leaf] -= amount
            for line in path_of(state, leaf):
                self.posted["forfeited_us", line] += amount
            for other, part in zip(debtors, parts, strict=True):
                self.lag[other] += part
                for line in path_of(state, other):
                    self.posted["forgiven_us", line] += part

    # -- decisions -----------------------------------------------------------------------------------------------------

    def running(self, leaf: tuple[str, str]) -> int:
        """Return what a budget runs or has been promised, without idle-cycle work and runs that were told to go."""
        milli = sum(
            run.milli for run in self.live.values() if run.leaf == leaf and not run.idle_cycles and not run.stopping
        )
        return milli + sum(
            self.held[name] for name in self.held if (self.pool[name], self.admitted[name].budget) == leaf
        )

    def _take(self, state: State, decision: AnyDecision, batch: CycleBatch) -> None:
        if isinstance(decision, WorkloadAdmitted):
            self._admitted(state, decision)
        elif isinstance(decision, RunPlaced):
            self._placed(state, decision, batch)
        elif isinstance(decision, RunPreempted):
            self._preempted(state, decision, batch)
        elif isinstance(decision, RunMoved):
            self.moving[decision.workload] = self.live[f"{decision.workload}#{decision.run}"]
        elif isinstance(decision, RunCancelled | RunDrained | RunRetired):
            self.live[f"{decision.workload}#{decision.run}"].stopping = True
        elif isinstance(decision, GpusReserved):
            self.held.pop(decision.workload, None)
            self.pool[decision.workload] = decision.waits_in or self.pool[decision.workload]
            self.promised[decision.workload] = "held" if decision.pieces else "withdrawn"
            if decision.pieces:
                self.held[decision.workload] = sum(len(piece.gpus) * piece.milli_each for piece in decision.pieces)
                plan = [
                    other for other in batch.decisions
                    if isinstance(other, RunPreempted) and other.certificate.beneficiary == decision.workload
                ]  # fmt: skip
                if plan:  # ``moved`` looks at those that move
                    self._check_plan(state, decision, plan)
        elif isinstance(decision, GrantIssued):
            self._issued(state, decision)
        elif isinstance(decision, FundingChanged):
            self.live[f"{decision.workload}#{decision.run}"].payer = decision.payer
        elif isinstance(decision, RunIdle):
            self.idle[f"{decision.workload}#{decision.run}"] = decision.since_ms
            assert not decision.since_ms or batch.time_ms - decision.since_ms >= decision.limit_ms
        elif isinstance(decision, RunClosed):
            self._closed(state, decision)
            self.pool[decision.workload] = decision.waits_in or decision.pool
        elif isinstance(decision, WorkloadClosed):
            gone = self.admitted.pop(decision.workload, None)
            for pool in (gone.pool, *gone.others) if gone else ():
                self.min_ms.pop((decision.workload, pool), None)
            self.pool.pop(decision.workload, None)
            self.held.pop(decision.workload, None)
            if decision.workload in self.promised:
                self.promised[decision.workload] = "withdrawn"

    def _check_plan(self, state: State, kept: GpusReserved, plan: list[RunPreempted]) -> None:
        """Each victim gives something; all together no more than is needed and one gang; none could be funded again at once.

        Who asks for CPU or memory too may be given these alone, on a node where it gets its GPUs; who keeps apart from a group,
        that one of it goes.
        """
        wish = wish_of(state, state.workload.row_of[kept.workload])
        nodes = {piece.node for piece in kept.pieces} if wish.contested else set()
        sizes = []
        for preempted in plan:
            victim, proof = self.live[f"{preempted.workload}#{preempted.run}"], preempted.certificate
            gives = victim.gpus & gpus_in(kept.pieces) or {node for node, _gpu in victim.gpus} & nodes
            gives = gives or (wish.group and wish_of(state, state.workload.row_of[preempted.workload]).group == wish.group)
            assert gives, f"{preempted.workload} dies and gives nothing to {kept.workload}"
            if proof.policy != "fair":
                return
            sizes.append(victim.milli)
            if not victim.idle_cycles and not proof.numbers:
                back = 2 * self.running(victim.leaf) + victim.milli
                assert back > 2 * proof.victim_allowance_milli, f"{preempted.workload} could be funded at once again: {proof}"
        needed = self.held[kept.workload]
        assert sum(sizes) <= needed + max(sizes), f"{sizes} milli-GPU are taken for {needed}, more than that and one gang"

    def _admitted(self, state: State, admitted: WorkloadAdmitted) -> None:
        """Each pool that may take it protects as long as was asked for, or, when nothing was, for its own quantum."""
        name, row = admitted.workload, state.workload.row_of.get(admitted.workload, -1)
        self.admitted[name], self.pool[name] = admitted, admitted.pool
        if row < 0:
            return  # a service: its replicas are admitted too
        asks = asks_of(state, row)
        assert [state.pool.keys[ask.pool] for ask in asks] == [admitted.pool, *admitted.others]
        assert asks[0].min_runtime_ms == admitted.min_runtime_ms
        for ask in asks:
            assert (ask.min_runtime_ms == 0) == (admitted.min_runtime_ms == 0)
            self.min_ms[name, state.pool.keys[ask.pool]] = ask.min_runtime_ms

    def _placed(self, state: State, placed: RunPlaced, batch: CycleBatch) -> None:
        asked_ms = self.min_ms[placed.workload, placed.pool]
        self.visits += placed.pool != self.pool[placed.workload]
        self.pool[placed.workload] = placed.pool
        protected_ms = placed.protected_until_ms - batch.time_ms
        planned = [(job, plan) for plan in batch.decisions if isinstance(plan, PlanPublished) for job in plan.jobs]
        promised = [(job, plan.step_ms) for job, plan in planned if job.workload == placed.workload and job.start == 0]
        if promised:  # it is not interrupted for as long as it is planned
            job, step_ms = promised[0]
            assert (job.steps - 1) * step_ms < protected_ms <= job.steps * step_ms or protected_ms == asked_ms
            assert placed.reserved_gpu_us == (placed.gpus_milli * protected_ms if placed.payer == "budget" else 0)
        elif placed.payer == "budget":
            assert protected_ms == asked_ms > 0, f"a funded start has all the time it asked for: {placed}"
            assert placed.reserved_gpu_us == placed.gpus_milli * protected_ms
        else:
            quantum_ms = int(state.pool.quantum_ms[state.pool.row_of[placed.pool]])
            assert protected_ms == min(asked_ms, quantum_ms), f"an unfunded start has at most the quantum: {placed}"
            assert placed.reserved_gpu_us == 0
        self.held.pop(placed.workload, None)
        if placed.workload in self.promised:
            self.promised[placed.workload] = "placed"
        leaf = (placed.pool, placed.budget)
        fair = int(state.pool.policy[state.pool.row_of[placed.pool]]) == schema.FAIR
        assert not fair or leaf not in self.lost, f"its budget lost a run in this cycle: {placed}"
        if placed.payer == "budget" and not placed.beneficiary:
            fits = 2 * self.running(leaf) + placed.gpus_milli <= 2 * placed.allowance_milli
            assert fits, f"funded without an allowance: {placed}"
        self.live[f"{placed.workload}#{placed.run}"] = Live(
            leaf, placed.gpus_milli, placed.payer, placed.protected_until_ms, asked_ms == 0, gpus_in(placed.pieces),
            placed.resume_from_ms, placed.reserved_gpu_us > 0,
        )  # fmt: skip

    def _preempted(self, state: State, preempted: RunPreempted, batch: CycleBatch) -> None:
        self.preemptions += 1
        name, proof = f"{preempted.workload}#{preempted.run}", preempted.certificate
        victim = self.live[name]
        assert batch.time_ms >= victim.protected_until_ms, f"{name} is protected and preempted"
        assert not victim.stopping, f"{name} is preempted twice"
        assert proof.beneficiary in self.admitted, f"{name} makes room for nobody"
        taker = self.admitted[proof.beneficiary]
        assert self.pool[proof.beneficiary] == taker.pool, f"{name} makes room for a guest"
        leaf = (taker.pool, taker.budget)
        assert leaf[0] == victim.leaf[0], f"{name} makes room in another pool"
        wanted = 2 * self.running(leaf) + proof.beneficiary_gpus_milli
        assert wanted <= 2 * proof.beneficiary_allowance_milli, f"{name} makes room for a job that is not funded: {proof}"
        if not victim.idle_cycles:
            assert self.running(victim.leaf) == proof.victim_running_milli, f"{name}: its budget runs otherwise: {proof}"
            if proof.policy == "fair" and proof.numbers:
                assert self.idle.get(name) == proof.numbers["idle_since_ms"], f"{name} is said to do no work: {proof}"
                assert int(state.pool.idle_demotes[state.pool.row_of[victim.leaf[0]]]), f"{name} was not demoted: {proof}"
            elif proof.policy == "fair":
                self._check_fair(state, name, victim, proof, batch)
            else:
                self._check_baseline(state, name, victim, taker, proof)
        assert proof.policy != "fair" or victim.payer == "unfunded", f"{name} is funded and preempted"
        self.took_ms[leaf] = batch.time_ms
        victim.stopping = True
        self.lost.add(victim.leaf)
        self.promised[proof.beneficiary] = "asked"

    def _check_fair(self, state: State, name: str, victim: Live, proof: Certificate, batch: CycleBatch) -> None:
        before, allowance = proof.victim_running_milli, proof.victim_allowance_milli
        after = before - victim.milli
        assert (allowance - after) ** 2 < (allowance - before) ** 2, f"{name}: the sum of (f - r)^2 does not fall: {proof}"
        quantum_ms = int(state.pool.quantum_ms[state.pool.row_of[victim.leaf[0]]])
        took_ms = self.took_ms.get(victim.leaf, -quantum_ms)
        assert batch.time_ms - took_ms >= quantum_ms, f"{name}: its budget took GPUs within a quantum: places alternate"

    def _check_baseline(self, state: State, name: str, victim: Live, taker: WorkloadAdmitted, proof: Certificate) -> None:
        if proof.policy == "priority":
            rows = [state.workload.row_of[workload] for workload in (proof.beneficiary, name.partition("#")[0])]
            mine, theirs = (int(state.workload.priority[row]) for row in rows)
            assert theirs < mine, f"{name} is as important as who takes its place"
            return
        assert proof.policy == "drf", f"policy {proof.policy} preempts nobody"
        one, other = taker.budget.split("/"), victim.leaf[1].split("/")
        assert one != other, f"{name} makes room for its own budget"
        depth = next(n for n, (left, right) in enumerate(zip(one, other, strict=False)) if left != right) + 1
        lines = [(taker.pool, "/".join(path[:depth])) for path in (one, other)]
        shares = []
        for (pool, path), extra in zip(lines, (proof.beneficiary_gpus_milli, 0), strict=True):
            row = state.budget.row_of[f"{pool}:{path}"]
            runs = sum(self.running(leaf) for leaf in self._leaves(state, row))
            shares.append(Fraction(runs + extra, max(1, int(state.budget.share_ppm[row]))))
        assert shares[0] < shares[1], f"{name}: {lines} have {shares} after and before the move"

    def _leaves(self, state: State, row: int) -> list[tuple[str, str]]:
        rows = [leaf for leaf in range(state.budget.used) if row in path_of(state, leaf) and not state.budget.children[leaf]]
        return [(state.pool.keys[int(state.budget.pool[leaf])], state.budget_path(leaf)) for leaf in rows]

    def _closed(self, state: State, closed: RunClosed) -> None:
        self._check_backoff(self.live.pop(f"{closed.workload}#{closed.run}"), closed)
        moved = self.moving.pop(closed.workload, None)
        if moved is not None and closed.requeued and not closed.not_before_ms and closed.outcome not in ("failed", "start_failed"):
            self.held[closed.workload] = 0 if moved.idle_cycles else moved.milli
        back, back_free = closed.refunded_gpu_us, closed.unfunded_refunded_gpu_us
        assert 0 <= back <= closed.charged_gpu_us
        assert 0 <= back_free <= closed.unfunded_gpu_us
        total = closed.charged_gpu_us + closed.unfunded_gpu_us
        assert total == closed.gpus_milli * (closed.end_ms - closed.placed_ms), f"time from placement to release: {closed}"
        self.closed["charged_us", closed.pool, closed.budget] += closed.charged_gpu_us - back
        self.closed["unfunded_us", closed.pool, closed.budget] += closed.unfunded_gpu_us - back_free
        pool = state.pool.row_of[closed.pool]
        self.totals["down", pool] += back + back_free
        self.totals["unfunded", pool] -= back_free
        for line in path_of(state, state.budget.row_of[f"{closed.pool}:{closed.budget}"]):
            self.totals["charged_us", line] -= back
            self.totals["unfunded_us", line] -= back_free

    def _check_backoff(self, run: Live, closed: RunClosed) -> None:
        """Runs that bring nothing safe wait from the second in a row on, each time twice as long, up to 640 seconds."""
        if closed.outcome not in ("preempted", "node_lost", "lost", "drained", "moved"):
            return
        in_a_row = self.fruitless[closed.workload]
        fruitful = closed.progress_ms > run.resume_ms
        if closed.outcome in ("drained", "moved"):  # that says nothing about the work
            self.fruitless[closed.workload] = 0 if fruitful else in_a_row
            return
        self.fruitless[closed.workload] = 0 if fruitful else in_a_row + 1
        if closed.workload.rpartition(":")[0] in self.admitted:
            in_a_row = 0  # a replica brings nothing home
        wait_ms = 0 if fruitful or not in_a_row or not closed.requeued else min(10_000 << min(in_a_row - 1, 60), 640_000)
        assert closed.not_before_ms == (closed.end_ms + wait_ms if wait_ms else 0), f"after {in_a_row} in vain: {closed}"

    def _issued(self, state: State, issued: GrantIssued) -> None:
        """What was given for a period and not charged or promised since is carried or lapses, down to what the line has left."""
        assert self.outlook is not None, "a cycle cannot be the first record"
        line, key = state.budget.row_of[f"{issued.pool}:{issued.budget}"], (issued.pool, issued.budget)
        promised = sum(
            run.milli * max(0, run.protected_until_ms - self.time_ms)
            for run in self.live.values()
            if run.reserved and run.leaf[0] == issued.pool and f"{run.leaf[1]}/".startswith(f"{issued.budget}/")
        )
        committed = self.totals["charged_us", line] + promised
        given, base = self.periods.pop(key, (0, committed))
        left = self.outlook.granted.get(line, 0) - committed
        unspent = max(0, min(left, given - max(0, committed - base)))
        assert issued.carried_gpu_us + issued.lapsed_gpu_us == unspent, f"{unspent} are unspent: {issued}"
        assert issued.period_ms <= self.time_ms, f"not due: {issued}"
        assert (*key, issued.event_seq, issued.period_ms) not in self.begun, f"begun twice: {issued}"
        if issued.gpu_us:
            self.begun.add((*key, issued.event_seq, issued.period_ms))
        if issued.until_ms:
            self.periods[key] = (issued.carried_gpu_us + issued.gpu_us, committed)
        if line in self.outlook.granted or issued.gpu_us:
            before = self.outlook.granted.get(line, self.totals["charged_us", line])
            self.outlook.granted[line] = before + issued.gpu_us - issued.lapsed_gpu_us

    def _check_promises(self, state: State) -> None:
        """A plan's beneficiary has its GPUs held, or has started, or was withdrawn: nobody dies for nothing."""
        for name, told in list(self.promised.items()):
            assert told != "asked", f"{name} took GPUs by preemption and nothing is held for it"
            if told == "held":
                row = state.workload.row_of[name]
                assert int(state.workload.state[row]) == schema.HELD
            else:
                del self.promised[name]

    # -- comparison ----------------------------------------------------------------------------------------------------

    def _compare(self, state: State) -> None:
        ahead_ms = state.counters.time_ms - state.counters.accrued_ms
        for pool in range(state.pool.used):
            told = {
                name: int(getattr(state.pool, f"{name}_us")[pool]) + ahead_ms * int(getattr(state.pool, f"{name}_milli")[pool])
                for name in ("supply", "down", "idle", "unfunded")
            }
            mine = {name: self.totals[name, pool] for name in told}
            assert told == mine, f"accounts of pool {state.pool.keys[pool]}: {told}, integrated {mine}"
            root = int(state.pool.root[pool])
            funded = self.totals["charged_us", root]
            assert mine["supply"] == mine["down"] + mine["idle"] + mine["unfunded"] + funded
        for line in range(state.budget.used):
            for name, rate in (("charged_us", "funded_milli"), ("unfunded_us", "unfunded_milli")):
                total = int(getattr(state.budget, name)[line]) + ahead_ms * int(getattr(state.budget, rate)[line])
                own = self.totals[name, line]
                assert total == own, f"{name} of {state.budget.keys[line]}: {total}, integrated {own}"
        self._compare_runs(state, ahead_ms)
        due = 0 < state.counters.planned_ms <= state.counters.time_ms
        if not due and (not state.counters.fair_stale or not ahead_ms):
            for line in range(state.budget.used):
                lag = int(state.budget.lag_us[line]) + ahead_ms * int(state.budget.lag_milli[line])
                own = (self.plain if state.budget.children[line] else self.lag)[line]
                assert lag == own, f"lag of {state.budget.keys[line]}: {lag}, integrated {own}"
        self._check_levels(state)

    def _check_levels(self, state: State) -> None:
        """On every level: the lags of the leaves below are the line's, less what they forfeited, plus what was forgiven."""
        budget = state.budget
        below: Counter[int] = Counter()
        for leaf in range(budget.used):
            if not budget.children[leaf]:
                for line in path_of(state, leaf):
                    below[line] += self.lag[leaf]
        for line in range(budget.used):
            told = {name: int(getattr(budget, name)[line]) for name in ("forfeited_us", "forgiven_us")}
            mine = {name: self.posted[name, line] for name in told}
            assert told == mine, f"{budget.keys[line]} posted {told}, recomputed {mine}"
            sums = self.plain[line] - mine["forfeited_us"] + mine["forgiven_us"]
            assert below[line] == sums, f"leaves below {budget.keys[line]} are owed {below[line]}, the line {sums}"

    def _compare_runs(self, state: State, ahead_ms: int) -> None:
        """The accounts of budgets are the sums of the accounts of runs: closed ones, ended ones, and those in progress."""
        sums = Counter({key: value for key, value in self.closed.items() if value})
        now_ms = state.counters.time_ms
        for run in state.run.live_rows():
            pool, path = state.pool.keys[int(state.run.pool[run])], state.budget_path(int(state.run.budget[run]))
            amounts = {"charged_us": int(state.run.charged_us[run]), "unfunded_us": int(state.run.unfunded_us[run])}
            if int(state.run.state[run]) != schema.ENDED:
                payer = "charged_us" if int(state.run.payer[run]) == schema.PAYER_BUDGET else "unfunded_us"
                amounts[payer] += int(state.run.gpus_milli[run]) * (now_ms - int(state.run.payer_since_ms[run]))
            for name, amount in amounts.items():
                sums[name, pool, path] += amount
        for line in range(state.budget.used):
            if state.budget.children[line]:
                continue
            key = (state.pool.keys[int(state.budget.pool[line])], state.budget_path(line))
            for name in ("charged_us", "unfunded_us"):
                own = self.totals[name, line]
                assert sums[name, *key] == own, f"{name} of {key}: runs sum to {sums[name, *key]}, the budget has {own}"


def gpus_in(pieces: tuple[Piece, ...]) -> frozenset[tuple[str, int]]:
    """Return the GPUs that pieces name."""
    return frozenset((piece.node, gpu) for piece in pieces for gpu in piece.gpus)


def rates_of(state: State) -> Counter[tuple[str, int]]:
    """Return per account what it grows by in a millisecond, counted from GPUs and runs."""
    rates: Counter[tuple[str, int]] = Counter()
    used = used_by_gpu(state)
    for gpu, pool in offered(state).items():
        rates["supply", pool] += 1_000
        rates["down" if state.gpu.out[gpu] else "idle", pool] += 1_000 - used[gpu]
    for run in in_progress(state):
        milli = int(state.run.gpus_milli[run])
        funded = int(state.run.payer[run]) == schema.PAYER_BUDGET
        if not funded:
            rates["unfunded", int(state.run.pool[run])] += milli
        for line in path_of(state, int(state.run.budget[run])):
            rates["charged_us" if funded else "unfunded_us", line] += milli
    return rates
