"""Scenario tables: what people, nodes and the clock do in the left column, what the core decides in the right one.

A file holds scenarios, each under a line ``== title``; what stands before the first title happens in all of them. After ``#``
comes a remark. Times are since the story began. Every tick is checked whole: a decision that is not in the table fails it
(``admit`` and ``wait`` are left out unless the scenario says ``show admit`` or ``show wait``); values given by name must be so,
others may be anything. Nodes beat every minute of their own accord until they are muted; agents start what is placed at once
(``agents silent``: only what the table says; ``agents prompt``: they also stop at once, and the cycle repeats; ``agents diligent``:
and each run ends with success when its stated limit is over). ``hide place end`` leaves these decisions out from there on.

A title with a number like 3B-21 retells a field report: what went wrong for users of another scheduler, and what is right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any

from apportion.core import decisions as d
from apportion.core import events as ev
from apportion.core.envelope import encode, subject_of
from apportion.core.policy.funding import shares_of
from tests.core.books import Books
from tests.core.drains import Drains
from tests.core.invariants import Inspector
from tests.core.moved import Moved
from tests.core.outlook import Timeline
from tests.core.serving import Serving
from tests.core.sights import see
from tests.core.story import OPERATOR, Story
from tests.core.words import (
    Said,
    gpu_time_us,
    gpus_milli,
    matches,
    parse_line,
    said,
    share_ppm,
    text_of,
    whole_ms,
)

BEAT_MS = 60_000


class Wrong(AssertionError):
    """The core did not decide what the table says."""


def read(path: Path) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """Yield (title, numbered lines) of each scenario of a file."""
    common: list[tuple[int, str]] = []
    found: list[tuple[str, list[tuple[int, str]]]] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = re.sub(r"(^|\s)#\s.*$", "", line).rstrip()
        if text.startswith("== "):
            found.append((text[3:].strip(), list(common)))
        elif text.strip():
            (found[-1][1] if found else common).append((number, text))
    for title, lines in found:
        yield title, unrolled(lines)


def unrolled(lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Write out what stands between ``repeat N`` and ``end``; ``{n}`` in it counts from 1, ``{n+1}`` from 2."""
    out: list[tuple[int, str]] = []
    times, block = 0, list[tuple[int, str]]()
    for number, text in lines:
        words = text.split()
        if words[0] == "repeat":
            times, block = int(words[1]), []
        elif words == ["end"]:
            for n in range(1, times + 1):
                out += [(at, line.replace("{n}", str(n)).replace("{n+1}", str(n + 1))) for at, line in block]
            times = 0
        else:
            (block if times else out).append((number, text))
    return out


def amounts(given: dict[str, str]) -> dict[str, Any]:
    """Return ``cpu=4 memory=512 gpumem=80`` as fields of events."""
    names = {"cpu": "cpu_milli", "memory": "memory_mib", "gpumem": "gpu_memory_mib"}
    return {names[name]: gpus_milli(value) if name == "cpu" else int(value) for name, value in given.items() if name in names}


def labels(text: str) -> dict[str, str]:
    """Return ``gen:a,disk:`` as labels."""
    return dict(part.split(":", 1) for part in text.split(",") if part not in ("", "none"))


