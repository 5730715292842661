"""Measures the time from the last frame to the first token, by how frames are read, and over a long stream."""

from __future__ import annotations

import time
from itertools import islice
from statistics import median, median_low
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.cores import descendants
from benchmarks.harness import MIB, proportional_bytes
from benchmarks.live.stream import FPS, QUERY, camera, pairs_of, system_prompt_of
from reelabel_engine.errors import ModelError
from tasks.live.window import Window, WindowRule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.live.chat_server import ChatServer
    from benchmarks.live.stream import LiveSetup, OpenLive

_SAME = 1e-3
_QUESTION_EVERY = 30  # pairs
_PARTS = 4


def measure_latency(
    live: OpenLive,
    setup: LiveSetup,
    lengths: Sequence[int],
    *,
    rounds: int,
    on_length: Callable[[str], None],
    tolerance: float = _SAME,
) -> Iterator[dict[str, float]]:
    """Yield medians in milliseconds for each length of history.

    `arrival_ms`: a pair of frames is read, when all before it were; `question_ms`: a question is answered when all
    frames were read; `on_arrival_ms`: from the arrival of the last pair to the first token of a question that is asked
    at once; `at_question_ms`: the same, if nothing was read before; `cached_tokens`: of the prompt, when all frames
    were read; `computed_tokens`: of the prompt, when all but the last pair were read.
    """
    warm_up(live, setup)
    for frames in lengths:
        on_length(f"{frames} frames, read on arrival")
        arrivals: list[float] = []
        questions: list[float] = []
        on_arrival: list[float] = []
        at_question: list[float] = []
        computed: list[int] = []
        for number in range(rounds):
            items = pairs_of(setup, frames, seed=frames * 1000 + number)
            system = system_prompt_of(number, rounds)
            session = live.open()
            read = [live.read(session, items[:n], system_prompt=system) for n in range(1, len(items))]
            arrivals += read[-4:]
            began_s = time.perf_counter()
            # Asked at once: the last pair is read with the question.
            grown = live.ask(session, items, system_prompt=system)
            on_arrival.append((time.perf_counter() - began_s) * 1e3)
            computed.append(grown.prompt_tokens - grown.cached_tokens)
            live.read(session, items, system_prompt=system)
            again = live.ask(session, items, system_prompt=system)
            questions.append(again.total_ms)
            live.model.close_session(session)
            session = live.open()
            whole = live.ask(session, items, system_prompt=system)
            at_question.append(whole.total_ms)
            live.model.close_session(session)
            _check(grown.probabilities, whole.probabilities, tolerance)
        yield {
            "frames": frames,
            "arrival_ms": median(arrivals),
            "question_ms": median(questions),
            "on_arrival_ms": median(on_arrival),
            "at_question_ms": median(at_question),
            "prompt_tokens": again.prompt_tokens,
            "cached_tokens": again.cached_tokens,
            "computed_tokens": median_low(computed),
        }


def warm_up(live: OpenLive, setup: LiveSetup) -> None:
    """Have everything run once."""
    session = live.open()
    items = pairs_of(setup, 8, seed=0)
    for n in range(1, len(items) + 1):
        live.read(session, items[:n])
    live.ask(session, items)
    live.model.close_session(session)


def measure_chat(
    server: ChatServer, setup: LiveSetup, lengths: Sequence[int], *, rounds: int, on_length: Callable[[str], None]
) -> Iterator[dict[str, float | str | None]]:
    """Measure vLLM's chat endpoint, for each length of history; yield its fields of a row."""
    server.first_token_ms(pairs_of(setup, 8, seed=0), QUERY.text, system_prompt=system_prompt_of(0, 1))
    for frames in lengths:
        on_length(f"{frames} frames, vLLM's chat endpoint")
        try:
            of_length = [
                server.first_token_ms(
                    pairs_of(setup, frames, seed=frames * 1000 + number),
                    QUERY.text,
                    system_prompt=system_prompt_of(number, rounds),
                )
                for number in range(rounds)
            ]
        except ModelError as error:
            yield no_chat(error)
        else:
            yield {"chat_ms": median(of_length), "chat_error": ""}


def no_chat(error: ModelError) -> dict[str, float | str | None]:
    """Return the fields of the chat endpoint if it did not answer."""
    return {"chat_ms": None, "chat_error": error.message}


def _check(one: Sequence[float], other: Sequence[float], tolerance: float) -> None:
    assert max(abs(a - b) for a, b in zip(one, other, strict=True)) < tolerance, "An answer differs by what is cached."


def measure_endurance(
    live: OpenLive,
    setup: LiveSetup,
    *,
    minutes: float,
    rule: WindowRule,
    on_minute: Callable[[str], None],
) -> dict[str, Any]:
    """Replay a stream of two frames a second; after each pair of the current prefix, the next one is read.

    Returns:
        Seconds of the stream and of its replay; how often the window was halved, and the most frames of a prompt; P50,
        P99 and the longest time until a pair was read, and until the first token of a question; and MiB of the engine's
        processes after each quarter.
    """
    warm_up(live, setup)
    count = max(_PARTS, round(minutes * 60 * FPS / 2))
    window, session, pid = Window(rule), live.open(), live.process.pid or 0
    processes = (pid, *descendants(pid))
    arrivals, questions, memory, evictions, most = [], [], [], 0, 0
    began_s = time.perf_counter()
    for number, item in enumerate(islice(camera(setup, seed=1), count), 1):
        evictions += bool(window.add(item))
        most = max(most, 2 * len(window.current))
        arrivals.append(live.read(session, window.current))
        if window.next:
            live.read(session, window.current, window.next)
        if number % _QUESTION_EVERY == 0:
            questions.append(live.ask(session, window.current).total_ms)
            on_minute(f"{item.times_s[1] / 60:.0f} of {minutes:g} minutes")
        if number % (count // _PARTS) == 0:
            memory.append(sum(map(proportional_bytes, processes)) / MIB)
    live.model.close_session(session)
    replay_s = time.perf_counter() - began_s
    return {
        "stream_s": count * 2 / FPS,
        "replay_s": replay_s,
        "evictions": evictions,
        "most_frames": most,
        "arrival_ms": _spread(arrivals),
        "question_ms": _spread(questions),
        "memory_mib": memory,
    }


def _spread(values: list[float]) -> tuple[float, float, float]:
    if not values:
        return 0.0, 0.0, 0.0
    p50, p99, most = np.percentile(values, [50, 99, 100]).tolist()
    return p50, p99, most
