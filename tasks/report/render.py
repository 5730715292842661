"""Renders self-contained pages: escaped texts, scripts by hash, as many cards and frames as fit."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import shlex
from contextvars import ContextVar
from datetime import UTC
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from reelabel.text import escape_controls, pluralize
from tasks.evaluation.scores import format_p_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

# Maximum bytes of a page, the bytes reserved for frames, and the maximum for frames.
MAX_BYTES = 3_000_000
_LEAST_FRAME_BYTES, _MOST_FRAME_BYTES = 1_000_000, 2_000_000
# Maximum characters of a text; the later limits apply to pages with many long ones.
TEXT_LIMITS = (2_000, 400, 80)
LEVELS = len(TEXT_LIMITS)
_NOTE_BYTES = 10_000
_MOST_TICKS = 8
NO_ROOM = "Its frames did not fit into this report."
_CARDS = Markup("<!--cards-->")
_SAME_FRAMES = Markup('<p class="note" data-same="{}">The same frames as those of <a href="#{}">{}</a>.</p>')
_NO_FRAMES = Markup('<p class="note">{}</p>').format(NO_ROOM)
_FRAMES = re.compile(r"<!--frames (\d+)-->")
_limit: ContextVar[int] = ContextVar("limit", default=TEXT_LIMITS[0])
_MINUTE_S, _HOUR_S = 60, 3600
# From here on, tenths of a millisecond are noise.
_WHOLE_FROM_MS = 1000
_LEAST_SHARE = 0.001
_TICK_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400)


@cache
def environment() -> Environment:
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown_text,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(read),
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "ensure_ascii": False}
    environment.globals |= {"at": _at, "time_ticks": _time_ticks, "count_ticks": _count_ticks}
    environment.filters |= {
        "count": lambda number: f"{number:,}",
        "counted": pluralize,
        "percent": _percent,
        "duration": duration,
        "clock": clock,
        "p_value": format_p_value,
        "ms": lambda ms: f"{ms:,.1f}" if ms < _WHOLE_FROM_MS else f"{ms:,.0f}",
        "moment": lambda at: f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
        "points": lambda share: f"{share * 100:+.1f}",
        "interval": lambda found: f"{found.low:.1%} to {found.high:.1%}",
        "interval_points": lambda found: f"{found.low * 100:+.1f} to {found.high * 100:+.1f}",
        "value": lambda value: "none" if value is None else str(value),
        "uncut": _uncut,
        "short": _short,
        "quoted": lambda text: shlex.quote(escape_controls(text)),
        "job_link": lambda job_id, shown: (
            Markup('<a href="#{}">{}</a>').format(_anchor(job_id), _uncut(job_id))
            if job_id in shown
            else _uncut(job_id)
        ),
    }
    return environment


def render(template: str, **values: Any) -> Markup:  # noqa: ANN401 - any value of the page
    return Markup(environment().get_template(template).render(values))  # noqa: S704 - it escapes


def render_page(template: str, *, scripts: Sequence[str], **values: Any) -> str:  # noqa: ANN401 - any value of the page
    """Render a page with our style and the scripts that its policy allows; `with_cards` adds its cards."""
    code = "\n".join(['"use strict";', *(f"{{\n{read(name)}\n}}" for name in scripts)]) if scripts else ""
    return (
        environment()
        .get_template(template)
        .render(
            style=Markup(read("style.css")),  # noqa: S704 - our own file
            script=Markup(code),  # noqa: S704
            policy=policy(code),
            cards=_CARDS,
            version=version("reelabel"),
            **values,
        )
    )


class Frames:
    """Frames of a page, which replace markers once it is known how many fit; each is on the page once."""

    def __init__(self, template: str) -> None:
        """Render them by a template."""
        self._template = template
        self._found: dict[int, tuple[int, Any, str]] = {}

    def place(self, frames: object, job_id: str) -> Markup:
        """Return a placeholder for frames in the card of a job."""
        number, _, _ = self._found.setdefault(id(frames), (len(self._found), frames, job_id))
        return Markup("<!--frames {}-->").format(number)

    def fill(self, cards: Sequence[str], room: int) -> tuple[list[str], int]:
        """Replace the markers of cards, in order, while there is room; also count cards with frames."""
        found = {number: frames for number, frames, _ in self._found.values()}
        links = {
            number: _SAME_FRAMES.format(number, _anchor(job_id), _uncut(job_id))
            for number, _, job_id in self._found.values()
        }
        markers = [int(number) for card in cards for number in _FRAMES.findall(card)]
        room -= sum(max(_size(links[number]), _size(_NO_FRAMES)) for number in markers)
        drawn: dict[int, str] = {}

        def draw(marker: re.Match[str]) -> str:
            nonlocal room
            number = int(marker[1])
            if drawn.get(number):
                return links[number]
            if number not in drawn:
                text = render(self._template, number=number, frames=found[number])
                drawn[number] = text if _size(text) <= room else ""
                room -= _size(drawn[number])
            return drawn[number] or _NO_FRAMES

        filled = [_FRAMES.sub(draw, card) for card in cards]
        return filled, sum(any(drawn[int(number)] for number in _FRAMES.findall(card)) for card in cards)


def with_cards(page: str, items: Sequence[T], draw: Callable[[T, int], str], *, frames: Frames, **note: object) -> str:
    """Put as many cards, with as much detail, as fit into MAX_BYTES into a page of `render_page`.

    `items` are by descending priority. `draw` renders a card at a level of detail, from 0 (most) to below LEVELS. The
    note above the cards has a `noun`, how many are `known`, `why` these were selected, and a `note`.
    """
    room = MAX_BYTES - _size(page) - _NOTE_BYTES
    cards = _fit(items, draw, room - _LEAST_FRAME_BYTES)
    filled, with_frames = frames.fill(cards, min(_MOST_FRAME_BYTES, room - sum(map(_size, cards))))
    above = render("shown.html.jinja", shown=len(cards), with_frames=with_frames, **note)
    return page.replace(_CARDS, "\n".join([above, *filled]), 1)


def _fit(items: Sequence[T], draw: Callable[[T, int], str], room: int) -> list[str]:
    """Render cards at the first level if they fit, otherwise at the last one.

    Cards that then do not fit are left out, and the others get more detail, level by level, the first ones first.
    """

    def card(item: T, level: int) -> str:
        token = _limit.set(TEXT_LIMITS[level])
        try:
            return draw(item, level) + "\n"
        finally:
            _limit.reset(token)

    cards = [card(item, 0) for item in items]
    if sum(map(_size, cards)) <= room:
        return cards
    cards = []
    for item in items:
        shortest = card(item, LEVELS - 1)
        if (room := room - _size(shortest)) < 0:
            room += _size(shortest)
            break
        cards.append(shortest)
    for level in reversed(range(LEVELS - 1)):
        for number, item in enumerate(items[: len(cards)]):
            longer = card(item, level)
            if (more := _size(longer) - _size(cards[number])) <= room:
                cards[number] = longer
                room -= more
    return cards


def _size(text: str) -> int:
    return len(text.encode())


def policy(script: str) -> str:
    """Return a content security policy that allows only this script, by hash, and no requests to other hosts."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"'sha256-{digest}'" if script else "'none'"
    # Bars have inline styles; scripts are allowed by hash only.
    loads = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}"
    return f"{loads}; form-action 'none'; base-uri 'none'"


