"""Where the time goes from the last pair of frames to the first token, by clocks in the engine's process."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, median_low
from typing import TYPE_CHECKING

from benchmarks.live.latency import warm_up
from benchmarks.live.stream import open_live, pairs_of, system_prompt_of
from reelabel_engine.environment import find_python

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.live.stream import LiveSetup, OpenLive

_ENGINE = Path(__file__).with_name("timed_engine.py")
PARTS = ("attention", "layers", "encoder", "prompt", "vLLM's input", "scheduler", "positions")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsRow:
    """Medians for one length of history, in milliseconds.

    Attributes:
        frames: That the question is about.
        computed_tokens: Of the prompt, those that were computed for the question.
        total_ms: From the last pair of frames to the first token.
        parts_ms: By part; `else` is what is in none, with the processes that hand the question on.
    """

    frames: int
    computed_tokens: int
    total_ms: float
    parts_ms: dict[str, float]


@contextmanager
def open_timed(setup: LiveSetup, folder: Path) -> Iterator[tuple[OpenLive, Path]]:
    """Load an engine with clocks; yields it, and the file of its times."""
    path = folder / "live-parts.jsonl"
    path.unlink(missing_ok=True)
    with open_live(setup, folder, command=(find_python().path, "-P", str(_ENGINE), str(path))) as live:
        yield live, path


def measure_parts(
    live: OpenLive,
    path: Path,
    setup: LiveSetup,
    lengths: Sequence[int],
    *,
    rounds: int,
    on_length: Callable[[str], None],
) -> Iterator[PartsRow]:
    """Measure the parts of a question that is asked with the last pair, for each length of history."""
    warm_up(live, setup)
    for frames in lengths:
        on_length(f"{frames} frames, by parts")
        totals: list[float] = []
        computed: list[int] = []
        parts: list[dict[str, float]] = []
        for number in range(rounds):
            items, system = pairs_of(setup, frames, seed=frames * 1000 + number), system_prompt_of(number, rounds)
            session = live.open()
            live.read(session, items[:-1], system_prompt=system)
            began_s = time.perf_counter()
            answer = live.ask(session, items, system_prompt=system)
            totals.append((time.perf_counter() - began_s) * 1e3)
            computed.append(answer.prompt_tokens - answer.cached_tokens)
            spent = json.loads(path.read_text().splitlines()[-1])
            parts.append(spent | {"else": totals[-1] - sum(spent.values())})
            live.model.forget(session)
        yield PartsRow(
            frames=frames,
            computed_tokens=median_low(computed),
            total_ms=median(totals),
            parts_ms={name: median(each[name] for each in parts) for name in (*PARTS, "else")},
        )
