"""Encoders of benchmarks: the demo's model without services, and SigLIP base on a GPU and on the CPU."""

from __future__ import annotations

import time
from contextlib import contextmanager
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import GIB
from benchmarks.models import SIGLIP_LAYERS, make_siglip
from infra.settings import StoreSettings
from reelabel.frames.cache import FrameCache
from reelabel.frames.fetch import VideoReader
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.sources.object_store import ObjectStore
from reelabel_engine.devices import gpu_memory_bytes, visible_gpus
from reelabel_engine.protocol import EncoderConfig
from tasks.domain import EmbeddingSpec
from tasks.embedding.batches import FrameBatcher
from tasks.embedding.encoder import EncoderProcess
from tasks.embedding.vector_file import VectorCache
from tasks.embedding.video import VideoEmbedder
from tasks.frame_cache.extractor import FrameExtractor
from tasks.model.identity import TINY_ENCODER, read_model_info

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from reelabel.pool.decode_pool import DecodePool

_START_TIMEOUT_S = 900.0
_SHAPE = (64, 240, 320, 3)  # of a video
_FRAMES = {"cpu": 64, "cuda": 8192}
_NO_GPU = "-1"


@contextmanager
def tiny_embedder(pool: DecodePool, folder: Path) -> Iterator[VideoEmbedder]:
    """Yield an embedder of clips as in a run, with the demo's model, whose log is below `folder`; nothing is cached."""
    objects, config = ObjectStore(StoreSettings()), EncoderConfig(model=str(TINY_ENCODER))
    log_path = folder / "encoder.log"
    with (
        EncoderProcess(config, log_path=log_path, start_timeout_s=_START_TIMEOUT_S) as encoder,
        TemporaryDirectory(prefix="reelabel-") as kept,
    ):
        root = f"file://{kept}"
        yield VideoEmbedder(
            extractor=FrameExtractor(
                objects=objects,
                cache=FrameCache(objects, root),
                pool=pool,
                sampling=Sampling(max_pixels=602_112, size_multiple_px=28),
                limits=Limits(),
            ),
            reader=VideoReader(objects=objects, pool=pool, limits=Limits()),
            cache=VectorCache(objects=objects, root_uri=root),
            frames=FrameBatcher(encoder=encoder, batch_frames=config.batch_frames),
            spec=EmbeddingSpec(model=read_model_info(str(TINY_ENCODER)).identity),
            info=encoder.info(),
        )


def measure_encoders(folder: Path, *, rounds: int) -> list[dict[str, Any]]:
    """Embed noise with SigLIP base (random weights) on the CPU, whose vectors are the reference, and on the GPU if any.

    Raises:
        ModelError: An encoder does not load.
    """
    model = str(make_siglip(folder, layers=SIGLIP_LAYERS).resolve())
    rows, found = [], []
    for device, count in [(_NO_GPU, _FRAMES["cpu"]), *((gpu, _FRAMES["cuda"]) for gpu in visible_gpus()[:1])]:
        free_bytes, _ = gpu_memory_bytes()
        config, log_path = EncoderConfig(model=model, devices=(device,)), folder / "logs" / "encoders.log"
        with EncoderProcess(config, log_path=log_path, start_timeout_s=_START_TIMEOUT_S) as encoder:
            info = encoder.info()
            videos = [
                np.random.default_rng(seed).integers(0, 256, _SHAPE, np.uint8) for seed in range(count // _SHAPE[0])
            ]
            found.append(encoder.embed_images(videos[:1]))
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
                "largest_difference": round(float(np.abs(found[0] - found[-1]).max()), 5),
                "least_cosine": round(float((found[0] * found[-1]).sum(1).min()), 5),
            }
        )
    return rows
