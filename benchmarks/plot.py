"""Line charts with logarithmic axes, as SVG."""

from __future__ import annotations

import math
from html import escape
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_WIDTH, _HEIGHT, _LEFT, _TOP, _LEGEND = 420, 280, 70, 40, 330
_COLOURS = (
    *("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377"),
    *("#777777", "#000000", "#994455", "#44aa99", "#ff8800", "#8855cc"),
)


class Panel(NamedTuple):
    """One chart: a title with the unit, and named lines of points (x in the unit `across`, y > 0)."""

    title: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    across: str = "s"


def draw(panels: Sequence[Panel]) -> str:
    """Draw charts one below the other; a name has the same colour in all of them."""
    height = _HEIGHT + 2 * _TOP
    names = dict.fromkeys(name for panel in panels for name in panel.lines)
    colours = dict(zip(names, cycle(_COLOURS), strict=False))
    body = "".join(
        f'<g transform="translate(0 {number * height})">{_draw_panel(panel, colours)}</g>'
        for number, panel in enumerate(panels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + _LEGEND}" height="{height * len(panels)}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>{body}</svg>\n'
    )


def _draw_panel(panel: Panel, colours: Mapping[str, str]) -> str:
    points = [point for line in panel.lines.values() for point in line]
    across = _Axis.over([length for length, _ in points], _WIDTH)
    up = _Axis.over([value for _, value in points], _HEIGHT)
    parts = [f'<text x="{_LEFT}" y="{_TOP - 15}" font-weight="bold">{escape(panel.title)}</text>']
    for value in up.decades():
        y = _TOP + _HEIGHT - up.place(value)
        parts.append(f'<path d="M{_LEFT} {y:.1f}h{_WIDTH}" stroke="#dddddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:,g}</text>')
    for length in sorted({length for length, _ in points}):
        x = _LEFT + across.place(length)
        parts.append(
            f'<text x="{x:.1f}" y="{_TOP + _HEIGHT + 18}" text-anchor="middle">{length:,.10g} {panel.across}</text>'
        )
    for number, (name, line) in enumerate(panel.lines.items()):
        places = [(_LEFT + across.place(length), _TOP + _HEIGHT - up.place(value)) for length, value in line]
        parts.append(_draw_line(name, places, colours[name], _TOP + 14 * number))
    return "".join(parts)


def _draw_line(name: str, places: Sequence[tuple[float, float]], colour: str, y: float) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places)
    label = f'<text x="{_LEFT + _WIDTH + 20}" y="{y}" fill="{colour}">{escape(name)}</text>'
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>{dots}{label}'


class _Axis(NamedTuple):
    low: float
    high: float
    length_px: float

    @classmethod
    def over(cls, values: Iterable[float], length_px: float) -> _Axis:
        """Span full decades around the values."""
        logs = [math.log10(value) for value in values]
        low = math.floor(min(logs))
        return cls(low, max(low + 1, math.ceil(max(logs))), length_px)

    def place(self, value: float) -> float:
        return (math.log10(value) - self.low) / (self.high - self.low) * self.length_px

    def decades(self) -> list[float]:
        return [10.0**power for power in range(int(self.low), int(self.high) + 1)]
