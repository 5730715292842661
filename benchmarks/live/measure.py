"""Measures live sessions: latency by history, a long stream, and agreement with `classify`."""

from __future__ import annotations

import time
from itertools import islice
from statistics import median, median_low
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.cores import descendants
from benchmarks.engine.noise import frame_file_of, question_of
from benchmarks.harness import MIB, Column, Table, progress, proportional_bytes
from benchmarks.live.chat_server import serve_chat
from benchmarks.live.stream import FPS, QUERY, camera, find_setup, in_pairs, open_live, pairs_of, system_prompt_of
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import Batch, LiveQuery
from tasks.domain import Answer
from tasks.live.window import Window, WindowRule
from tools.tiny_model.scenes import SCENE_QUESTIONS, draw_scene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from benchmarks.live.chat_server import ChatServer
    from benchmarks.live.stream import LiveSetup, OpenLive
    from tools.tiny_model.scenes import Scene

_WINDOW = WindowRule(sink=8, size=64)
_SAME = 1e-3
_QUESTION_EVERY = 30  # pairs
_PARTS = 4
_CLIP_FRAMES, _CLIP_FPS = 16, 4.0
# A clip with a direction question also has a colour and a shape.
_ABOUT = ("direction", "count", "order", "late")
_LATENCY = (
    Column("frames", "frames"),
    Column("on arrival", "on_arrival_ms", ",.1f"),
    Column("of the first", "of_first", ".2fx"),
    Column("at the question", "at_question_ms", ",.1f"),
    Column("vLLM's chat", lambda row: "none" if row["chat_ms"] is None else f"{row['chat_ms']:,.1f}"),
    Column("question alone", "question_ms", ",.1f"),
    Column("arrival", "arrival_ms", ",.1f"),
    Column("prompt tokens", "prompt_tokens", ","),
    Column("cached", "cached_tokens", ","),
    Column("computed", "computed_tokens", ","),
)
_ENDURANCE = (
    Column("", "of"),
    Column("P50, ms", "p50", ",.1f"),
    Column("P99, ms", "p99", ",.1f"),
    Column("P99 / P50", lambda row: row["p99"] / row["p50"] if row["p50"] else 0.0, ".2fx"),
    Column("longest, ms", "longest", ",.1f"),
)
_AGREEMENT = (
    Column("question", "question"),
    Column("labels", "labels"),
    Column("the same", "same"),
    Column("share", lambda row: row["same"] / row["labels"], ".4f"),
    Column("right", lambda row: row["right"] / row["labels"], ".3f"),
    Column("largest difference of a probability", "difference", ".1e"),
)


def run(
    model: str, folder: Path, *, frames: Sequence[int], rounds: int, minutes: float, labels: int
) -> Iterator[Table]:
    """Yield the tables of a model; labels are compared with those of `classify` for the tiny one only."""
    setup = find_setup(model, folder)
    folder.mkdir(parents=True, exist_ok=True)
    agreement: list[dict[str, Any]] = []
    with progress("Loading the model") as show:
        with open_live(setup, folder) as live:
            rows: list[dict[str, Any]] = list(measure_latency(live, setup, frames, rounds=rounds, show=show))
            stream, spread, memory = measure_endurance(live, setup, minutes=minutes, rule=_WINDOW, show=show)
            if model == "tiny" and labels:
                agreement = measure_agreement(live, labels=labels, show=show)
        show("Starting vLLM's server")
        try:
            with serve_chat(setup, folder, prompt_tokens=max(row["prompt_tokens"] for row in rows)) as server:
                chat = list(measure_chat(server, setup, frames, rounds=rounds, show=show))
        except ModelError as error:
            chat = [(None, error.message)] * len(rows)
    for row, (chat_ms, _) in zip(rows, chat, strict=True):
        row.update(chat_ms=chat_ms, of_first=row["on_arrival_ms"] / rows[0]["on_arrival_ms"])
    errors = "\n".join(f"{length} frames: {error}" for length, (_, error) in zip(frames, chat, strict=True) if error)
    title = f"{model}: milliseconds from the last pair of frames to the first token, by how they are read"
    yield Table(title, rows, _LATENCY, errors)
    yield Table(f"{model}: {stream}", spread, _ENDURANCE, f"Memory after each quarter, MiB: {memory}")
    if agreement:
        yield Table(f"{model}: labels beside those of classify about the same frames", agreement, _AGREEMENT)


