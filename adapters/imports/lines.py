r"""The lines of a file, plain or gzip, numbered from 1; bytes that are no UTF-8 stay visible as ``\xNN``; a leading mark is none.

Decides where a line ends and what is too long to be one. A pure function of the file; ``seen`` hears how many of its bytes were
read, for a progress bar. A compressed file that breaks off is told with the line at which it does, after all lines before it.
"""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from apportion.adapters.imports.attempt import BadFile, Passed, Read, Refusal, Unread

MAX_LINE_BYTES = 1 << 20
SEEN_EVERY = 2_000
Seen = Callable[[int], None]


class Line(NamedTuple):
    """One line without its end; ``broken`` says why it cannot be read."""

    number: int
    text: str
    broken: str = ""


def size_of(path: Path) -> int:
    """Return the bytes of the file as it lies on the disk; raises ``BadFile`` when it cannot be read."""
    try:
        return path.stat().st_size
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror or error}; name a file that can be read") from None


def lines_of(path: Path, seen: Seen | None = None) -> Iterator[Line]:
    """Yield every line. Raises ``BadFile`` when the file cannot be opened."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            opened: IO[bytes] = gzip.GzipFile(fileobj=raw) if packed else raw  # type: ignore[assignment]  # it reads like a file
            yield from _numbered(opened, raw, seen)
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror or error}; name a file that can be read") from None


def _numbered(opened: IO[bytes], raw: IO[bytes], seen: Seen | None) -> Iterator[Line]:
    number = 0
    while True:
        try:
            body = opened.readline(MAX_LINE_BYTES + 1)
            long = len(body) > MAX_LINE_BYTES
            rest = body
            while long and rest and not rest.endswith(b"\n"):
                rest = opened.readline(MAX_LINE_BYTES)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            yield Line(number + 1, "", f"the compressed file breaks off here ({error}); get it again")
            return
        if not body:
            return
        number += 1
        if seen is not None and number % SEEN_EVERY == 0:
            seen(raw.tell())
        if long:
            yield Line(number, "", f"it is longer than {MAX_LINE_BYTES:,} bytes")
        else:
            text = body.removeprefix(codecs.BOM_UTF8) if number == 1 else body
            yield Line(number, text.rstrip(b"\r\n").decode("utf-8", "backslashreplace"))


def read_each(lines: Iterable[Line], understood: Callable[[Line], Read]) -> Iterator[Read]:
    """Yield what each line is: one that cannot be read or is empty is told alike in all formats, ``understood`` tells of the rest.

    ``understood`` raises ``Unread`` for a line that its format does not have, ``BadFile`` when there is no sense in going on.
    """
    for line in lines:
        if line.broken:
            yield Refusal(line.number, line.broken)
        elif not line.text.strip():
            yield Passed(line.number, "empty line")
        else:
            try:
                yield understood(line)
            except Unread as error:
                yield Refusal(line.number, str(error))
