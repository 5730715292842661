"""Measures live sessions: latency by history, a long stream, and agreement with `classify`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.engine.noise import frame_file_of, question_of
from benchmarks.harness import Column, Table, progress
from benchmarks.live.chat_server import serve_chat
from benchmarks.live.latency import measure_chat, measure_endurance, measure_latency, no_chat
from benchmarks.live.stream import find_setup, in_pairs, open_live
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import Batch, LiveQuery
from tasks.domain import Answer
from tasks.live.window import WindowRule
from tools.tiny_model.scenes import SCENE_QUESTIONS, draw_scene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from benchmarks.live.stream import OpenLive
    from tools.tiny_model.scenes import Scene

_WINDOW = WindowRule(sink=8, size=64)
_FRAMES = 16
_FPS = 4.0
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
    model: str,
    folder: Path,
    *,
    frames: Sequence[int],
    rounds: int,
    minutes: float,
    labels: int,
) -> list[Table]:
    setup = find_setup(model, folder)
    folder.mkdir(parents=True, exist_ok=True)
    agreement: list[dict[str, Any]] = []
    with progress("Loading the model") as show:
        with open_live(setup, folder) as live:
            rows: list[dict[str, Any]] = list(measure_latency(live, setup, frames, rounds=rounds, on_length=show))
            endurance = measure_endurance(live, setup, minutes=minutes, rule=_WINDOW, on_minute=show)
            if model == "tiny" and labels:
                agreement = measure_agreement(live, labels=labels, on_clip=show)
        show("Starting vLLM's server")
        try:
            with serve_chat(setup, folder, prompt_tokens=max(row["prompt_tokens"] for row in rows)) as server:
                chat = list(measure_chat(server, setup, frames, rounds=rounds, on_length=show))
        except ModelError as error:
            chat = [no_chat(error)] * len(rows)
    for row, of_chat in zip(rows, chat, strict=True):
        row.update(of_chat, of_first=row["on_arrival_ms"] / rows[0]["on_arrival_ms"])
    return list(_tables(model, rows, endurance, agreement))


def _tables(
    model: str,
    rows: list[dict[str, Any]],
    endurance: dict[str, Any],
    agreement: list[dict[str, Any]],
) -> Iterator[Table]:
    errors = "\n".join(f"{row['frames']} frames: {row['chat_error']}" for row in rows if row["chat_error"])
    title = f"{model}: milliseconds from the last pair of frames to the first token"
    yield Table(f"{title}, by how they are read", rows, _LATENCY, errors)
    spread = [
        {"of": name, **dict(zip(("p50", "p99", "longest"), endurance[f"{name}_ms"], strict=True))}
        for name in ("arrival", "question")
    ]
    stream = (
        f"{model}: {endurance['stream_s'] / 60:g} minutes of stream at 2 frames/s, replayed in "
        f"{endurance['replay_s']:,.0f} s; {endurance['evictions']} evictions, "
        f"at most {endurance['most_frames']} frames in a prompt"
    )
    memory = ", ".join(f"{each:,.0f}" for each in endurance["memory_mib"])
    yield Table(stream, spread, _ENDURANCE, f"Memory after each quarter, MiB: {memory}")
    if agreement:
        yield Table(f"{model}: labels beside those of classify about the same frames", agreement, _AGREEMENT)


def measure_agreement(live: OpenLive, *, labels: int, on_clip: Callable[[str], None]) -> list[dict[str, Any]]:
    """Ask about clips of moving shapes, pair by pair as they arrive, and as one video; each kind equally often."""
    found: dict[str, dict[str, Any]] = {
        task: {"question": task, "labels": 0, "same": 0, "right": 0, "difference": 0.0} for task in SCENE_QUESTIONS
    }
    rng = np.random.default_rng(7)
    for number, scene in enumerate(_scenes(labels, rng), 1):
        on_clip(f"clip {number}")
        frames = scene.render(np.linspace(0, 1, _FRAMES), rng)
        data, items, session = frame_file_of(frames, fps=_FPS), list(in_pairs(frames, fps=_FPS)), live.open()
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
