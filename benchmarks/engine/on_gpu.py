"""What a GPU alone shows: how soon a killed engine frees its memory, labels in bfloat16, and its image-text encoder."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.engine.noise import QUESTION, frame_file_of, noise_file, question_of
from benchmarks.harness import GIB
from benchmarks.models import SIGLIP_LAYERS, make_siglip
from infra.errors import EngineLostError
from reelabel_engine.devices import gpu_memory_bytes, visible_gpus
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import Batch, EncoderConfig
from tasks.demo.shapes import QUESTIONS, draw_shape, render_frames
from tasks.domain import Answer
from tasks.embedding.encoder import EncoderProcess
from tasks.model.engine.process import EngineProcess

if TYPE_CHECKING:
    from pathlib import Path

    from reelabel_engine.protocol import EngineConfig

_START_TIMEOUT_S = 900
_FREED_WITHIN_S, _FREED_EVERY_S, _FREED_BYTES = 60, 0.2, 512 * 1024**2
_SHAPE_FPS = 2.0
_CERTAIN = 0.1  # margin between the first two choices
_ENCODED_SHAPE = (64, 240, 320, 3)  # of a video
_ENCODED_FRAMES = {"cpu": 64, "cuda": 8192}
_NO_GPU = "-1"


def measure_death(config: EngineConfig, log_path: Path, *, frames: int, side_px: int) -> dict[str, Any]:
    """Kill an engine; measure how soon its GPU's memory is free, and how soon it answers again."""
    one = Batch(frame_files={"v": noise_file(0, frames=frames, side_px=side_px)}, questions=(QUESTION,))
    free_bytes, _ = gpu_memory_bytes()
    with EngineProcess(config, log_path=log_path, start_timeout_s=_START_TIMEOUT_S) as engine:
        engine.answer(one)
        held_bytes = free_bytes - gpu_memory_bytes()[0]
        began_s = time.monotonic()
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        with suppress(EngineLostError):
            engine.answer(one)
        until_s = began_s + _FREED_WITHIN_S
        while (is_held := free_bytes - gpu_memory_bytes()[0] > _FREED_BYTES) and time.monotonic() < until_s:
            time.sleep(_FREED_EVERY_S)
        freed_s = None if is_held else round(time.monotonic() - began_s, 1)
        began_s = time.monotonic()
        engine.start()
        engine.answer(one)
        again_s = round(time.monotonic() - began_s, 1)
    return {"held_gib": round(held_bytes / GIB, 1), "freed_s": freed_s, "answers_again_s": again_s}


def measure_precision(config: EngineConfig, log_path: Path, *, videos: int, frames: int) -> list[dict[str, Any]]:
    """Compare the labels of moving shapes in float32 and in bfloat16, with a model that knows them."""
    batch = _shapes(videos, frames=frames)
    exact, rounded = (
        _answers(replace(config, load_format="auto", dtype=dtype), batch, log_path) for dtype in ("float32", "bfloat16")
    )
    pairs = list(zip(exact, rounded, strict=True))
    differing = [one for one, two in pairs if one.choice_index != two.choice_index]
    return [
        {
            "labels": len(pairs),
            "differ": len(differing),
            "unsure": sum(_margin(one) < _CERTAIN for one in exact),
            "unsure_differ": sum(_margin(one) < _CERTAIN for one in differing),
            "margin_moves": round(max(abs(_margin(one) - _margin(two)) for one, two in pairs), 4),
        }
    ]


def _shapes(count: int, *, frames: int) -> Batch:
    files, questions = {}, []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        images = render_frames(draw_shape(rng), np.linspace(0, 1, frames), rng)
        files[str(seed)] = frame_file_of(images, fps=_SHAPE_FPS, source_uri=str(seed), fingerprint=str(seed))
        questions += [question_of(prompt, choices, video_id=str(seed)) for prompt, choices in QUESTIONS.values()]
    return Batch(frame_files=files, questions=tuple(questions))


def _answers(config: EngineConfig, batch: Batch, log_path: Path) -> list[Answer]:
    with EngineProcess(config, log_path=log_path, start_timeout_s=_START_TIMEOUT_S) as engine:
        answers = [reply for reply in engine.answer(batch) if isinstance(reply, Answer)]
    if len(answers) < len(batch.questions):
        raise ModelError("The engine rejects questions about moving shapes.")
    return answers


def _margin(answer: Answer) -> float:
    second, first = sorted(answer.probabilities)[-2:]
    return first - second


def measure_encoders(folder: Path, *, rounds: int) -> list[dict[str, Any]]:
    """Embed noise with SigLIP base (random weights) on the CPU, the reference, and on the GPU if there is one."""
    model = str(make_siglip(folder, layers=SIGLIP_LAYERS).resolve())
    rows, vectors = [], []
    for device, count in [
        (_NO_GPU, _ENCODED_FRAMES["cpu"]),
        *((gpu, _ENCODED_FRAMES["cuda"]) for gpu in visible_gpus()[:1]),
    ]:
        free_bytes, _ = gpu_memory_bytes()
        config, log_path = EncoderConfig(model=model, devices=(device,)), folder / "logs" / "encoders.log"
        with EncoderProcess(config, log_path=log_path, start_timeout_s=_START_TIMEOUT_S) as encoder:
            info = encoder.info()
            seeds = range(count // _ENCODED_SHAPE[0])
            videos = [np.random.default_rng(seed).integers(0, 256, _ENCODED_SHAPE, np.uint8) for seed in seeds]
            vectors.append(encoder.embed_images(videos[:1]))
            seconds = []
            for _ in range(rounds):
                began_s = time.perf_counter()
                encoder.embed_images(videos)
                seconds.append(time.perf_counter() - began_s)
            held_bytes = free_bytes - gpu_memory_bytes()[0]
        rows.append(
            {
                "device": info.device,
                "dtype": info.dtype,
                "start_s": round(info.start_ms / 1e3, 1),
                "frames_per_s": round(count / median(seconds), 1),
                "gpu_gib": round(held_bytes / GIB, 2) if info.gpus else None,
                "largest_difference": round(float(np.abs(vectors[0] - vectors[-1]).max()), 5),
                "least_cosine": round(float((vectors[0] * vectors[-1]).sum(1).min()), 5),
            }
        )
    return rows
