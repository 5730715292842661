"""Measures an engine's start, first label, requests per second, and recovery from a crash."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.engine.noise import QUESTION, frame_file_of, noise_file, question_of
from benchmarks.engine.sweep import measure_questions
from infra.errors import EngineLostError
from reelabel_engine.devices import gpu_memory_bytes
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import Batch
from tasks.demo.shapes import QUESTIONS, draw_shape, render_frames
from tasks.domain import Answer
from tasks.model.engine.process import EngineProcess

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from reelabel_engine.protocol import EngineConfig

_START_TIMEOUT_S = 900.0
_BATCH_VIDEOS, _BATCHES_AT_ONCE = 8, 6  # as the pipelines have
_QUESTION_COUNTS = (1, 8, 32)
_QUESTION_ROUNDS = 3
_FREED_WITHIN_S, _FREED_EVERY_S, _FREED_BYTES = 60, 0.2, 512 * 1024**2
_SHAPE_FPS = 2.0
_CERTAIN = 0.1  # margin between the first two choices


class EngineWork(NamedTuple):
    """Work of an engine: questions about videos of square noise; and its log."""

    videos: int
    side_px: int
    log_path: Path
    frames: int = 16


def measure_life(config: EngineConfig, work: EngineWork) -> dict[str, Any]:
    """Start an engine, and ask it about videos of noise.

    Raises:
        ModelError: It does not load.
    """
    files = [noise_file(seed, frames=work.frames, side_px=work.side_px) for seed in range(work.videos + 1)]
    with _engine(config, work.log_path) as engine:
        info = engine.wait_ready()
        began_s = time.perf_counter()
        engine.answer(Batch(frame_files={"v": files[-1]}, questions=(QUESTION,)))
        first_s = time.perf_counter() - began_s
        batches = [_batch(files[start : start + _BATCH_VIDEOS]) for start in range(0, work.videos, _BATCH_VIDEOS)]
        began_s = time.perf_counter()
        with ThreadPoolExecutor(_BATCHES_AT_ONCE) as threads:
            answered = sum(
                isinstance(reply, Answer) for replies in threads.map(engine.answer, batches) for reply in replies
            )
        wall_s = time.perf_counter() - began_s
    if answered < work.videos:
        raise ModelError(f"The engine rejects {work.videos - answered} of {work.videos} questions.")
    return {
        "start_s": round(info.start_ms / 1e3, 1),
        "first_label_s": round(first_s, 3),
        "requests_per_s": round(work.videos / wall_s, 2),
        "settings": info.tuning,
    }


def measure_shared_video(config: EngineConfig, work: EngineWork) -> list[dict[str, Any]]:
    """Ask 1, 8 and 32 questions about one video.

    Raises:
        ModelError: The engine does not load, or rejects the questions.
    """
    with _engine(config, work.log_path) as engine:
        engine.wait_ready()
        rows = measure_questions(
            engine.answer,
            frames=work.frames,
            side_px=work.side_px,
            rounds=_QUESTION_ROUNDS,
            counts=_QUESTION_COUNTS,
        )
        return [{**row, **{name: round(row[name], 2) for name in ("answer_ms", "times_one")}} for row in rows]


def measure_death(config: EngineConfig, work: EngineWork) -> dict[str, Any]:
    """Kill an engine; measure how soon its GPU's memory is free, and how soon it answers again.

    Raises:
        ModelError: It does not load again.
    """
    one = _batch([noise_file(0, frames=work.frames, side_px=work.side_px)])
    free_bytes, _ = gpu_memory_bytes()
    with _engine(config, work.log_path) as engine:
        engine.answer(one)
        held_bytes = free_bytes - gpu_memory_bytes()[0]
        began_s = time.monotonic()
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        with suppress(EngineLostError):
            engine.answer(one)
        while (
            is_held := free_bytes - gpu_memory_bytes()[0] > _FREED_BYTES
        ) and time.monotonic() < began_s + _FREED_WITHIN_S:
            time.sleep(_FREED_EVERY_S)
        freed_s = None if is_held else round(time.monotonic() - began_s, 1)
        began_s = time.monotonic()
        engine.start()
        engine.answer(one)
        again_s = round(time.monotonic() - began_s, 1)
    return {"held_gib": round(held_bytes / 1024**3, 1), "freed_s": freed_s, "answers_again_s": again_s}


def measure_precision(config: EngineConfig, others: Sequence[EngineConfig], work: EngineWork) -> list[dict[str, Any]]:
    """Compare the labels of engines about moving shapes, which the tiny model knows, with those of a first one.

    Raises:
        ModelError: An engine does not load.
    """
    batch = _shapes(work.videos, frames=work.frames)
    expected = _answers(config, batch, work.log_path)
    rows = []
    for other in others:
        found = _answers(other, batch, work.log_path)
        differs = [one.choice_index != two.choice_index for one, two in zip(expected, found, strict=True)]
        unsure = [_margin(one) < _CERTAIN for one in expected]
        rows.append(
            {
                "dtype": other.dtype,
                "labels": len(found),
                "differ": sum(differs),
                "unsure": sum(unsure),
                "unsure_differ": sum(one and two for one, two in zip(differs, unsure, strict=True)),
                "margin_moves": round(
                    max(abs(_margin(one) - _margin(two)) for one, two in zip(expected, found, strict=True)), 4
                ),
            }
        )
    return rows


def _engine(config: EngineConfig, log_path: Path) -> EngineProcess:
    return EngineProcess(config, log_path=log_path, start_timeout_s=_START_TIMEOUT_S)


def _batch(files: Sequence[bytes]) -> Batch:
    named = {str(number): file for number, file in enumerate(files)}
    return Batch(frame_files=named, questions=tuple(replace(QUESTION, video_id=name) for name in named))


def _shapes(count: int, *, frames: int) -> Batch:
    files, questions = {}, []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        images = render_frames(draw_shape(rng), np.linspace(0, 1, frames), rng)
        files[str(seed)] = frame_file_of(images, fps=_SHAPE_FPS, source_uri=str(seed), fingerprint=str(seed))
        for prompt, choices in QUESTIONS.values():
            questions.append(question_of(prompt, choices, video_id=str(seed)))
    return Batch(frame_files=files, questions=tuple(questions))


def _answers(config: EngineConfig, batch: Batch, log_path: Path) -> list[Answer]:
    with _engine(config, log_path) as engine:
        replies = [reply for reply in engine.answer(batch) if isinstance(reply, Answer)]
    if len(replies) < len(batch.questions):
        raise ModelError("The engine rejects questions about moving shapes.")
    return replies


def _margin(answer: Answer) -> float:
    second, first = sorted(answer.probabilities)[-2:]
    return first - second
