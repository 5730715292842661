"""Accuracy by cost, as SVG: a point with its interval for each candidate, a line for each escalation."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

from benchmarks.trade.candidates import AUTO, DENSE, KEYFRAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.trade.report import Trade
    from tasks.evaluation.route import RoutingPoint
    from tasks.evaluation.scores import Proportion

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BELOW = 560, 300, 60, 130, 46, 44
_LABEL_PX, _LETTER_PX = 13, 6.4
_STYLE = "<style>text { paint-order: stroke; stroke: white; stroke-width: 3px }</style>"  # readable over lines
_COLOURS = {DENSE: "#222222", "uniform": "#4477aa", KEYFRAMES: "#cc6611", AUTO: "#228833"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axes:
    """Maps costs, on a logarithmic axis, and accuracies, on a linear one, to positions."""

    least: float
    most: float
    lowest: float

    def x(self, cost: float) -> float:
        return _LEFT + _WIDTH * math.log(cost / self.least) / math.log(self.most / self.least)

    def y(self, accuracy: float) -> float:
        return _TOP + _HEIGHT * (1 - accuracy) / (1 - self.lowest)

    def costs(self) -> Iterator[float]:
        """Yield round numbers: 1, 2 and 5 of each decade."""
        for power in range(math.floor(math.log10(self.least)), math.ceil(math.log10(self.most)) + 1):
            yield from (each for step in (1, 2, 5) if self.least <= (each := step * 10.0**power) <= self.most)


@dataclass(slots=True)
class _Labels:
    """Labels of points, moved down where they would overlap."""

    placed: list[tuple[float, float, float]] = field(default_factory=list)

    def add(self, text: str, x: float, y: float, colour: str) -> str:
        left, right, at = x + 9, x + 9 + _LETTER_PX * len(text), y - 5
        while any(left < end and start < right and abs(at - y) < _LABEL_PX for start, end, y in self.placed):
            at += 2
        self.placed.append((left, right, at))
        leader = f'<path d="M{x:.1f} {y:.1f}L{left - 2:.1f} {at - 4:.1f}" stroke="{colour}" stroke-width="0.6"/>'
        return f'{leader}<text x="{left:.1f}" y="{at:.1f}" fill="{colour}">{escape(text)}</text>'


def draw(trade: Trade) -> str:
    """Draw accuracy by frames decoded, and by seconds."""
    panels = (
        _panel(trade, "frames decoded", trade.frames_decoded, lambda point: point.frames_decoded),
        _panel(trade, "seconds of decoding and of the engine", trade.seconds, lambda point: point.seconds),
    )
    height = _TOP + _HEIGHT + _BELOW
    body = "".join(f'<g transform="translate(0 {row * height})">{panel}</g>' for row, panel in enumerate(panels))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + _RIGHT}" height="{height * len(panels)}" '
        f'font-family="sans-serif" font-size="12">{_STYLE}<rect width="100%" height="100%" fill="white"/>{body}</svg>\n'
    )


def _panel(
    trade: Trade, title: str, cost_of: Callable[[str], float], point_cost: Callable[[RoutingPoint], float]
) -> str:
    shares = {spec.name: spec.accuracy for spec in trade.evaluation.specs if spec.accuracy}
    costs = [cost_of(name) for name in shares]
    costs += [point_cost(point) for curve in trade.curves.values() for point in curve]
    lowest = math.floor(min(share.low for share in shares.values()) * 20) / 20
    axes = _Axes(least=min(costs) * 0.9, most=max(costs) * 1.1, lowest=lowest)
    labels = _Labels()
    lines = (
        _line([(axes.x(point_cost(point)), axes.y(point.accuracy)) for point in curve], _colour(first))
        for first, curve in trade.curves.items()
    )
    names = sorted(shares, key=cost_of)
    points = (_point(axes, name, cost_of(name), shares[name], labels) for name in names)
    return "".join([_grid(axes, f"Accuracy, with 95% intervals, by {title}"), *lines, *points])


def _grid(axes: _Axes, title: str) -> str:
    parts = [f'<text x="{_LEFT}" y="{_TOP - 20}" font-weight="bold" font-size="13">{escape(title)}</text>']
    for step in range(round((1 - axes.lowest) * 20) + 1):
        y = axes.y(1 - step / 20)
        parts.append(f'<path d="M{_LEFT} {y:.1f}h{_WIDTH}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{1 - step / 20:.2f}</text>')
    for cost in axes.costs():
        x = axes.x(cost)
        parts.append(f'<path d="M{x:.1f} {_TOP}v{_HEIGHT}" stroke="#f0f0f0"/>')
        parts.append(f'<text x="{x:.1f}" y="{_TOP + _HEIGHT + 18}" text-anchor="middle">{cost:,g}</text>')
    return "".join(parts)


def _line(places: list[tuple[float, float]], colour: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-opacity="0.55"/>'


def _point(axes: _Axes, name: str, cost: float, share: Proportion, labels: _Labels) -> str:
    x, y, colour = axes.x(cost), axes.y(share.value), _colour(name)
    whisker = f'<path d="M{x:.1f} {axes.y(share.low):.1f}V{axes.y(share.high):.1f}" stroke="{colour}"/>'
    return f'{whisker}<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>{labels.add(name, x, y, colour)}'


def _colour(candidate: str) -> str:
    return next(colour for name, colour in _COLOURS.items() if candidate.startswith(name))
