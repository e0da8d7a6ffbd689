"""Rows that are found later: whoever asks gets what the table has then, whatever was listed or taken out meanwhile."""

from __future__ import annotations

from apportion.core.state.rows import Rows


def test_what_is_found_later_is_found_when_somebody_asks() -> None:
    rows, table, asked = Rows(), [1, 2], list[int]()
    rows.add_all([7, 8])

    def find() -> list[int]:
        asked.append(1)
        return list(table)

    rows.find_later(find)
    rows.add(9)
    rows.add_all([9, 10])
    rows.discard(2)
    rows.discard_all([1, 2])
    table.append(3)

    assert not asked
    assert (list(rows), len(rows), list(rows)) == ([1, 2, 3], 3, [1, 2, 3])
    rows.discard(1)
    rows.add(4)
    assert (list(rows), len(asked)) == ([2, 3, 4], 1)


def test_who_takes_out_all_has_nothing_found_later() -> None:
    rows = Rows()
    rows.find_later(lambda: [1])
    rows.clear()

    assert list(rows) == []
