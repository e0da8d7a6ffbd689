"""People, nodes and agents that do anything, in any order: right, wrong, late, twice, never, and in somebody else's name.

``Chaos`` appends one event per action to a story; every choice comes from its dice, so a seed or a Hypothesis example tells it
all. It knows from the decisions which runs exist, and answers them as it likes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from apportion.core import decisions as d
from apportion.core import events as ev
from apportion.core.engine import Core
from apportion.core.envelope import Record, encode, subject_of
from tests.core.story import Story
from tests.strategies import POISON_NUMBERS

T = TypeVar("T")

PACKINGS: tuple[Any, ...] = ("fgd", "balanced", "best_fit")
POOLS = ("p", "q")
BUDGETS = ("A", "B", "C", "A/x", "A/y", "B/z")
NODES = {"n1": ("p", 8), "n2": ("p", 8), "n3": ("p", 4), "n4": ("q", 8)}
DOMAINS = {"n1": ("s1", "r1"), "n2": ("s1", "r2"), "n3": ("s1", "r1")}
OFFERED = ("gpu_memory_mib", "cpu_milli", "memory_mib", "labels", "place")
OFFERS: dict[str, tuple[Any, ...]] = {
    "n1": (80, 16_000, 2_048, {"gen": "a"}, 2), "n2": (80, 8_000, 1_024, {"gen": "b", "disk": ""}, 3),
    "n3": (40, 4_000, 512, {"gen": "a"}, 4), "n4": (0, 0, 0, None, None),
}  # fmt: skip
WISHES: dict[str, Sequence[Any]] = {
    "loose": (True,), "within": ("rack", "spine", "node"), "near": ("rack", "node"),
    "labels": ({"gen": "a"}, {"gen": "b", "disk": ""}), "gpu_memory_mib": (40, 90),
    "cpu_milli": (1_000, 6_000), "memory_mib": (512, 900), "exclusive": (True,), "block": (True,), "apart": ("g1", "g2"),
}  # fmt: skip
PEOPLE = ("ops", "ops", "ops", "user1", "user2", "stranger")
STEPS_MS = (0, 0, 1, 999, 5_000, 5_000, 30_000, 60_000, 60_000, 60_000, 85_000, 600_000, 3_600_000)
SIZES_MILLI = (250, 500, 999, 1_000, 1_000, 2_000, 2_000, 3_000, 4_000, 4_000, 8_000, 16_000, 1_500, 12_000)


class Dice(Protocol):
    """Where choices come from."""

    def pick(self, options: Sequence[T]) -> T:
        """Return one of the options."""
        ...


class Seeded:
    """Dice from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, options: Sequence[T]) -> T:
        """Return one of the options."""
        return options[self.random.randrange(len(options))]


