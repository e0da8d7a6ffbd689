"""What people read about a run's standing, and about a funded request that waits."""

from __future__ import annotations

from typing import Any

import pytest

from apportion.adapters.cli import jobs, queue, why

HOUR_MS = 3_600_000
AT_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


def running(standing: str, payer: str) -> dict[str, Any]:
    return {
        "state": "running", "reason": "above_allowance", "payer": payer, "standing": standing,
        "protected_until_ms": AT_MS + HOUR_MS,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("standing", "payer", "said"),
    [
        ("protected", "budget", "protected to 01-01 01:00, funded"),
        ("protected", "unfunded", "protected to 01-01 01:00, unfunded"),
        ("funded", "budget", "funded"),
        ("unfunded", "unfunded", "unfunded"),
    ],
)
def test_the_queue_says_how_a_run_stands(standing: str, payer: str, said: str) -> None:
    assert queue.standing_words(running(standing, payer)) == said
    assert queue.reason_words(running(standing, payer))["short"].startswith(said + ", ")
    assert jobs._standing(running(standing, payer)) == (
        f"{standing} to 01-01 01:00" if standing == "protected" else standing
    )


WAITS: dict[str, Any] = {
    "workload": "big", "principal": "ann", "gpus_milli": 8_000, "budget": "lab/b", "pool": "h100", "state": "pending",
    "reason": "no_free_gpus", "numbers": {"need_milli": 8_000, "free_milli": 1_000, "funded_since_ms": AT_MS},
    "funded_since_ms": AT_MS, "funded_wait_ms": 2 * HOUR_MS,
}  # fmt: skip


def test_the_longest_wait_of_a_funded_request_names_owner_and_reason() -> None:
    assert queue.longest_funded_wait(WAITS) == (
        "longest wait of a funded request: ann's big, 8 GPUs on lab/b, for 2h: "
        "fewer GPUs are free than it needs: it needs 8 GPUs, free 1 GPU"
    )
    assert queue.funded_wait(WAITS, AT_MS + HOUR_MS) == HOUR_MS
    assert queue.funded_wait({**WAITS, "funded_since_ms": None}, AT_MS) is None
    assert queue.funded_wait({**WAITS, "state": "running"}, AT_MS + HOUR_MS) is None


def test_why_says_since_when_a_request_is_owed_its_place() -> None:
    now = {"reason": "pending", "time_ms": AT_MS - HOUR_MS, "numbers": {"position": 1}}
    lines = why._now(WAITS, {"now": [now], "reason": [WAITS]}, AT_MS + 2 * HOUR_MS, None, None)

    assert lines[0] == "big: waits for 3h, 8 GPUs of lab/b in pool h100, number 1 in its budget's queue"
    assert lines[-1] == "  funded, and waiting at the head of its queue, for 2h (since 2026-01-01 00:00:00Z)"


def test_a_reason_that_is_only_repeated_stands_once() -> None:
    """Newest first, each spell with its beginning: a head that became funded meanwhile is no new reason."""
    told = [
        {"reason": reason, "time_ms": n, "numbers": {}}
        for n, reason in enumerate(["reserved", "no_block", "no_block", "held"])
    ]

    spells = why._spells(told[::-1])

    assert [(row["reason"], row["time_ms"]) for row in spells] == [("held", 3), ("no_block", 1), ("reserved", 0)]
