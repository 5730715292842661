"""Measures an engine alone: its start, its first label, requests per second, and questions that share a video."""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.engine.noise import QUESTION, noise_file, question_of
from benchmarks.harness import Column, Table
from benchmarks.models import engine_config
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import Batch
from tasks.domain import Answer
from tasks.model.engine.process import EngineProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reelabel_engine.protocol import EngineConfig

SHARED_FRAMES = 32
_START_TIMEOUT_S = 900
_WARM_UP_ROUNDS = 2
_BATCH_VIDEOS, _BATCHES_AT_ONCE = 8, 6  # as the pipelines have
_COLUMNS = (
    Column("questions", "questions"),
    Column("ms", "answer_ms", ",.1f"),
    Column("times one", "times_one", ".2fx"),
    Column("prompt tokens", "prompt_tokens", ","),
    Column("of them cached", "cached_tokens", ","),
)


def questions(model: str, folder: Path, *, rounds: int) -> list[Table]:
    config, side_px = engine_config(model, folder)
    with tempfile.TemporaryDirectory(prefix="reelabel-") as logs:
        rows = measure_questions(config, Path(logs) / "engine.log", side_px=side_px, rounds=rounds)
    return [Table(f"{model}, {SHARED_FRAMES} frames", rows, _COLUMNS)]


def measure_life(config: EngineConfig, log_path: Path, *, videos: int, frames: int, side_px: int) -> dict[str, Any]:
    """Start an engine, and ask a question about each of many videos of square noise."""
    files = [noise_file(seed, frames=frames, side_px=side_px) for seed in range(videos + 1)]
    with EngineProcess(config, log_path=log_path, start_timeout_s=_START_TIMEOUT_S) as engine:
        info = engine.wait_ready()
        began_s = time.perf_counter()
        engine.answer(Batch(frame_files={"v": files[-1]}, questions=(QUESTION,)))
        first_s = time.perf_counter() - began_s
        batches = [_batch(files[start : start + _BATCH_VIDEOS]) for start in range(0, videos, _BATCH_VIDEOS)]
        began_s = time.perf_counter()
        with ThreadPoolExecutor(_BATCHES_AT_ONCE) as threads:
            replies = list(chain.from_iterable(threads.map(engine.answer, batches)))
        wall_s = time.perf_counter() - began_s
    if rejected := sum(not isinstance(reply, Answer) for reply in replies):
        raise ModelError(f"The engine rejects {rejected} of {videos} questions.")
    return {
        "start_s": round(info.start_ms / 1e3, 1),
        "first_label_s": round(first_s, 3),
        "requests_per_s": round(videos / wall_s, 2),
        "settings": info.tuning,
    }


def _batch(files: Sequence[bytes]) -> Batch:
    named = {str(number): file for number, file in enumerate(files)}
    return Batch(frame_files=named, questions=tuple(replace(QUESTION, video_id=name) for name in named))


def measure_questions(
    config: EngineConfig,
    log_path: Path,
    *,
    frames: int = SHARED_FRAMES,
    side_px: int,
    rounds: int,
    counts: Sequence[int] = (1, 2, 4, 8),
) -> list[dict[str, Any]]:
    """Ask an engine numbers of questions about a video of square noise, a fresh one each time, in turns."""
    took_ms: dict[int, list[float]] = defaultdict(list)
    tokens: dict[int, tuple[int, int]] = {}
    with EngineProcess(config, log_path=log_path, start_timeout_s=_START_TIMEOUT_S) as engine:
        engine.wait_ready()
        for number in range(_WARM_UP_ROUNDS + rounds):
            for place, count in enumerate(counts):
                file = noise_file(number * len(counts) + place, frames=frames, side_px=side_px)
                asked = tuple(question_of(f"What colour is shape {each}?") for each in range(count))
                began_s = time.perf_counter()
                replies = engine.answer(Batch(frame_files={"v": file}, questions=asked))
                if number >= _WARM_UP_ROUNDS:
                    took_ms[count].append((time.perf_counter() - began_s) * 1e3)
                answers = [reply for reply in replies if isinstance(reply, Answer)]
                if len(answers) < count:
                    raise ModelError("The engine rejects questions about a video of noise.")
                tokens[count] = sum(one.prompt_tokens for one in answers), sum(one.cached_tokens for one in answers)
    one_ms = median(took_ms[counts[0]])
    return [
        {
            "questions": count,
            "answer_ms": round(median(took_ms[count]), 2),
            "times_one": round(median(took_ms[count]) / one_ms, 2),
            "prompt_tokens": tokens[count][0],
            "cached_tokens": tokens[count][1],
        }
        for count in counts
    ]
