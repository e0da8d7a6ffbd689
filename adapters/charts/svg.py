"""A small writer of SVG: lines, areas, texts, in whole tenths of a pixel. It knows no data and decides nothing.

Equal calls give equal bytes. Colours follow the reader's light or dark scheme through the style sheet of the picture itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from xml.sax.saxutils import escape, quoteattr

Point = tuple[float, float]
Anchor = Literal["start", "middle", "end"]

# distinguishable for colour-blind readers (Okabe and Ito), in order of use
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#8c6d31")
REST = "#9a9a9a"
_STYLE = (
    "text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;font-size:12px;fill:#333}"
    ".title{font-size:16px;font-weight:600;fill:#111}.panel{font-size:13px;font-weight:600;fill:#111}.note{fill:#666;font-size:11px}"
    ".grid{stroke:#e3e3e3;stroke-width:1}.axis{stroke:#888;stroke-width:1}.back{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#ccc}.title,.panel{fill:#eee}.note{fill:#999}.grid{stroke:#333}.back{fill:#161616}}"
)


def _number(value: float) -> str:
    text = f"{value:.1f}"
    return text.removesuffix(".0")


class Picture:
    """One picture; elements are drawn in the order in which they are added."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self._parts: list[str] = []

    def line(self, a: Point, b: Point, css: str = "axis") -> None:
        """A straight line of one of the style sheet's classes."""
        places = f'x1="{_number(a[0])}" y1="{_number(a[1])}" x2="{_number(b[0])}" y2="{_number(b[1])}"'
        self._parts.append(f'<line class="{css}" {places}/>')

    def curve(self, points: Sequence[Point], colour: str, *, width: float = 2, dash: str = "") -> None:
        """A line through points; nothing for less than two."""
        if len(points) < 2:
            return
        places = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(
            f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{_number(width)}" '
            f'stroke-linejoin="round" stroke-linecap="round"{dashed}/>'
        )

    def text(self, at: Point, words: str, *, anchor: Anchor = "start", css: str = "", turned: bool = False) -> None:
        """A line of text; ``turned`` reads from below to above."""
        turn = f' transform="rotate(-90 {_number(at[0])} {_number(at[1])})"' if turned else ""
        style = f' class="{css}"' if css else ""
        self._parts.append(
            f'<text x="{_number(at[0])}" y="{_number(at[1])}" text-anchor="{anchor}"{style}{turn}>{escape(words)}</text>'
        )

    def render(self) -> str:
        """Return the picture as a document."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" role="img" aria-label={quoteattr(self.title)}>'
        )
        back = f'<rect class="back" width="{self.width}" height="{self.height}"/>'
        return "\n".join([head, f"<style>{_STYLE}</style>", back, *self._parts, "</svg>"]) + "\n"