class Scenario:
    """Plays the lines of one scenario."""

    def __init__(self) -> None:
        self.story = Story(Books(), Timeline(), Inspector(), Drains(), Moved(), Serving())
        self.shown = {
            "refuse", "place", "preempt", "stop", "keep", "unkeep", "close", "end", "suspend", "fund", "issue", "idle", "drain",
            "move", "propose", "resize", "retire", "plan",
        }  # fmt: skip
        self.agents = "willing"
        self.agent_of: dict[str, str] = {}
        self.beats: dict[str, int] = {}
        self.muted: set[str] = set()
        self.lead: dict[str, str] = {}
        self.limit_ms: dict[str, int] = {}  # of jobs that state one
        self.over_ms: dict[str, int] = {}  # when diligent agents end a run
        self.got: list[Said] = []
        self.expected: list[Said] = []
        self.line = 0
        self.batches: list[d.CycleBatch] = []

    def play(self, lines: list[tuple[int, str]]) -> None:
        """Do each line; after a tick and its right column, compare."""
        pending = False
        for number, text in lines:
            action, bar, decided = text.partition("|")
            if action.strip():
                if pending:
                    self._compare()
                self.line = number
                words, names = parse_line(action)
                pending = words[0] in ("tick", "quiet")
                getattr(self, f"do_{words[0]}")(*words[1:], **names)
            if bar and decided.strip():
                assert pending, f"line {number}: decisions come with a tick"
                self.expected.append(parse_line(decided))
        if pending:
            self._compare()

    def _compare(self) -> None:
        got, expected = self.got, self.expected
        self.got, self.expected = [], []
        right = len(got) == len(expected) and all(map(matches, expected, got))
        if not right:
            raise Wrong(
                f"line {self.line}: the table says\n"
                + "".join(f"    | {text_of(line)}\n" for line in expected)
                + "  and the core decided\n"
                + "".join(f"    | {text_of(line)}\n" for line in got)
            )

    # -- the clock -----------------------------------------------------------------------------------------------------

    def _advance(self, text: str) -> None:
        until_ms = self.story.now_ms + whole_ms(text)
        while self.story.now_ms < until_ms:
            self.story.now_ms = min(until_ms, self.story.now_ms + BEAT_MS)
            for run in [run for run, over_ms in self.over_ms.items() if over_ms <= self.story.now_ms]:
                del self.over_ms[run]
                self.do_finished(run, "succeeded")
            for node in self.agent_of:
                if node not in self.muted:
                    self.do_beat(node)

    def do_tick(self, after: str = "0") -> None:
        self._advance(after)
        again = True
        while again:
            batch = self.story.tick()
            self.batches.append(batch)
            for decision in batch.decisions:
                told = said(decision, batch, self.story.start_ms)
                if told[0][0] in self.shown:
                    self.got.append(told)
            again = self._agents_answer(batch)

    def do_quiet(self, times: str, after: str) -> None:
        for _ in range(int(times)):
            self.do_tick(after)

    def do_wait(self, after: str) -> None:
        self._advance(after)

    def do_gap(self, after: str) -> None:
        """Let time pass without a single record."""
        self.story.now_ms += whole_ms(after)

    def _agents_answer(self, batch: d.CycleBatch) -> bool:
        again = False
        for decision in batch.decisions:
            if isinstance(decision, d.RunPlaced):
                name = f"{decision.workload}#{decision.run}"
                self.lead[name] = decision.pieces[0].node
                if self.agents != "silent":
                    self.do_started(name)
                if self.agents == "diligent" and decision.workload in self.limit_ms:
                    self.over_ms[name] = batch.time_ms + self.limit_ms[decision.workload]
            asked = isinstance(decision, d.RunStop)
            if asked and self.agents in ("prompt", "diligent"):
                self.over_ms.pop(f"{decision.workload}#{decision.run}", None)
                self.do_finished(f"{decision.workload}#{decision.run}", "stopped")
                again = True
        return again

    # -- the cluster ---------------------------------------------------------------------------------------------------

    def do_open(self) -> None:
        self.story.open()

    def do_begin(self, date: str) -> None:
        """Open the log at the first instant of a day (UTC)."""
        instant = datetime.combine(datetime.fromisoformat(date), time(), UTC)
        self.story.start_ms = self.story.now_ms = int(instant.timestamp()) * 1_000
        self.story.open()

    def do_pool(self, name: str, by: str = OPERATOR, levels: str = "") -> None:
        self.story.tell(ev.PoolDefined(pool=name, levels=tuple(levels.split("/")) if levels else ()), by)

    def do_policy(self, pool: str, by: str = OPERATOR, **rules: str) -> None:
        names = {
            "quantum": "quantum_ms", "horizon": "horizon_ms", "cap": "protected_cap_ms", "silence": "heartbeat_timeout_ms",
            "start": "start_timeout_ms", "review": "review_ms", "bank": "bank_ms", "halflife": "half_life_ms",
            "idle": "idle_hold_ms", "step": "step_ms", "bound": "wait_bound_ms",
        }  # fmt: skip
        refund: Any = rules.pop("refund", None)
        action: Any = rules.pop("action", None)
        kind: Any = rules.pop("kind", None)
        packing: Any = rules.pop("packing", None)
        moves: Any = rules.pop("moves", None)
        demand_ppm = share_ppm(rules.pop("demand")) if "demand" in rules else None
        values: dict[str, Any] = {names[name]: whole_ms(value) for name, value in rules.items()}
        words: dict[str, Any] = {
            "policy": kind, "node_loss_refund": refund, "idle_hold_action": action, "packing": packing, "moves": moves,
            "demand_ppm": demand_ppm,
        }  # fmt: skip
        self.story.tell(ev.PolicyActivated(pool=pool, **words, **values), by)

    def do_node(
        self, node: str, gpus: str, pool: str = "p", by: str = OPERATOR, agent: str | None = None, at: str = "", rack: str = "",
        **offer: str,
    ) -> None:
        """Let a node join, ``at=spine1/rack2``; nothing between two slashes: in no domain of that level.

        It may offer ``cpu`` (cores), ``memory`` and ``gpumem`` (MiB), a ``place`` in the order of the topology, and labels:
        ``is=gen:a,disk:``; ``is=none`` takes them away.
        """
        told = agent or f"agent-{node}"
        self.agent_of.setdefault(node, told)
        domains = tuple(at.split("/")) if at else ()
        values = amounts(offer)
        if "place" in offer:
            values["place"] = int(offer["place"])
        if "is" in offer:
            values["labels"] = labels(offer["is"])
        event = ev.NodeJoined(node=node, pool=pool, gpus=int(gpus), agent=told, domains=domains, rack=rack, **values)
        self.story.tell(event, by)

    def do_nodes(self, prefix: str, count: str, gpus: str, pool: str) -> None:
        """Let many nodes join that nobody hears of afterwards; only without watchers, who recount every GPU."""
        for number in range(int(count)):
            self.story.tell(ev.NodeJoined(node=f"{prefix}{number}", pool=pool, gpus=int(gpus)))

    def do_beat(
        self, node: str, beat: str = "", down: str = "", runs: str | None = None, idle: str = "", by: str = ""
    ) -> None:
        self.beats[node] = int(beat) if beat else self.beats.get(node, 0) + 1
        positions = tuple(int(part) for part in down.split(",") if part)
        sleeping = tuple(part for part in idle.split(",") if part)
        listed = None if runs is None else tuple(part for part in runs.split(",") if part != "none")
        self.story.tell(
            ev.NodeHeartbeat(node=node, beat=self.beats[node], gpus_down=positions, runs=listed, idle_runs=sleeping),
            by or self.agent_of.get(node, OPERATOR),
        )

    def do_mute(self, *nodes: str) -> None:
        self.muted |= set(nodes)

    def do_unmute(self, *nodes: str) -> None:
        self.muted -= set(nodes)

    def do_agents(self, mood: str) -> None:
        self.agents = mood

    def do_cordon(self, node: str, by: str = OPERATOR) -> None:
        self.story.tell(ev.NodeCordoned(node=node), by)

    def do_drain(self, node: str, force: str = "", until: str = "", by: str = OPERATOR) -> None:
        """Order a node to be empty ``until=2h`` of the story, at once without; ``force`` asks funded runs too."""
        by_ms = self._instant(until) if until else 0
        self.story.tell(ev.NodeDrained(node=node, by_ms=by_ms, force=force == "force"), by)

    def do_uncordon(self, node: str, by: str = OPERATOR) -> None:
        self.story.tell(ev.NodeUncordoned(node=node), by)

    def do_leave(self, node: str, by: str = OPERATOR) -> None:
        self.muted.add(node)
        self.story.tell(ev.NodeLeft(node=node), by)

    # -- budgets and people --------------------------------------------------------------------------------------------

    def _instant(self, text: str) -> int:
        return self.story.start_ms + whole_ms(text)

    def do_budget(self, path: str, share: str, pool: str = "p", by: str = OPERATOR, **when: str) -> None:
        """Set a share, ``from=10h until=20h`` of the story."""
        users: Any = when.pop("users", None)
        times = {f"{name}_ms": self._instant(text) for name, text in when.items()}
        self.story.tell(ev.BudgetSet(pool=pool, budget=path, share_ppm=share_ppm(share), users=users, **times), by)

    def do_grant(self, path: str, amount: str, pool: str = "p", by: str = OPERATOR, id: str = "") -> None:
        self.story.tell(ev.BudgetGranted(pool=pool, budget=path, gpu_us=gpu_time_us(amount)), by, event_id=id)

    def do_schedule(
        self, path: str, amount: str, period: Any, carry: Any = "none", pool: str = "p", by: str = OPERATOR, id: str = "",
        cap: str = "0%", **when: str,
    ) -> None:
        """Grant by the calendar: ``schedule A 100h monthly carry=cap cap=50% until=90d``."""
        times = {f"{name}_ms": self._instant(text) for name, text in when.items()}
        event = ev.GrantScheduled(
            pool=pool, budget=path, gpu_us=gpu_time_us(amount), period=period, carry=carry, carry_cap_ppm=share_ppm(cap), **times
        )
        self.story.tell(event, by, event_id=id)

    def do_withdraw(self, path: str, amount: str, pool: str = "p", by: str = OPERATOR, id: str = "") -> None:
        event = ev.BudgetWithdrawn(pool=pool, budget=path, gpu_us=gpu_time_us(amount))
        self.story.tell(event, by, event_id=id)

    def do_transfer(self, source: str, target: str, amount: str, pool: str = "p", by: str = OPERATOR, id: str = "") -> None:
        event = ev.BudgetTransferred(pool=pool, from_budget=source, to_budget=target, gpu_us=gpu_time_us(amount))
        self.story.tell(event, by, event_id=id)

    def do_close(self, path: str, pool: str = "p", by: str = OPERATOR) -> None:
        self.story.tell(ev.BudgetClosed(pool=pool, budget=path), by)

    def do_member(self, path: str, member: str, role: Any = "charge", by: str = OPERATOR, weight: str = "1") -> None:
        event = ev.MemberGranted(budget=path, member=member, role=role, weight_milli=gpus_milli(weight))
        self.story.tell(event, by)

    def do_revoke(self, path: str, member: str, role: Any = "charge", by: str = OPERATOR) -> None:
        self.story.tell(ev.MemberRevoked(budget=path, member=member, role=role), by)

    # -- work ----------------------------------------------------------------------------------------------------------

    def do_submit(self, name: str, budget: str, gpus: str, by: str = OPERATOR, pools: str = "p", **wishes: str) -> None:
        names = {"min": "min_runtime_ms", "limit": "expected_runtime_ms", "grace": "grace_ms"}
        values: dict[str, Any] = {names[k]: whole_ms(v) for k, v in wishes.items() if k in names}
        numbers = {"nodes": "nodes", "prio": "priority", "retries": "max_failures"}
        values |= {numbers[k]: int(v) for k, v in wishes.items() if k in numbers}
        values |= {k: v for k, v in wishes.items() if k in ("within", "near")} | amounts(wishes)
        values["labels"] = labels(wishes.get("is", ""))
        values |= {name: wishes.get(name) == "yes" for name in ("exclusive", "block")}
        if "apart" in wishes:
            values["apart"], _, level = wishes["apart"].partition("/")
            values["apart_level"] = level or None
        values["auto_resume"] = wishes.get("resume") != "no"
        values["loose"] = wishes.get("loose") == "yes"
        values["movable"] = wishes.get("movable") == "yes"
        if "limit" in wishes:
            self.limit_ms[name] = whole_ms(wishes["limit"])
        event = ev.WorkloadSubmitted(
            workload=name, budget=budget, pools=tuple(pools.split(",")), gpus_milli=gpus_milli(gpus), **values
        )
        self.story.tell(event, by)

    def do_serve(
        self, name: str, budget: str, gpus: str, least: str, most: str, per: str, by: str = OPERATOR, pools: str = "p",
        kind: Any = "realtime", prio: str = "0", grace: str = "30s", min: str | None = None, swap: str | None = None, **times: str,
    ) -> None:
        """Submit a service of replicas of ``gpus`` each, at least and at most so many; a unit of traffic needs ``per`` GPUs."""
        names = {"startup": "startup_ms", "hold": "hold_ms"}
        service = ev.Service(
            min_replicas=int(least), max_replicas=int(most), gpus_milli_per_traffic=gpus_milli(per),
            swap_replicas=None if swap is None else int(swap), **{names[key]: whole_ms(value) for key, value in times.items()},
        )  # fmt: skip
        event = ev.WorkloadSubmitted(
            workload=name, budget=budget, pools=tuple(pools.split(",")), gpus_milli=gpus_milli(gpus), kind=kind, priority=int(prio),
            grace_ms=whole_ms(grace), min_runtime_ms=None if min is None else whole_ms(min), service=service,
        )  # fmt: skip
        self.story.tell(event, by)

    def do_demand(self, name: str, traffic: str, by: str = OPERATOR) -> None:
        self.story.tell(ev.DemandObserved(workload=name, traffic_milli=gpus_milli(traffic)), by)

    def do_forecast(self, name: str, *rows: str, step: str = "0s", within: str = "", by: str = OPERATOR, **of: Any) -> None:
        """Forecast traffic per ``step``, or a runtime (``of=runtime``): ``50%:1,2,3 90%:2,3,4``; ``within`` another horizon."""
        quantiles = tuple(share_ppm(row.partition(":")[0]) for row in rows)
        texts = [row.partition(":")[2].split(",") for row in rows]
        values = tuple((whole_ms if of else gpus_milli)(text) for row in texts for text in row)
        horizon_ms = whole_ms(within) if within else max(1, whole_ms(step) * len(texts[0]))
        event = ev.ForecastPublished(
            model="m", target=name, horizon_ms=horizon_ms, step_ms=whole_ms(step), quantiles_ppm=quantiles, values=values, **of
        )
        self.story.tell(event, by)

    def do_cancel(self, name: str, by: str = OPERATOR) -> None:
        self.story.tell(ev.WorkloadCancelled(workload=name), by)

    def do_prio(self, name: str, priority: str, by: str = OPERATOR) -> None:
        self.story.tell(ev.WorkloadReprioritized(workload=name, priority=int(priority)), by)

    def _of(self, run: str, node: str, by: str) -> tuple[dict[str, Any], str]:
        name, _, number = run.partition("#")
        at = node or self.lead.get(run, "n1")
        return {"workload": name, "run": int(number), "node": at}, by or self.agent_of.get(at, OPERATOR)

    def do_started(self, run: str, node: str = "", by: str = "") -> None:
        about, who = self._of(run, node, by)
        self.story.tell(ev.RunStarted(**about), who)

    def do_finished(self, run: str, outcome: Any, node: str = "", by: str = "", exit: str = "0") -> None:
        about, who = self._of(run, node, by)
        self.story.tell(ev.RunFinished(outcome=outcome, exit_code=int(exit), **about), who)

    def do_lost(self, run: str, node: str = "", by: str = "") -> None:
        about, who = self._of(run, node, by)
        self.story.tell(ev.RunLost(**about), who)

    def do_checkpoint(self, run: str, progress: str, by: str = "") -> None:
        about, who = self._of(run, "", by)
        del about["node"]
        self.story.tell(ev.RunCheckpointed(progress_ms=whole_ms(progress), **about), who)

    def do_progress(self, run: str, progress: str, by: str = "") -> None:
        about, who = self._of(run, "", by)
        del about["node"]
        self.story.tell(ev.RunProgressed(progress_ms=whole_ms(progress), **about), who)

    # -- the log itself ------------------------------------------------------------------------------------------------

    def do_raw(self, event_type: str, *data: str, by: str = OPERATOR, v: str = "1") -> None:
        """Append an event whose payload is given as JSON."""
        body = {"id": "raw", "type": event_type, "v": int(v), "at_ms": self.story.now_ms}
        payload = encode(body)[:-1] + b',"data":' + " ".join(data).encode() + b"}"
        self.story.send(subject_of(by, event_type), payload)

    def do_bytes(self, subject: str, *body: str) -> None:
        """Append a record as it is; ``filler*N`` stands for N bytes."""
        text = " ".join(body)
        many = re.fullmatch(r"filler\*([0-9]+)", text)
        self.story.send(subject, b"x" * int(many[1]) if many else text.encode())

    def do_again(self, types: str = "") -> None:
        """Deliver old copies: everything since the log was opened except ticks (or only the types named)."""
        for record in list(self.story.records[1:]):
            kind = record.subject.split(".", 3)[3]
            if kind != "clock.tick" and (not types or kind in types.split(",")):
                self.story.send(record.subject, record.body)

    def do_watch(self, how: str) -> None:
        assert how == "off"
        self.story.watchers = ()

    def do_restart(self) -> None:
        self.story.restart()

    # -- looking -------------------------------------------------------------------------------------------------------

    def do_show(self, *kinds: str) -> None:
        self.shown |= set(kinds)

    def do_hide(self, *kinds: str) -> None:
        self.shown -= set(kinds)

    def do_see(self, what: str, *words: str, **values: str) -> None:
        told = see(self.story, what, list(words), values)
        if told:
            raise Wrong(f"line {self.line}: {told}")

    def do_shares(self, *words: str) -> None:
        """Compare a (GPUs), L (GPU-seconds) and f (milli-GPU): ``shares A B C a 8 8 0 L 0 0 0 f 8000 8000 0``."""
        marks = [words.index(mark) for mark in ("a", "L", "f")]
        budgets = words[: marks[0]]
        state, shares = self.story.core.state, shares_of(self.story.core.state)
        rows = [state.budget.row_of[f"p:{budget}"] for budget in budgets]
        got = [
            [f"{int(shares.entitled[row]) / 1_000:g}" for row in rows],
            [f"{int(state.budget.lag_us[row]) / 1_000_000:g}" for row in rows],
            [str(int(shares.allowance[row])) for row in rows],
        ]
        told = [list(words[marks[0] + 1 : marks[1]]), list(words[marks[1] + 1 : marks[2]]), list(words[marks[2] + 1 :])]
        if got != told:
            raise Wrong(f"line {self.line}: shares of {budgets} a, L, f: the table says {told}, the core has {got}")
