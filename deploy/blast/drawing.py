"""Lines and axes as SVG, without a library: a panel turns values into places, and draws on itself. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

GRID, INK = "#d9dde3", "#3a4250"
TICK_PX, LABEL_PX = 11, 12
CHARACTER_PX = 6.5
NAME_LINES = 8
_STEPS = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class Panel:
    """A rectangle of the picture, in pixels, and the values at its edges. is_log: of y, whose least is above 0 then."""

    left: float
    top: float
    width: float
    height: float
    x_most: float
    y_least: float
    y_most: float
    is_log: bool = False

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def x(self, value: float) -> float:
        return self.left + self.width * min(max(value / self.x_most, 0.0), 1.0)

    def y(self, value: float) -> float:
        """Values beyond an edge are drawn on it."""
        value = min(max(value, self.y_least), self.y_most)
        if self.is_log:
            share = math.log(value / self.y_least) / math.log(self.y_most / self.y_least)
        else:
            share = (value - self.y_least) / (self.y_most - self.y_least)
        return self.bottom - self.height * share

    def axes(self, title: str, x_name: str) -> str:
        """Title, grid, numbers."""
        parts = [text(self.left, self.top - 10, title, size=LABEL_PX + 1, bold=True)]
        for value in self._y_ticks():
            at = self.y(value)
            parts.append(line(self.left, at, self.left + self.width, at, GRID))
            parts.append(text(self.left - 8, at + 4, shown(value), anchor="end"))
        for value in ticks(self.x_most):
            at = self.x(value)
            parts.append(line(at, self.top, at, self.bottom, GRID))
            parts.append(text(at, self.bottom + 16, shown(value), anchor="middle"))
        parts.append(text(self.left + self.width, self.bottom + 32, x_name, anchor="end"))
        return "".join(parts)

    def curve(self, points: Sequence[tuple[float, float]], color: str, width: float = 1.5) -> str:
        """A line through the points."""
        if not points:
            return ""
        places = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        return f'<polyline points="{places}" fill="none" stroke="{color}" stroke-width="{width:g}"/>'

    def level(self, value: float, words: str, color: str) -> str:
        """A dashed line across at this height, with its name at the right."""
        at = self.y(value)
        dashed = line(self.left, at, self.left + self.width, at, color, dashes="6 4")
        return dashed + text(self.left + self.width + 6, at + 4, words, color=color)

    def moment(self, value: float, color: str) -> str:
        """A line from top to bottom."""
        return line(self.x(value), self.top, self.x(value), self.bottom, color, dashes="2 3")

    def names(self, moments: Sequence[tuple[float, str]], color: str) -> str:
        """Of moments, in the order of time: one that would lie on another's name is a line lower."""
        parts, taken = [], [0.0] * NAME_LINES
        for value, words in moments:
            at = self.x(value)
            free = next((row for row, end in enumerate(taken) if end <= at), taken.index(min(taken)))
            taken[free] = at + CHARACTER_PX * len(words) + 8
            parts.append(text(at + 3, self.top + 12 + free * (TICK_PX + 2), words, color=color))
        return "".join(parts)

    def _y_ticks(self) -> list[float]:
        if not self.is_log:
            return ticks(self.y_most)
        first, last = round(math.log10(self.y_least)), round(math.log10(self.y_most))
        return [10.0**power for power in range(first, last + 1)]


def ticks(most: float, count: int = 8) -> list[float]:
    """Round numbers from 0 to `most`, about so many."""
    rough = max(most, 1e-9) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((power * factor for factor in _STEPS if power * factor >= rough), power * 10)
    return [number * step for number in range(int(most / step + 1e-9) + 1)]


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 or value == 0 else f"{value:g}"


def line(x1: float, y1: float, x2: float, y2: float, color: str, dashes: str = "") -> str:
    pattern = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"{pattern}/>'


def text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "start",
    size: int = TICK_PX,
    bold: bool = False,
    color: str = INK,
    more: str = "",
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{size}" fill="{color}"{weight} {more}>{escape(words)}</text>'


def legend(left: float, top: float, names: Iterable[tuple[str, str]]) -> str:
    """(name, color) side by side."""
    parts, at = [], left
    for name, color in names:
        parts.append(f'<rect x="{at:.1f}" y="{top - 9:.1f}" width="16" height="4" fill="{color}"/>')
        parts.append(text(at + 22, top - 2, name))
        at += 40 + 7 * len(name)
    return "".join(parts)


def picture(width: int, height: int, parts: Iterable[str]) -> str:
    """The whole file."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    back = f'<rect width="{width}" height="{height}" fill="white"/>'
    return f'{head} font-family="system-ui, DejaVu Sans, sans-serif">{back}{"".join(parts)}</svg>\n'
