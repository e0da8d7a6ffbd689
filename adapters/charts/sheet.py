"""What the pictures of steps share: a document with its words, and panels in which a time and a value have their place.

Pure functions of their arguments, in whole tenths of a pixel: equal calls give equal bytes. Nothing here knows what is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

LABEL_GAP = 6  # between a value's label and the panel
INSTANT_BELOW = 18  # an instant's label, below the panel


class Style(NamedTuple):
    """The colours of a picture by name, for light and for dark readers, and the rules that use them."""

    light: str
    dark: str
    rules: str

    def text(self) -> str:
        """Return the style sheet: ink and grid are the same in all pictures."""
        return (
            f"svg{{font:12px system-ui,sans-serif;--ink:#222;--grid:#8884;{self.light}}}"
            f"@media (prefers-color-scheme:dark){{svg{{--ink:#ddd;{self.dark}}}}}"
            f"text{{fill:var(--ink)}}.grid{{stroke:var(--grid)}}{self.rules}"
        )


def document(width: int, height: int, left: int, style: Style, heads: tuple[str, str], words: str, parts: Iterable[str]) -> str:
    """Return the picture: title and line below it (``heads``), ``words`` for who cannot see it, and its parts."""
    title, below = (escape(head) for head in heads)
    drawn = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="t d">\n'
        f'<title id="t">{title}</title>\n<desc id="d">{escape(words)}</desc>\n<style>{style.text()}</style>\n'
        f'<text x="{left}" y="18" font-size="14" font-weight="600">{title}</text>\n'
        f'<text x="{left}" y="36">{below}</text>\n{drawn}\n</svg>\n'
    )


class Box(NamedTuple):
    """Where a panel is on the sheet, in pixels."""

    left: int
    right: int
    top: int
    bottom: int


class Panel:
    """A span of time, or of steps, from left to right, and values from 0 up; what is beyond is drawn at the edge."""

    def __init__(self, box: Box, first: int, span: int, most: int) -> None:
        self.box, self.first, self.span, self.most = box, first, max(1, span), max(1, most)

    def x(self, at: int) -> str:
        """Return where an instant is."""
        return tenths(self.box.left * 10 + (at - self.first) * (self.box.right - self.box.left) * 10 // self.span)

    def y(self, value: int) -> str:
        """Return where a value is."""
        inside = min(max(value, 0), self.most)
        return tenths(self.box.bottom * 10 - inside * (self.box.bottom - self.box.top) * 10 // self.most)

    def grid(self, marks: Iterable[tuple[int, str]]) -> str:
        """Return a line for each value, and its label."""
        return "\n".join(
            f'<line class="grid" x1="{self.box.left}" x2="{self.box.right}" y1="{self.y(value)}" y2="{self.y(value)}"/>'
            f'<text x="{self.box.left - LABEL_GAP}" y="{self.y(value)}" dy="4" text-anchor="end">{escape(label)}</text>'
            for value, label in marks
        )

    def instants(self, marks: Iterable[tuple[int, str]]) -> str:
        """Return the labels of instants, below the panel."""
        return "\n".join(f'<text x="{self.x(at)}" y="{self.box.bottom + INSTANT_BELOW}">{label}</text>' for at, label in marks)

    def bars(self, css: str, bars: Iterable[tuple[int, int, int]]) -> str:
        """Return a bar for each (from, until, value)."""
        return "\n".join(
            f'<path class="{css}" d="M{self.x(start)} {self.y(0)}V{self.y(value)}H{self.x(end)}V{self.y(0)}Z"/>'
            for start, end, value in bars
        )

    def line(self, css: str, points: Iterable[tuple[int, int]]) -> str:
        """Return a line through (instant, value)."""
        return f'<polyline class="{css}" points="{self._through(points)}"/>'

    def area(self, css: str, points: Sequence[tuple[int, int]]) -> str:
        """Return what lies below a line."""
        closed = [(points[0][0], 0), *points, (points[-1][0], 0)]
        return f'<polygon class="{css}" points="{self._through(closed)}"/>'

    def _through(self, points: Iterable[tuple[int, int]]) -> str:
        return " ".join(f"{self.x(at)},{self.y(value)}" for at, value in points)


def steps(starts: Iterable[int], step: int, values: Iterable[int]) -> list[tuple[int, int]]:
    """Return the points of a line that keeps each value for one ``step``."""
    return [point for at, value in zip(starts, values, strict=True) for point in ((at, value), (at + step, value))]


def tenths(count: int) -> str:
    """Return a number of tenths."""
    return f"{count // 10}.{count % 10}"
