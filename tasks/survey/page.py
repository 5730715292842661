"""Renders a survey as a self-contained HTML file without scripts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tasks.report.render import render_page
from tasks.survey import describe

if TYPE_CHECKING:
    from tasks.survey.survey import Distribution, Survey

_WIDTH, _HEIGHT, _AXIS = 480.0, 150.0, 22.0
_TICKS = 5


def render(survey: Survey) -> str:
    """Render a survey; its content security policy allows no scripts and no requests."""
    kinds = (
        ("Codec", survey.codecs),
        ("Container", survey.containers),
        ("Size", survey.resolutions),
        ("Frames per second", survey.frame_rates),
    )
    sections = (
        ("overview", "Survey", True),
        ("figures", "Figures", True),
        ("kinds", "Kinds", True),
        ("tasks", "Tasks", bool(survey.groups)),
        ("failures", "Failures", bool(survey.failed)),
    )
    return render_page(
        "survey.html.jinja",
        scripts=(),
        survey=survey,
        sections=[(name, title) for name, title, is_there in sections if is_there],
        title=describe.title(survey),
        sentences=list(describe.headlines(survey)),
        amounts=list(describe.amount(survey)),
        histograms=[_histogram(each) for each in survey.distributions],
        kinds=kinds,
        width=_WIDTH,
        height=_HEIGHT,
        axis=_AXIS,
        clips=lambda estimate: describe.count(estimate) if estimate else "?",
    )


def _histogram(each: Distribution) -> dict[str, Any]:
    most, bins = max(*each.counts, 1), len(each.counts)
    step, shown = _WIDTH / bins, partial(describe.figure, unit=each.unit)
    bars = [
        {
            "x": number * step + 0.5,
            "y": _HEIGHT * (1 - count / most),
            "width": step - 1,
            "height": _HEIGHT * count / most,
            "label": f"{shown(each.edges[number])} to {shown(each.edges[number + 1])}: {count:,}",
        }
        for number, count in enumerate(each.counts)
    ]
    marks = [round(tick * bins / (_TICKS - 1)) for tick in range(_TICKS)]
    low, tenth, median, ninetieth, high = map(shown, each.quantiles)
    summary = f"From {low} to {high}; 10% {tenth}, median {median}, 90% {ninetieth}"
    return {
        "title": each.name,
        "bars": bars,
        "ticks": [(mark * step, shown(each.edges[mark])) for mark in marks],
        "summary": f"{summary}{'; logarithmic scale' if each.is_log else ''}.",
    }
