"""The page of a statement: whole, self-contained, accessible, and safe whatever people write into reasons and names."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

from apportion.adapters.statements.page import page
from apportion.adapters.statements.statement import Statement

HOUR_US = 3_600_000_000
DAY_MS = 86_400_000
START_MS = 20_454 * DAY_MS
VOID = {"meta"}


class Reader(HTMLParser):
    """Reads a page: its tags must close in order; keeps its cells and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def line(**more: Any) -> dict[str, Any]:
    amounts = ("funded", "unfunded", "refunded", "unfunded_refunded", "credit", "debit", "balance")
    empty = dict.fromkeys(
        (
            "workload",
            "run",
            "name",
            "budget",
            "gpus_milli",
            "start_ms",
            "end_ms",
            "from_ms",
            "to_ms",
            "outcome",
            "other",
        )
    )
    return {
        "booked_ms": START_MS, "kind": "grant", "user": "ops", "reason": "", "seq": 1, **empty,
        **{f"{name}_gpu_us": 0 for name in amounts}, **more,
    }  # fmt: skip


def sample() -> Statement:
    run = {
        "kind": "run", "workload": "w-1", "run": 2, "name": "<b>bold & co</b>", "user": "ann", "gpus_milli": 4_000,
        "start_ms": START_MS - DAY_MS, "end_ms": START_MS + 3_600_000, "from_ms": START_MS, "to_ms": START_MS + 3_600_000,
    }  # fmt: skip
    lines = [
        line(credit_gpu_us=10 * HOUR_US, balance_gpu_us=10 * HOUR_US, reason="<script>alert(1)</script>"),
        line(**run, funded_gpu_us=4 * HOUR_US, debit_gpu_us=4 * HOUR_US, balance_gpu_us=6 * HOUR_US),
    ]
    return Statement(
        "lab/a", "h100", START_MS, START_MS + DAY_MS, START_MS + DAY_MS, True, START_MS, 0, 6 * HOUR_US, lines
    )


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    return reader


def test_the_page_says_what_the_statement_says() -> None:
    rows = read(page([sample()], "as of seq 9")).rows

    assert rows[0] == ["What", "User", "From", "To", "GPUs", "Funded", "Unfunded", "In or out", "Balance"]
    assert [row[0] for row in rows[1:]] == [
        "Opening", "grant: <script>alert(1)</script>", "w-1 run 2 (<b>bold & co</b>): began before, 1h in this period", "Closing",
    ]  # fmt: skip
    assert [row[-1] for row in rows[1:]] == ["0.0", "10.0", "6.0", "6.0"]
    assert rows[2][-2] == "10.0"
    assert rows[3][4:6] == ["4", "4.0"]


def test_the_page_fetches_nothing_and_runs_nothing() -> None:
    text = page([sample(), sample()], "as of seq 9")
    tags = {tag for tag, _attributes in read(text).seen}

    assert not tags & {"script", "b", "img", "link", "iframe", "object"}
    assert not re.search(r"url\(|@import|https?:|\bon\w+=|javascript:", text)
    assert "@media print" in text


def test_the_page_can_be_read_aloud() -> None:
    seen = read(page([sample()], "as of seq 9")).seen
    attributes = [found for tag, found in seen if tag == "th"]

    assert dict(seen)["html"] == {"lang": "en"}
    assert {"title", "main", "h1", "caption", "thead", "tbody"} <= {tag for tag, _found in seen}
    assert attributes
    assert all(found.get("scope") in ("col", "row") for found in attributes)