def measure_latency(
    live: OpenLive,
    setup: LiveSetup,
    lengths: Sequence[int],
    *,
    rounds: int,
    show: Callable[[str], None],
    tolerance: float = _SAME,
) -> Iterator[dict[str, float]]:
    """Yield medians in milliseconds for each length of history.

    `arrival_ms`: a pair of frames is read, when all before it were; `question_ms`: a question is answered when all
    frames were read; `on_arrival_ms`: from the arrival of the last pair to the first token of a question that is asked
    at once; `at_question_ms`: the same, if nothing was read before; `cached_tokens`: of the prompt, when all frames
    were read; `computed_tokens`: of the prompt, when all but the last pair were read. Answers may differ from those
    about the same frames at once by the tolerance, since 16-bit arithmetic is less exact.
    """
    warm_up(live, setup)
    for frames in lengths:
        show(f"{frames} frames, read on arrival")
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
            differences = (abs(a - b) for a, b in zip(grown.probabilities, whole.probabilities, strict=True))
            assert max(differences) < tolerance, "An answer differs by what is cached."
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
    server: ChatServer, setup: LiveSetup, lengths: Sequence[int], *, rounds: int, show: Callable[[str], None]
) -> Iterator[tuple[float | None, str]]:
    """Yield the milliseconds of vLLM's chat endpoint for each length of history, or None and its error."""
    server.first_token_ms(pairs_of(setup, 8, seed=0), QUERY.text, system_prompt=system_prompt_of(0, 1))
    for frames in lengths:
        show(f"{frames} frames, vLLM's chat endpoint")
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
            yield None, error.message
        else:
            yield median(of_length), ""


def measure_endurance(
    live: OpenLive, setup: LiveSetup, *, minutes: float, rule: WindowRule, show: Callable[[str], None]
) -> tuple[str, list[dict[str, Any]], str]:
    """Replay a stream of two frames a second; after each pair of the current prefix, the next one is read.

    Returns:
        What was replayed; P50, P99 and the longest time until a pair was read, and until the first token of a question;
        and MiB of the engine's processes after each quarter.
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
            show(f"{item.times_s[1] / 60:.0f} of {minutes:g} minutes")
        if number % (count // _PARTS) == 0:
            memory.append(sum(map(proportional_bytes, processes)) / MIB)
    live.model.close_session(session)
    replay_s = time.perf_counter() - began_s
    stream = (
        f"{count * 2 / FPS / 60:g} minutes of stream at 2 frames/s, replayed in {replay_s:,.0f} s; "
        f"{evictions} evictions, at most {most} frames in a prompt"
    )
    spread = [
        {"of": name, **dict(zip(("p50", "p99", "longest"), np.percentile(ms or [0.0], [50, 99, 100]), strict=True))}
        for name, ms in (("arrival", arrivals), ("question", questions))
    ]
    return stream, spread, ", ".join(f"{each:,.0f}" for each in memory)


def measure_agreement(live: OpenLive, *, labels: int, show: Callable[[str], None]) -> list[dict[str, Any]]:
    """Ask about clips of moving shapes, pair by pair as they arrive, and as one video; each kind equally often."""
    found: dict[str, dict[str, Any]] = {
        task: {"question": task, "labels": 0, "same": 0, "right": 0, "difference": 0.0} for task in SCENE_QUESTIONS
    }
    rng = np.random.default_rng(7)
    for number, scene in enumerate(_scenes(labels, rng), 1):
        show(f"clip {number}")
        frames = scene.render(np.linspace(0, 1, _CLIP_FRAMES), rng)
        data, session = frame_file_of(frames, fps=_CLIP_FPS), live.open()
        items = list(in_pairs(frames, fps=_CLIP_FPS))
        for n in range(1, len(items) + 1):
            live.read(session, items[:n])
        for task, truth in scene.truths.items():
            prompt, choices = SCENE_QUESTIONS[task]
            question = question_of(prompt, choices)
            [whole] = live.process.answer(Batch(frame_files={"v": data}, questions=(question,)))
            assert isinstance(whole, Answer), whole
            answer = live.ask(session, items, LiveQuery(text=question.text, choices=choices))
            counted = found[task]
            differences = (abs(a - b) for a, b in zip(answer.probabilities, whole.probabilities, strict=True))
            counted["labels"] += 1
            counted["same"] += answer.choice == whole.choice_index
            counted["right"] += choices[answer.choice] == truth
            counted["difference"] = max(counted["difference"], *differences)
        live.model.close_session(session)
    return list(found.values())


def _scenes(labels: int, rng: np.random.Generator) -> Iterator[Scene]:
    for _ in range(-(-labels // len(SCENE_QUESTIONS))):
        for task in _ABOUT:
            yield draw_scene(task, str(rng.choice(SCENE_QUESTIONS[task][1])), rng)
