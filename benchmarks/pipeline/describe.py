"""Compares the flow `describe`, cold and with cached frames, with the image-text model alone."""

from __future__ import annotations

import io
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from sqlalchemy import func, select

from benchmarks.cores import Cores, engine_binding
from benchmarks.harness import Column, Table, Target, run_flow, time_ms, variables
from benchmarks.media.footage import make_footage
from benchmarks.models import make_siglip
from benchmarks.pipeline.flow import measured_ms
from flows.run.descriptions import resolve_request
from flows.run.request import DescribeRequest
from flows.runs import describe
from infra.database.connect import connected
from infra.settings import DescribeOptions
from reelabel.sources.object_store import ObjectStore
from tasks.database.tables import DESCRIPTION, RUN
from tasks.domain import DescribeSpec, Job, RunPhase
from tasks.embedding.batches import EmbeddedFrames
from tasks.embedding.encoder import EncoderProcess, open_encoder
from tasks.embedding.vector_file import VectorCache
from tasks.embedding.video import VideoEmbedder, frame_pixels
from tasks.frame_cache.pool import decode_pool, open_extractor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from infra.settings import Settings

EXTRACTION, ENCODER = "extraction alone", "image-text model alone"
COLD, CACHED = "describe, cold", "describe, frames cached"
_COLD_SHARE, _CACHED_SHARE = 0.9, 0.95
_SIDE_PX = 240
_REQUESTS = 2
_COLUMNS = (
    Column("", "name"),
    Column("frames/s", "frames_per_s", ".1f"),
    Column("of the model alone", "of_model", ".2f"),
    Column("of the slower side alone", "of_slower", ".2f"),
    Column("model at work", "answering", ".0%"),
)


def compare(
    settings: Settings, folder: Path, cores: Cores, *, count: int, rounds: int, show: Callable[[str], None]
) -> tuple[list[Table], list[Target], dict[str, Any]]:
    """Compare the flow on so many clips of 30 to 45 s with both its sides alone."""
    rows = _measure(count, rounds, settings, folder, cores, show)
    rate = {row["name"]: row["frames_per_s"] for row in rows}
    slower = min(rate[ENCODER], rate[EXTRACTION])
    for row in rows:
        row |= {"of_model": row["frames_per_s"] / rate[ENCODER], "of_slower": row["frames_per_s"] / slower}
    targets = [
        Target(f"{COLD} / slower side alone", rate[COLD] / slower, least=_COLD_SHARE),
        Target(f"{CACHED} / model alone", rate[CACHED] / rate[ENCODER], least=_CACHED_SHARE),
    ]
    title = f"{count} clips, {rows[0]['frames']:,} frames; medians of {rounds} rounds"
    return [Table(title, rows, _COLUMNS)], targets, {"cores": str(cores).replace("engine is", "model is")}


def _measure(
    count: int, rounds: int, settings: Settings, folder: Path, cores: Cores, show: Callable[[str], None]
) -> list[dict[str, Any]]:
    models = [str(make_siglip(folder, seed=seed).resolve()) for seed in (0, 1)]
    clips = make_footage(folder, count=count, width_px=_SIDE_PX, height_px=_SIDE_PX)
    manifest = _upload(clips, settings)
    passes: dict[str, list[tuple[float, float | None]]] = {name: [] for name in (EXTRACTION, ENCODER, COLD, CACHED)}
    frames: list[npt.NDArray[np.uint8]] = []
    with variables({"OMP_NUM_THREADS": str(max(1, len(cores.engine)))}):
        for number in range(rounds):
            own = _with_store(settings, f"{settings.store.uri}/round-{number}")
            show(EXTRACTION)
            videos = [f"{settings.store.uri}/clips/{clip.name}" for clip in clips]
            frames, seconds = _extract(videos, _with_store(own, f"{own.store.uri}/extraction"), models[0], cores)
            passes[EXTRACTION].append((seconds, None))
            show(ENCODER)
            passes[ENCODER].append((_embed(frames, own, models[0], cores), None))
            for name, model in ((COLD, models[0]), (CACHED, models[1])):  # another model finds the frames cached
                show(name)
                passes[name].append(_describe(manifest, own, model, cores, dataset=f"{name} {number}"))
    total = sum(map(len, frames))
    return [
        {
            "name": name,
            "frames": total,
            "seconds": [seconds for seconds, _ in each],
            "frames_per_s": total / median(seconds for seconds, _ in each),
            "answering": median(share for _, share in each if share is not None) if each[0][1] is not None else None,
        }
        for name, each in passes.items()
    ]


def _with_store(settings: Settings, uri: str) -> Settings:
    return settings.model_copy(update={"store": replace(settings.store, uri=uri)})