@cache
def read(name: str) -> str:
    return (files("tasks.report") / "assets" / name).read_text(encoding="utf-8").strip()


def _shown_text(value: Any) -> Any:  # noqa: ANN401 - any value of the page
    """Return a text with symbols for invisible characters, cut if it is long; other values unchanged."""
    if not isinstance(value, str) or isinstance(value, Markup):  # our own, or already escaped
        return value
    shown, limit = escape_controls(value, keep="\n\t"), _limit.get()
    return shown if len(shown) <= limit else f"{shown[:limit]}... ({len(shown):,} characters)"


def _uncut(text: str) -> Markup:
    return escape(escape_controls(text, keep="\n\t"))


def _anchor(job_id: str) -> str:
    """Return the URL fragment that opens the card of a job."""
    return quote("job-" + escape_controls(job_id, keep="\n\t"))


def duration(seconds: float) -> str:
    if seconds < _MINUTE_S:
        return f"{seconds:.1f} s"
    if seconds < _HOUR_S:
        return f"{seconds / _MINUTE_S:.1f} min"
    return f"{seconds / _HOUR_S:.1f} h"


def clock(seconds: float) -> str:
    """Format a time in a video: 1:02:03.4, or 2:03.4."""
    tenths = round(seconds * 10)
    minutes, rest = divmod(tenths, 600)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest / 10:04.1f}" if hours else f"{minutes}:{rest / 10:04.1f}"


def _short(number: int) -> str:
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:g}{unit}"
    return str(number)


def _percent(share: float) -> str:
    # Only all are 100%, and only none are 0%: a million jobs of which ten failed must not look clean.
    if 0 < share < _LEAST_SHARE:
        return f"<{_LEAST_SHARE:.1%}"
    return f">{1 - _LEAST_SHARE:.1%}" if 1 - _LEAST_SHARE < share < 1 else f"{share:.1%}"


def _at(value: float, end: float, left: float = 1, right: float = 99) -> str:
    """Return the position of a value from 0 to `end` in a drawing, as a percentage of its width."""
    return f"{left + (right - left) * value / (end or 1):.2f}".rstrip("0").rstrip(".") + "%"


def _time_ticks(end_s: float, start_s: float = 0) -> list[tuple[float, str]]:
    """Return times from `start_s` to `end_s` for an axis, in seconds and as text."""
    length_s = end_s - start_s
    step = next((step for step in _TICK_STEPS_S if length_s / step <= _MOST_TICKS), max(length_s / _MOST_TICKS, 1))
    units = ((_HOUR_S, "h"), (_MINUTE_S, "min"), (1, "s"))
    # A tenth of the unit must not exceed a step, or ticks late in a video would have the same text.
    unit, name = next(each for each in units if each[0] == 1 or (end_s >= 2 * each[0] and 10 * step >= each[0]))
    ticks = range(math.ceil(start_s / step), math.floor(end_s / step) + 1)
    return [(at * step, f"{round(at * step / unit, 1):g} {name}") for at in ticks]


def _count_ticks(most: int) -> list[int]:
    """Return round numbers from 0 to at least `most`, for an axis."""
    steps = (digit * 10**power for power in range(12) for digit in (1, 2, 5))
    step = next(step for step in steps if most <= 4 * step)
    return list(range(0, max(most, 1) + step, step))
