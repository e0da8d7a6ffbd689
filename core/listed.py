"""Many decisions of one kind as columns: their JSON without their structs, and each struct when somebody asks for it.

``Listed`` is given the kind and one column per field of it, in any order; a field without a column has its default in all of
them. A column is ``Numbers`` (an int64 above -2**63 each), ``Texts`` (one of a few, or of as many as there are decisions; of any
value that has JSON, -1 = the field's default), ``Places`` (the pieces of a placement) or ``Named`` (numbers by name). What is equal
to the default of its field is left out of the JSON, as ``omit_defaults`` says.

Naive equivalent: a list of structs, encoded. A pure function of the columns, which nobody may change afterwards. What reads stored
bytes back into the same columns is the same walk the other way round (``kernels.spelling``); who folds many decisions together
takes what they mean to the state from ``state.bulk``, whether they were made or read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from apportion.core.decided import Stretch
from apportion.core.decision import Decision
from apportion.core.decisions import Piece
from apportion.core.envelope import encode, encode_lines
from apportion.core.kernels import spelling

I64 = NDArray[np.int64]
D = TypeVar("D", bound=Decision, covariant=True)
NOTHING = np.zeros(1, dtype=np.int64)
LINE_END = 10
CELLED = (spelling.NUMBER, spelling.TEXT, spelling.NAMED)  # steps that have a column of cells


class Numbers:
    """A number per decision."""

    def __init__(self, values: I64) -> None:
        self.values = values

    def told(self, _default: Any) -> list[Any]:
        """Return the values of the field."""
        told: list[Any] = self.values.tolist()
        return told


class Texts:
    """One of ``values`` per decision, by its number; without numbers each has its own."""

    def __init__(self, values: Sequence[Any], codes: I64 | None = None) -> None:
        self.values, self.codes = values, np.arange(len(values), dtype=np.int64) if codes is None else codes

    def told(self, default: Any) -> list[Any]:
        """Return the values of the field."""
        return [self.values[code] if code >= 0 else default for code in self.codes.tolist()]


class Named:
    """Numbers by name: ``table`` is names x decisions, ``spelling.ABSENT`` where one has no such number."""

    def __init__(self, names: Sequence[str], table: I64) -> None:
        order = sorted(range(len(names)), key=lambda at: names[at])
        self.names, self.table = [names[at] for at in order], table[order]

    def told(self, _default: Any) -> list[Any]:
        """Return the values of the field."""
        rows = zip(*(row.tolist() for row in self.table), strict=True)
        return [{name: value for name, value in zip(self.names, row, strict=True) if value != spelling.ABSENT} for row in rows]


class Places:
    """Pieces: decision d has those from ``first[d]`` to ``first[d + 1]``, piece p the GPUs of a node from ``first_gpu[p]`` on."""

    def __init__(self, first: I64, nodes: Texts, first_gpu: I64, gpus: I64, each: I64) -> None:
        self.first, self.nodes, self.first_gpu, self.gpus, self.each = first, nodes, first_gpu, gpus, each

    def told(self, _default: Any) -> list[Any]:
        """Return the values of the field."""
        gpus, begins, first = self.gpus.tolist(), self.first_gpu.tolist(), self.first.tolist()
        pieces = [
            Piece(node, tuple(gpus[begin:end]), milli)
            for node, (begin, end), milli in zip(self.nodes.told(""), pairwise(begins), self.each.tolist(), strict=True)
        ]
        return [tuple(pieces[begin:end]) for begin, end in pairwise(first)]


Column = Numbers | Texts | Named | Places


def texts_of(rows: I64, used: int, texts: Callable[[I64], list[Any]]) -> Texts:
    """Return the texts of ``rows``, all below ``used``; ``texts`` is asked once, for each of them once."""
    seen, codes = np.zeros(used, dtype=np.bool_), np.empty(used, dtype=np.int64)
    seen[rows] = True
    distinct = np.flatnonzero(seen)
    codes[distinct] = np.arange(len(distinct))
    return Texts(texts(distinct), codes[rows])


class Listed(Stretch[D]):
    """Decisions of one kind."""

    def __init__(self, kind: type[D], count: int, columns: dict[str, Column]) -> None:
        self._kind, self._count, self._columns = kind, count, columns
        self._made: list[D] | None = None

    def __len__(self) -> int:
        """Return how many decisions there are."""
        return self._count

    @overload
    def __getitem__(self, index: int) -> D: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[D]: ...
    def __getitem__(self, index: int | slice) -> D | Sequence[D]:
        """Return one decision, or several."""
        return self._structs()[index]

    def __iter__(self) -> Iterator[D]:
        """Walk over the decisions."""
        return iter(self._structs())

    def _structs(self) -> list[D]:
        """Return the structs: of all at once, since who asks for one asks for the next."""
        if self._made is None:
            defaults, kind = _defaults(self._kind), self._kind
            told = [column.told(defaults.get(name)) for name, column in self._columns.items()]
            names = tuple(self._columns)
            self._made = [kind(**dict(zip(names, values, strict=True))) for values in zip(*told, strict=True)]
        return self._made

    def encoded(self) -> bytes:
        """Return the JSON of the decisions with commas between."""
        page = _Page()
        for field in self._kind.__struct_fields__:
            if field in self._columns:
                page.add(field, self._columns[field], _defaults(self._kind).get(field, msgspec.NODEFAULT))
        return page.spelled(encode(self._kind.__struct_config__.tag), self._count)


@cache
def _defaults(kind: type[Decision]) -> dict[str, Any]:
    """Return the defaults of the fields that have one."""
    told = {field.name: field for field in msgspec.structs.fields(kind)}
    return {
        name: field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        for name, field in told.items()
        if not field.required
    }


class _Page:
    """What the kernel asks for, gathered column by column."""

    def __init__(self) -> None:
        self._steps, self._literals, self._cells, self._texts = list[tuple[int, ...]](), bytearray(), list[I64](), list[Any]()
        self._places = spelling.Pieces(*(NOTHING,) * 5)
        self._room = 0  # bytes, beside the texts

    def add(self, field: str, column: Column, default: Any) -> None:
        """Write a field of every decision, unless it is its default there."""
        literal = b',%b:' % encode(field)
        if isinstance(column, Numbers):
            self._step(spelling.NUMBER, literal, column.values, spelling.ABSENT if default is msgspec.NODEFAULT else default)
        elif isinstance(column, Texts):
            self._step(spelling.TEXT, literal, self._coded(column, default), -1)
        elif isinstance(column, Named):
            self._step(spelling.OPEN, literal + b"{")
            for name, numbers in zip(column.names, column.table, strict=True):
                self._step(spelling.NAMED, b"%b:" % encode(name), numbers, spelling.ABSENT)
            self._step(spelling.CLOSE, b"")
        else:
            self._step(spelling.PIECES, literal, left_out=spelling.ABSENT if default is msgspec.NODEFAULT else 0)
            codes = self._coded(column.nodes, None)
            self._places = spelling.Pieces(column.first, codes, column.first_gpu, column.gpus, column.each)

    def _step(self, kind: int, literal: bytes, cells: I64 | None = None, left_out: int = 0) -> None:
        begin, column = len(self._literals), len(self._cells)
        self._literals += literal
        if cells is not None:
            self._cells.append(cells)
        self._steps.append((kind, begin, len(self._literals), column, left_out))

    def _coded(self, column: Texts, default: Any) -> I64:
        """Take the texts in; returns their numbers among all, -1 where one is the default."""
        base, codes = len(self._texts), column.codes
        self._texts += column.values
        if default is not msgspec.NODEFAULT and default is not None:
            same = np.array([value == default for value in column.values], dtype=np.bool_)
            if same.any():
                codes = np.where((codes >= 0) & ~same[codes], codes, -1)
        return np.where(codes >= 0, codes + base, -1)

    def spelled(self, tag: bytes, count: int) -> bytes:
        """Return the JSON of ``count`` decisions of this tag."""
        head = b'{"type":' + tag
        texts = np.frombuffer(encode_lines(self._texts), dtype=np.uint8)
        first = np.concatenate((NOTHING, np.flatnonzero(texts == LINE_END) + 1))
        cells = np.array(self._cells, dtype=np.int64).reshape(len(self._cells), count)
        room = count * (len(head) + len(self._literals) + len(self._steps) * spelling.NUMBER_BYTES + len("[]},"))
        sizes, pieces = np.diff(first), self._places
        for (kind, *_), codes in zip((step for step in self._steps if step[0] in CELLED), cells, strict=True):
            if kind == spelling.TEXT:
                room += int(sizes[codes[codes >= 0]].sum())
        if len(sizes):
            room += int(sizes[pieces.node].sum())
        room += len(pieces.node) * spelling.PIECE_BYTES + len(pieces.gpus) * (1 + spelling.NUMBER_BYTES)
        out = np.empty(room, dtype=np.uint8)
        steps = np.array(self._steps, dtype=np.int64).reshape(len(self._steps), 5)
        literals, heads = (np.frombuffer(bytes(text), dtype=np.uint8) for text in (self._literals, head))
        end = spelling.spell(heads, steps, literals, cells, texts, first, pieces, out)
        return out[:end].tobytes()