def _upload(clips: Sequence[Path], settings: Settings) -> str:
    """Put clips on the store, with a manifest; return its URI."""
    objects, root = ObjectStore(settings.store), f"{settings.store.uri}/clips"
    for clip in clips:
        objects.replace(f"{root}/{clip.name}", clip.read_bytes())
    rows = {"job_id": [clip.stem for clip in clips], "video_uri": [f"{root}/{clip.name}" for clip in clips]}
    sink = io.BytesIO()
    pl.DataFrame(rows).write_parquet(sink)
    objects.replace(f"{root}/manifest.parquet", sink.getvalue())
    return f"{root}/manifest.parquet"


def _spec(settings: Settings, model: str) -> tuple[Any, DescribeSpec]:
    request = DescribeRequest(manifest="-", options=DescribeOptions(model=model))
    model_info, spec, _ = resolve_request(request, settings)
    return model_info, spec


class _Instant:
    """Keeps frames instead of embedding them."""

    def __init__(self, dimensions: int) -> None:
        self.frames: list[npt.NDArray[np.uint8]] = []
        self._vector = np.full(dimensions, dimensions**-0.5, np.float32)

    def start(self) -> None:
        """Start nothing."""

    def embed(self, frames: npt.NDArray[np.uint8]) -> EmbeddedFrames:
        self.frames.append(frames)
        return EmbeddedFrames(np.tile(self._vector, (len(frames), 1)), 0.0)


def _extract(
    videos: Sequence[str], settings: Settings, model: str, cores: Cores
) -> tuple[list[npt.NDArray[np.uint8]], float]:
    """Do all that comes before and after the model for a video's embeddings; return the frames, and seconds."""
    model_info, spec = _spec(settings, model)
    with open_encoder(settings, model_info) as encoder:
        info = encoder.info()
    processes = settings.extract.processes or len(cores.host) or 1
    instant, objects = _Instant(info.dimensions), ObjectStore(settings.store)
    with decode_pool(settings, processes=processes) as pool:
        extractor = open_extractor(settings, pool, spec.sampling(max_pixels=frame_pixels(info)), keep_bytes=1 << 28)
        embedder = VideoEmbedder(
            extractor=extractor,
            cache=VectorCache.of(settings.store, objects),
            frames=instant,  # type: ignore[arg-type]
            spec=spec,
            info=info,
        )
        jobs = [Job(job_id=uri, video_uri=uri, prompt="", choices=()) for uri in videos]
        with ThreadPoolExecutor(processes * (1 + settings.extract.lookahead_shards)) as threads:
            took_ms = time_ms(lambda: list(threads.map(embedder.embed, jobs)))
        return instant.frames, took_ms / 1e3


def _embed(frames: Sequence[npt.NDArray[np.uint8]], settings: Settings, model: str, cores: Cores) -> float:
    """Embed frames by the model alone, with the next request always waiting; return seconds."""
    model_info, _ = _spec(settings, model)
    opened: Any = open_encoder(settings, model_info)
    with opened as encoder, engine_binding(opened.pid, cores):
        encoder.info()
        encoder.embed_images([frames[0][:16]])
        left, lock = list(frames), threading.Lock()

        def work(_: int) -> None:
            while True:
                with lock:
                    group = [left.pop() for _ in range(min(2, len(left)))]
                if not group:
                    return
                encoder.embed_images(group)

        began_s = time.perf_counter()
        with ThreadPoolExecutor(_REQUESTS) as threads:
            list(threads.map(work, range(_REQUESTS)))
        return time.perf_counter() - began_s


def _describe(manifest: str, settings: Settings, model: str, cores: Cores, *, dataset: str) -> tuple[float, float]:
    """Run the flow; return seconds from the loaded model to the last row, and the model's share of them."""
    parameters = {"manifest": manifest, "dataset": dataset, "options": {"model": model}}
    with _encoder_bound(cores):
        run_id = run_flow(describe, parameters, settings)
    with connected(settings.database) as engine, engine.connect() as connection:
        run: Any = connection.execute(select(RUN).where(RUN.c.run_id == run_id)).mappings().one()
        embedded = select(func.sum(DESCRIPTION.c.frames_embedded)).where(DESCRIPTION.c.run_id == run_id)
        assert connection.execute(embedded).scalar_one()
    spent_ms = measured_ms(run)
    total_ms = sum(spent_ms.values())
    return total_ms / 1e3, spent_ms.get(RunPhase.ANSWER, 0.0) / total_ms


@contextmanager
def _encoder_bound(cores: Cores) -> Iterator[None]:
    """Keep the model that a flow starts on its cores."""
    begin, bindings = EncoderProcess._begin, ExitStack()  # noqa: SLF001 - wherever the flow starts it

    def bound(self: EncoderProcess) -> Any:  # noqa: ANN401
        running = begin(self)
        bindings.enter_context(engine_binding(running.process.pid, cores))
        return running

    EncoderProcess._begin = bound  # type: ignore[method-assign]  # noqa: SLF001
    try:
        with bindings:
            yield
    finally:
        EncoderProcess._begin = begin  # type: ignore[method-assign]  # noqa: SLF001