class Chaos:
    """Appends to ``story``; also a watcher of it, to know what was decided."""

    def __init__(self, story: Story, dice: Dice, policies: Sequence[Any] = (), *, serving: bool = False) -> None:
        self.story = story
        self.dice = dice
        self.policies = policies  # that pools are given, one after the other; none = they stay fair
        self.serving = serving  # there are services too
        self.made = 0
        self.served = 0
        self.beats: dict[str, int] = {}
        self.live: dict[str, tuple[str, ...]] = {}  # run -> nodes, lead first
        self.gone: list[str] = []
        self.stopping: list[str] = []
        self.started: set[str] = set()

    def after(self, core: Core, record: Record, batch: d.CycleBatch | None) -> None:
        """Note what was decided."""
        for decision in batch.decisions if batch is not None else ():
            if isinstance(decision, d.RunPlaced):
                self.live[f"{decision.workload}#{decision.run}"] = tuple(piece.node for piece in decision.pieces)
            elif isinstance(decision, d.RunStop):
                self.stopping.append(f"{decision.workload}#{decision.run}")
            elif isinstance(decision, d.RunClosed):
                name = f"{decision.workload}#{decision.run}"
                del self.live[name]
                self.gone.append(name)
                self.stopping = [other for other in self.stopping if other != name]

    def begin(self) -> None:
        """Open the log and build a small cluster whose rules are quick."""
        pick = self.dice.pick
        self.story.open()
        for pool in POOLS:
            self.story.tell(ev.PoolDefined(pool=pool, levels=("spine", "rack") if pool == "p" else ()))
            self.story.tell(
                ev.PolicyActivated(
                    pool=pool, quantum_ms=pick((60_000, 300_000)), horizon_ms=pick((60_000, 3_600_000)),
                    start_timeout_ms=120_000, protected_cap_ms=7_200_000, idle_hold_ms=60_000,
                    idle_hold_action=pick(("none", "demote")), moves="carry_out" if pool == "p" else "propose",
                )
            )  # fmt: skip
            for budget, share in (("A", 500_000), ("B", 300_000), ("C", pick((0, 200_000)))):
                self.story.tell(ev.BudgetSet(pool=pool, budget=budget, share_ppm=share))
            self.next_policy(pool)
        self.story.tell(ev.BudgetSet(pool="p", budget="A/x", share_ppm=pick((0, 600_000))))
        self.story.tell(ev.BudgetSet(pool="p", budget="A/y", share_ppm=400_000))
        carry: Any = pick(("none", "all", "cap"))
        self.story.tell(
            ev.GrantScheduled(
                pool="q", budget="C", gpu_us=3_600_000_000, period="none", carry=carry, carry_cap_ppm=500_000,
                until_ms=self.story.now_ms + 1_800_000,
            )
        )  # fmt: skip
        for node, (pool, gpus) in NODES.items():
            domains = DOMAINS.get(node, ())
            told = dict(zip(OFFERED, OFFERS[node], strict=True))
            self.story.tell(ev.NodeJoined(node=node, pool=pool, gpus=gpus, agent=f"agent-{node}", domains=domains, **told))
        self.story.tell(ev.MemberGranted(budget="A", member="user1", role="administer"))
        self.story.tell(ev.MemberGranted(budget="B", member="user2"))

    def next_policy(self, pool: str) -> None:
        """Give a pool one of the policies this chaos is made of."""
        if self.policies:
            half_life_ms = self.dice.pick((60_000, 3_600_000, 604_800_000))
            self.story.tell(ev.PolicyActivated(pool=pool, policy=self.dice.pick(self.policies), half_life_ms=half_life_ms))

    def in_pieces(self) -> None:
        """Tell how moves are proposed and then made, in a pool of its own; no choice is left to the dice."""
        def tick(after_ms: int = 0) -> None:
            self.story.now_ms += after_ms
            self.story.tick()

        self.story.tell(ev.PoolDefined(pool="r"))
        self.story.tell(ev.PolicyActivated(pool="r", quantum_ms=60_000, moves="propose"))
        self.story.tell(ev.BudgetSet(pool="r", budget="A", share_ppm=1_000_000))
        for node in ("r1", "r2"):
            self.story.tell(ev.NodeJoined(node=node, pool="r", gpus=2, agent=f"agent-{node}"))

        def submit(name: str, gpus_milli: int) -> None:
            event = ev.WorkloadSubmitted(
                workload=name, budget="A", pools=("r",), gpus_milli=gpus_milli, min_runtime_ms=60_000, movable=True
            )
            self.story.tell(event)

        for number in range(4):
            submit(f"piece{number}", 1_000)
        tick()
        for number in (0, 1, 2, 3):
            self._report(ev.RunStarted, f"piece{number}#1", f"agent-r{1 + number // 2}", node=f"r{1 + number // 2}")
        for number in (1, 3):
            node = f"r{1 + number // 2}"
            self._report(ev.RunFinished, f"piece{number}#1", f"agent-{node}", node=node, outcome="succeeded")
        submit("whole", 2_000)
        tick(60_000)
        self.story.tell(ev.PolicyActivated(pool="r", moves="carry_out"))
        tick(1_000)
        self._report(ev.RunFinished, "piece2#1", "agent-r2", node="r2", outcome="stopped")
        tick(1_000)

    def breathing(self) -> None:
        """Tell how a service grows and shrinks, in a pool of its own; no choice is left to the dice."""
        self.story.tell(ev.PoolDefined(pool="t"))
        self.story.tell(ev.BudgetSet(pool="t", budget="A", share_ppm=1_000_000))
        self.story.tell(ev.NodeJoined(node="t1", pool="t", gpus=2, agent="agent-t1"))
        service = ev.Service(min_replicas=1, max_replicas=2, gpus_milli_per_traffic=1_000, hold_ms=60_000)
        event = ev.WorkloadSubmitted(
            workload="lung", budget="A", pools=("t",), gpus_milli=1_000, kind="realtime", min_runtime_ms=0, service=service
        )
        self.story.tell(event)
        for traffic_milli in (2_000, 1_000, 1_000, 1_000):
            self.story.tell(ev.DemandObserved(workload="lung", traffic_milli=traffic_milli))
            self.story.tick()
            self.story.now_ms += 60_000

    def planned(self) -> None:
        """Tell how a day is planned around a service, in a pool of its own; no choice is left to the dice."""
        self.story.tell(ev.PoolDefined(pool="v"))
        self.story.tell(ev.PolicyActivated(pool="v", policy="horizon", wait_bound_ms=3_600_000))
        self.story.tell(ev.BudgetSet(pool="v", budget="A", share_ppm=1_000_000))
        self.story.tell(ev.NodeJoined(node="v1", pool="v", gpus=4, agent="agent-v1"))
        service = ev.Service(min_replicas=1, max_replicas=2, gpus_milli_per_traffic=1_000)
        self.story.tell(
            ev.WorkloadSubmitted(
                workload="tide", budget="A", pools=("v",), gpus_milli=1_000, kind="realtime", min_runtime_ms=0, service=service
            )
        )
        forecast = ev.ForecastPublished(
            model="m", target="tide", horizon_ms=7_200_000, step_ms=3_600_000, quantiles_ppm=(500_000, 900_000),
            values=(1_000, 2_000, 1_000, 2_000),
        )  # fmt: skip
        self.story.tell(forecast)
        for name, gpus_milli in (("now", 2_000), ("after", 4_000), ("never", 4_000)):
            event = ev.WorkloadSubmitted(
                workload=name, budget="A", pools=("v",), gpus_milli=gpus_milli, min_runtime_ms=60_000, expected_runtime_ms=7_200_000
            )
            self.story.tell(event)
        self.story.tick()
        self.story.now_ms += 3_000_000  # by then two have waited for most of the bound, and cannot start in time
        self.story.tick()

    # -- time ----------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Let time pass; now and then a claim steps back, which the log does not follow."""
        self.story.now_ms += self.dice.pick(STEPS_MS)

    def minute(self) -> None:
        """An ordinary minute: it passes, nodes beat, a cycle runs, agents answer it."""
        self.story.now_ms += 60_000
        self.beat_all()
        if self.served and self.dice.pick((True, True, False)):
            traffic = ev.DemandObserved(workload=f"s{self.served}", traffic_milli=self.dice.pick((0, 1_000, 3_000)))
            self.story.tell(traffic)
        self.story.tick()
        self.answer()

    def tick(self) -> None:
        """A cycle."""
        self.story.tick()

    def beat_all(self) -> None:
        """Most nodes beat."""
        for node in NODES:
            if self.dice.pick((True, True, True, True, False)):
                self.beats[node] = self.beats.get(node, 0) + 1
                self.story.tell(ev.NodeHeartbeat(node=node, beat=self.beats[node]), f"agent-{node}")

    def beat(self) -> None:
        """One beat: perhaps old, from somebody else, with broken GPUs, with a list of runs."""
        pick = self.dice.pick
        node = pick(tuple(NODES))
        number = self.beats.get(node, 0) + pick((1, 1, 1, 1, 0, -1, 5))
        self.beats[node] = max(number, self.beats.get(node, 0))
        here = tuple(name for name, nodes in self.live.items() if node in nodes)
        self.story.tell(
            ev.NodeHeartbeat(
                node=node, beat=max(1, number), gpus_down=pick(((), (), (), (0,), (1, 7), (71,))),
                runs=pick((None, None, here, here, here[1:], ())), idle_runs=pick(((), (), here, here[:1])),
            ),
            pick((f"agent-{node}",) * 5 + ("ops", "agent-n1", "stranger")),
        )  # fmt: skip

    # -- agents --------------------------------------------------------------------------------------------------------

    def answer(self) -> None:
        """The agents answer every order they have not answered; some never do."""
        for name, nodes in list(self.live.items()):
            if self.dice.pick((True, True, True, False)):
                outcome = self.dice.pick(("stopped", "stopped", "succeeded", "failed")) if name in self.stopping else ""
                for node in nodes:
                    if outcome:
                        self._report(ev.RunFinished, name, f"agent-{node}", node=node, outcome=outcome)
                    elif name not in self.started or self.dice.pick((False,) * 9 + (True,)):
                        self._report(ev.RunStarted, name, f"agent-{node}", node=node)
                self.started.add(name)

    def report(self) -> None:
        """One report about some run, right or wrong."""
        pick = self.dice.pick
        names = [*self.live, *self.live, *self.live, *self.gone[-2:], "w0#1", "nobody#9"]
        name = pick(names)
        node = pick((*self.live.get(name, ("n1",)), *self.live.get(name, ("n1",)), "n1", "n9"))
        who = pick((f"agent-{node}",) * 6 + ("ops", "agent-n1", "user1"))
        kind = pick(("started", "finished", "finished", "finished", "lost", "checkpoint", "checkpoint", "progress"))
        if kind == "started":
            self._report(ev.RunStarted, name, who, node=node)
        elif kind == "finished":
            outcome = pick(("succeeded", "succeeded", "failed", "stopped", "refused"))
            self._report(ev.RunFinished, name, who, node=node, outcome=outcome, exit_code=pick((0, 1, -9)))
        elif kind == "lost":
            self._report(ev.RunLost, name, who, node=node)
        else:
            event: Any = ev.RunCheckpointed if kind == "checkpoint" else ev.RunProgressed
            self._report(event, name, who, progress_ms=pick((0, 60_000, 600_000, 366 * 86_400_000)))

    def _report(self, event: type[Any], name: str, by: str, **fields: Any) -> None:
        workload, _, run = name.partition("#")
        self.story.tell(event(workload=workload, run=int(run), **fields), by)

    # -- people --------------------------------------------------------------------------------------------------------

    def submit(self) -> None:
        """A new job, mostly sensible."""
        pick = self.dice.pick
        self.made += 1
        pools = pick((("p",),) * 5 + (("q",), ("q", "p"), ("q", "p"), *(("p", "q"),) * 3, ("nowhere", "p"), ("nowhere", "q", "p")))
        both = "p" in pools and "q" in pools
        budget = pick(("B", "C", "C", "A") if both else ("A", "B", "C") if pools[0] == "q" else ("A/x", "A/y", "B", "C"))
        sensible = pick((True,) * 7 + (False,))
        self.story.tell(
            ev.WorkloadSubmitted(
                workload=f"w{self.made}" if sensible else "w1",
                budget=budget if sensible else pick(BUDGETS),
                pools=pools,
                gpus_milli=pick((500, 1_000, 2_000, 3_000, 4_000, 4_000, 8_000, 8_000, 16_000) if sensible else SIZES_MILLI),
                nodes=0 if sensible else pick((1, 2, 3)),
                min_runtime_ms=pick((None, None, 0, 60_000, 60_000, 600_000) if sensible else (7_200_001, 7_200_000)),
                grace_ms=pick((0, 30_000, 120_000)),
                expected_runtime_ms=pick((0, 0, 60_000, 3_600_000)),
                priority=pick((0, 0, 0, 1, -1)),
                max_failures=pick((0, 0, 1, 3)),
                auto_resume=pick((True, True, True, False)),
                movable=self.made % 2 == 0,
                **self.wishes(),
            ),
            "ops" if sensible else pick(PEOPLE),
        )

    def wishes(self) -> dict[str, Any]:
        """What a job asks of nodes beside GPUs; mostly nothing, else one thing or two."""
        pick = self.dice.pick
        names = [pick(tuple(WISHES)) for _ in range(pick((0, 0, 0, 1, 2)))]
        return {name: pick(WISHES[name]) for name in names}

    def serve(self) -> None:
        """A new service, or news of one: traffic, a forecast."""
        pick = self.dice.pick
        who = pick(("ops", "ops", *PEOPLE))
        kind = pick(("submit", "demand", "demand", "demand", "forecast"))
        name = f"s{pick(range(max(1, self.served - 1), self.served + 1))}" if self.served else "s1"
        if kind == "submit" or not self.served:
            self.served += 1
            service = ev.Service(
                min_replicas=pick((0, 1, 2)), max_replicas=pick((1, 3, 5)), gpus_milli_per_traffic=pick((500, 1_000)),
                swap_replicas=pick((None, None, 0, 1)), startup_ms=pick((0, 120_000)), hold_ms=pick((60_000, 300_000)),
            )  # fmt: skip
            submitted = ev.WorkloadSubmitted(
                workload=f"s{self.served}", budget=pick(("A/x", "B", "C")), pools=("p",),
                gpus_milli=pick((500, 1_000, 2_000, 8_000)),
                kind=pick(("realtime",) * 5 + ("training",)), min_runtime_ms=pick((None, 0, 60_000)), service=service,
            )  # fmt: skip
            self.story.tell(submitted, who)
        elif kind == "demand":
            event = ev.DemandObserved(workload=pick((name, name, name, "w1")), traffic_milli=pick((0, 1_000, 3_000, 5_000, 2**53)))
            self.story.tell(event, who)
        else:
            values = tuple(pick((0, 1_000, 4_000)) for _ in range(pick((4, 4, 4, 3))))
            forecast = ev.ForecastPublished(
                model="m", target=name, from_ms=pick((0, 0, self.story.now_ms - 60_000, 1)), horizon_ms=600_000, step_ms=300_000,
                quantiles_ppm=pick(((500_000, 900_000), (900_000, 500_000))), values=values,
            )  # fmt: skip
            self.story.tell(forecast, who)

    def withdraw(self) -> None:
        """Cancel or reorder some job, or service."""
        pick = self.dice.pick
        name = f"w{pick(range(max(1, self.made - 12), self.made + 2))}"
        if self.serving:
            name = pick((name, name, name, f"s{self.served}", f"s{self.served}:1"))
        if pick((True, False)):
            self.story.tell(ev.WorkloadCancelled(workload=name), pick(PEOPLE))
        else:
            self.story.tell(ev.WorkloadReprioritized(workload=name, priority=pick((-5, 0, 7))), pick(PEOPLE))

    def money(self) -> None:
        """Change a budget."""
        pick = self.dice.pick
        pool, budget, who, amount = pick(POOLS), pick(BUDGETS), pick(PEOPLE), pick((1, 60_000_000, 3_600_000_000, 2**58))
        kind = pick(("set", "set", "grant", "grant", "schedule", "transfer", "close", "member", "revoke"))
        if kind == "set":
            share, ahead = pick((0, 100_000, 300_000, 1_000_000)), (0, 0, 0, 1, 60_000, 90_000, 3_600_000)
            from_ms, until_ms = (self.story.now_ms + ms if ms else 0 for ms in (pick(ahead), 2 * pick(ahead)))
            self.story.tell(ev.BudgetSet(pool=pool, budget=budget, share_ppm=share, from_ms=from_ms, until_ms=until_ms), who)
        elif kind == "grant":
            self.story.tell(ev.BudgetGranted(pool=pool, budget=budget, gpu_us=amount), who)
        elif kind == "schedule":
            period: Any = pick(("none", "none", "monthly", "quarterly"))
            carry: Any = pick(("none", "all", "cap"))
            from_ms, until_ms = (self.story.now_ms + ms if ms else 0 for ms in (pick((0, 0, 60_000)), pick((0, 90_000, 600_000))))
            schedule = ev.GrantScheduled(
                pool=pool, budget=budget, gpu_us=pick((0, amount, amount)), period=period, carry=carry, carry_cap_ppm=300_000,
                from_ms=from_ms, until_ms=until_ms,
            )  # fmt: skip
            self.story.tell(schedule, who)
        elif kind == "transfer":
            event = ev.BudgetTransferred(pool=pool, from_budget=budget, to_budget=pick(BUDGETS), gpu_us=amount)
            self.story.tell(event, who)
        elif kind == "close":
            self.story.tell(ev.BudgetClosed(pool=pool, budget=budget), who)
        elif kind == "member":
            self.story.tell(ev.MemberGranted(budget=budget, member=pick(PEOPLE), role=pick(("charge", "administer"))), who)
        else:
            self.story.tell(ev.MemberRevoked(budget=budget, member=pick(PEOPLE), role=pick(("charge", "administer"))), who)

    def machine(self) -> None:
        """Something happens to a node."""
        pick = self.dice.pick
        node = pick((*NODES, "n5"))
        kind = pick(("cordon", "drain", "drain", *("uncordon",) * 3, "leave", "join", "join", "move", "policy"))
        who = pick(("ops", "ops", f"agent-{node}", "stranger"))
        if kind == "cordon":
            self.story.tell(ev.NodeCordoned(node=node), who)
        elif kind == "drain":
            by_ms = pick((0, self.story.now_ms - 1, *(self.story.now_ms + ms for ms in (1, 60_000, 600_000, 3_600_000, 7_200_000))))
            self.story.tell(ev.NodeDrained(node=node, by_ms=by_ms, force=pick((True, False))), who)
        elif kind == "uncordon":
            self.story.tell(ev.NodeUncordoned(node=node), who)
        elif kind == "leave":
            self.story.tell(ev.NodeLeft(node=node), who)
        elif kind == "policy":
            refund: Any = pick(("unconfirmed", "since_checkpoint", "whole_run"))
            quantum_ms = pick((60_000, 3_600_000))
            pool = pick(POOLS)
            packing = PACKINGS[len(self.story.records) % len(PACKINGS)]
            rules = ev.PolicyActivated(
                pool=pool, node_loss_refund=refund, quantum_ms=quantum_ms, bank_ms=quantum_ms, packing=packing
            )
            self.story.tell(rules, who)
            self.next_policy("p")
        else:
            pool, gpus = NODES.get(node, ("p", 2))
            if kind == "move":
                pool, gpus = pick(POOLS), pick((1, 4, 8, 9))
            domains = pick((DOMAINS.get(node, ()), (), ("", "r2"))) if pool == "p" else pick(((), ("r2",)))
            told = dict(zip(OFFERED, pick((*OFFERS.values(), OFFERS.get(node, OFFERS["n4"]))), strict=True))
            event = ev.NodeJoined(node=node, pool=pool, gpus=gpus, agent=f"agent-{node}", domains=domains, **told)
            self.story.tell(event, who)

    # -- the log -------------------------------------------------------------------------------------------------------

    def again(self) -> None:
        """An old copy of a record arrives."""
        record = self.dice.pick(self.story.records)
        if not record.subject.endswith("clock.tick"):
            self.story.send(record.subject, record.body)

    def forge(self) -> None:
        """A good event in somebody else's name, on the subject of another type, or with a number that is out of bounds."""
        pick = self.dice.pick
        samples: tuple[ev.Event, ...] = (
            ev.NodeHeartbeat(node="n1", beat=10**6), ev.NodeLeft(node="n2"), ev.NodeCordoned(node="n1"), ev.NodeDrained(node="n1"),
            ev.BudgetGranted(pool="p", budget="A", gpu_us=10**12), ev.BudgetSet(pool="p", budget="B", share_ppm=1),
            ev.WorkloadSubmitted(workload="forged", budget="A/y", pools=("p",), gpus_milli=1_000),
            ev.RunFinished(workload="w1", run=1, node="n1", outcome="succeeded"), ev.ClockTick(),
            ev.MemberGranted(budget="A", member="stranger", role="administer"), ev.PolicyActivated(pool="p", quantum_ms=1_000),
        )  # fmt: skip
        event = pick(samples)
        event_type = ev.EVENT_TYPES[type(event)]
        body = ev.encode_event(event, event_id="forged", at_ms=self.story.now_ms)
        if pick((True, False)):
            number = pick(POISON_NUMBERS)
            if keys := _numbers(event):
                key = pick(keys)
                body = body.replace(b'"%s":%d' % (key.encode(), getattr(event, key)), b'"%s":%d' % (key.encode(), number))
        subject = pick((event_type, event_type, event_type, "node.heartbeat", "clock.tick", "nope"))
        self.story.send(subject_of("stranger", subject), body)

    def stale_claim(self) -> None:
        """A record that claims an instant long ago, before time, or after the end of time."""
        pick = self.dice.pick
        claims = (0, self.story.now_ms - 3_600_000, -1, 2**63, self.story.now_ms + 10**12)
        body = {"id": "claim", "type": "forecast.published", "at_ms": pick(claims)}
        data = ev.ForecastPublished(model="m", target="t", horizon_ms=1)
        self.story.send(subject_of("ops", "forecast.published"), encode({**body, "data": data}))

    def act(self) -> None:
        """Do one thing, the usual ones more often."""
        usual: list[tuple[Callable[[], None], int]] = [
            (self.minute, 14), (self.step, 3), (self.tick, 6), (self.beat_all, 3), (self.answer, 4), (self.submit, 8),
            (self.report, 3), (self.beat, 2), (self.withdraw, 1), (self.money, 1), (self.machine, 2), (self.again, 1),
            (self.forge, 1), (self.stale_claim, 1), *([(self.serve, 8)] if self.serving else []),
        ]  # fmt: skip
        self.dice.pick([action for action, weight in usual for _ in range(weight)])()


def _numbers(event: ev.Event) -> list[str]:
    """Return the fields of an event that hold a number."""
    return [name for name in event.__struct_fields__ if type(getattr(event, name)) is int]
