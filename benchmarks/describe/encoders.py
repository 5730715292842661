"""The image-text encoders on a GPU beside the same ones on the CPU: speed, memory, and how far their vectors differ."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.describe.model import BASE_LAYERS, make_model
from reelabel_engine.devices import gpu_memory_bytes, visible_gpus
from reelabel_engine.protocol import EncoderConfig
from tasks.embedding.encoder import EncoderProcess

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

_START_TIMEOUT_S = 300.0
_WIDTH_PX, _HEIGHT_PX = 320, 240
_FRAMES_OF_A_VIDEO = 64
_COMPARED_FRAMES = 64
_CUDA_FRAMES = 8192
_NO_GPU = "-1"


def measure_encoders(folder: Path, *, rounds: int) -> list[dict[str, Any]]:
    """Embed noise with SigLIP base (random weights) on the CPU, whose vectors are the reference, and on the GPU if any.

    Raises:
        ModelError: An encoder does not load.
    """
    model = str(make_model(folder, layers=BASE_LAYERS).resolve())
    rows, found = [], []
    for device, count in [(_NO_GPU, _COMPARED_FRAMES), *((gpu, _CUDA_FRAMES) for gpu in visible_gpus()[:1])]:
        free_bytes, _ = gpu_memory_bytes()
        config = EncoderConfig(model=model, devices=(device,))
        with EncoderProcess(
            config, log_path=folder / "logs" / "encoders.log", start_timeout_s=_START_TIMEOUT_S
        ) as encoder:
            info = encoder.info()
            videos = [_noise(seed) for seed in range(count // _FRAMES_OF_A_VIDEO)]
            found.append(encoder.embed_images(videos[: _COMPARED_FRAMES // _FRAMES_OF_A_VIDEO]))
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
                "gpu_gib": round(held_bytes / 1024**3, 2) if info.gpus else None,
                "largest_difference": round(float(np.abs(found[0] - found[-1]).max()), 5),
                "least_cosine": round(float((found[0] * found[-1]).sum(1).min()), 5),
            }
        )
    return rows


def _noise(seed: int) -> npt.NDArray[np.uint8]:
    shape = (_FRAMES_OF_A_VIDEO, _HEIGHT_PX, _WIDTH_PX, 3)
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
