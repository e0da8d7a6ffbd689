"""What goes wrong in the simulated cluster, decided beforehand: node outages, broken GPUs, maintenance.

A pure function of the seed, the rates and the cluster's size, so that trouble does not depend on what is scheduled. The
world plays the incidents; it never makes up others.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from apportion.adapters.simulation.dice import Dice

MS_PER_MINUTE = 60_000
MS_PER_HOUR = 3_600_000
MS_PER_DAY = 24 * MS_PER_HOUR


class Kind(Enum):
    """What happens to a node. The first four silence it; only a blip leaves its processes alive."""

    BLIP = "blip"  # the network is gone for a while; processes run on, reports come late
    CRASH_REPORTED = "crash_reported"  # reboot; the agent finds its records and reports its runs lost
    CRASH_FORGOTTEN = "crash_forgotten"  # reboot; the agent knows nothing and lists no runs
    REPLACED = "replaced"  # leaves, and joins again as if new
    GPU_BROKEN = "gpu_broken"  # one GPU is unhealthy for a while
    MAINTENANCE = "maintenance"  # an operator cordons or drains it for a while


class Incident(NamedTuple):
    """One incident of one node from ``at_ms`` to ``until_ms``, both counted from the start of the play."""

    at_ms: int
    until_ms: int
    node: int
    kind: Kind
    gpu: int = 0


class Rates(NamedTuple):
    """Mean days between two incidents of a kind on one node; 0 = never. Defaults are those of a decent cluster."""

    blip_days: int = 30
    crash_reported_days: int = 60
    crash_forgotten_days: int = 120
    replaced_days: int = 400
    gpu_broken_days: int = 60
    maintenance_days: int = 60


QUIET = Rates(0, 0, 0, 0, 0, 0)
STORMY = Rates(3, 4, 5, 12, 3, 4)

_LENGTHS_MS = {
    Kind.BLIP: (MS_PER_MINUTE, 12 * MS_PER_MINUTE),
    Kind.CRASH_REPORTED: (3 * MS_PER_MINUTE, 3 * MS_PER_HOUR),
    Kind.CRASH_FORGOTTEN: (2 * MS_PER_MINUTE, 6 * MS_PER_HOUR),
    Kind.REPLACED: (MS_PER_HOUR, 24 * MS_PER_HOUR),
    Kind.GPU_BROKEN: (MS_PER_HOUR, 12 * MS_PER_HOUR),
    Kind.MAINTENANCE: (2 * MS_PER_HOUR, 6 * MS_PER_HOUR),
}


def incidents(seed: int, rates: Rates, nodes: int, gpus_per_node: int, length_ms: int) -> list[Incident]:
    """Return the incidents of the play in order of time; the incidents of one node do not overlap."""
    found: list[Incident] = []
    for node in range(nodes):
        mine: list[Incident] = []
        for kind, days in zip(Kind, rates, strict=True):
            dice = Dice(seed, "trouble", kind.value, node)
            at_ms = 0
            while days:
                at_ms += 1 + dice.below(2 * days * MS_PER_DAY)  # evenly around the mean: few surprises in a short play
                if at_ms >= length_ms:
                    break
                low, high = _LENGTHS_MS[kind]
                mine.append(Incident(at_ms, at_ms + dice.between(low, high), node, kind, dice.below(gpus_per_node)))
        mine.sort(key=lambda incident: (incident.at_ms, incident.kind.value))
        free_ms = 10 * MS_PER_MINUTE  # the first minutes are quiet
        for incident in mine:
            if incident.at_ms >= free_ms:
                found.append(incident)
                free_ms = incident.until_ms + 10 * MS_PER_MINUTE
    found.sort(key=lambda incident: (incident.at_ms, incident.node))
    return found
