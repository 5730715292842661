"""What keeps the towers waiting: the flow `describe`, cold and with cached frames, beside the towers alone."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from sqlalchemy import func, select

from benchmarks.cores import Cores, engine_binding
from benchmarks.describe.model import make_model
from benchmarks.media.footage import make_footage
from benchmarks.pipeline.flow_run import run_here
from benchmarks.services import variables
from flows.describe import describe
from flows.run.parameters import DescribeParameters
from flows.run.purposes.descriptions import Descriptions
from flows.run.request import RunRequest
from infra.database.connect import connected
from infra.embedded import export
from reelabel.sources.object_store import ObjectStore
from tasks.database.tables import DESCRIPTION, RUN
from tasks.domain import DescribeSpec, Job, RunPhase
from tasks.embedding.batches import EmbeddedFrames
from tasks.embedding.embedding_file import EmbeddingCache
from tasks.embedding.opened import open_towers
from tasks.embedding.pack_file import PackFiles
from tasks.embedding.process import TowersProcess
from tasks.embedding.video import VideoEmbedder, frame_pixels
from tasks.frame_cache.pool import decode_pool, open_extractor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from uuid import UUID

    import numpy.typing as npt

    from infra.settings import Settings
    from reelabel_engine.protocol import TowersInfo
    from tasks.embedding.backend import EmbeddingBackend

_SIDE_PX = 240
_REQUESTS = 2
_UNMEASURED = {RunPhase.SETUP, RunPhase.LOAD, RunPhase.UNLOAD, RunPhase.AUDIT}


@dataclass(frozen=True, slots=True, kw_only=True)
class TowersRow:
    """One contender.

    Attributes:
        frames: Frames embedded in a pass.
        seconds: Of each pass.
        answering: Share of a flow's time in which the towers worked; None for the others.
    """

    name: str
    frames: int
    seconds: tuple[float, ...]
    answering: float | None = None

    @property
    def frames_per_s(self) -> float:
        """Median over the passes."""
        return self.frames / median(self.seconds)


def measure_towers(
    count: int, *, rounds: int, settings: Settings, folder: Path, cores: Cores, on_progress: Callable[[str], None]
) -> list[TowersRow]:
    """Measure the towers alone, extraction alone, and the flow: cold, and with the frames of another model's run.

    Args:
        count: Clips, of 30 to 45 s.
        rounds: Passes of each.
        settings: With the services' addresses.
        folder: Folder that keeps clips and models.
        cores: Those of the towers, and those of everything else.
        on_progress: Called with a description of each step.
    """
    models = [str(make_model(folder, seed=seed).resolve()) for seed in (0, 1)]
    clips = make_footage(folder, count=count, width_px=_SIDE_PX, height_px=_SIDE_PX)
    manifest = _store(clips, settings)
    passes: dict[str, list[tuple[float, float | None]]] = {}
    frames: list[npt.NDArray[np.uint8]] = []
    with variables({"OMP_NUM_THREADS": str(max(1, len(cores.engine)))}):
        for number in range(rounds):
            own = _with_store(settings, f"{settings.store.uri}/round-{number}")
            on_progress("extraction alone")
            frames, seconds = _extract(clips, _with_store(own, f"{own.store.uri}/extraction"), models[0])
            passes.setdefault("extraction alone", []).append((seconds, None))
            on_progress("towers alone")
            passes.setdefault("towers alone", []).append((_embed(frames, own, models[0], cores), None))
            for name, model in zip(("describe, cold", "describe, frames cached"), models, strict=True):
                on_progress(name)
                passes.setdefault(name, []).append(_describe(manifest, own, model, cores, dataset=f"{name} {number}"))
    total = sum(map(len, frames))
    return [
        TowersRow(
            name=name,
            frames=total,
            seconds=tuple(seconds for seconds, _ in each),
            answering=median(share for _, share in each if share is not None) if each[0][1] is not None else None,
        )
        for name, each in passes.items()
    ]


def _with_store(settings: Settings, uri: str) -> Settings:
    return settings.model_copy(update={"store": replace(settings.store, uri=uri)})


def _store(clips: Sequence[Path], settings: Settings) -> str:
    """Put clips on the store, with a manifest; return its URI."""
    objects, root = ObjectStore(settings.store), f"{settings.store.uri}/clips"
    for clip in clips:
        objects.replace(f"{root}/{clip.name}", clip.read_bytes())
    rows = {"job_id": [clip.stem for clip in clips], "video_uri": [f"{root}/{clip.name}" for clip in clips]}
    path = settings.home / "manifest.parquet"
    pl.DataFrame(rows).write_parquet(path)
    objects.replace(f"{root}/manifest.parquet", path.read_bytes())
    return f"{root}/manifest.parquet"


def _spec(settings: Settings, model: str) -> tuple[Any, DescribeSpec]:
    options = DescribeParameters(model=model)
    card, spec = Descriptions().resolve(RunRequest(kind="describe", manifest="", describes=options), settings)
    assert isinstance(spec, DescribeSpec)
    return card, spec


@contextmanager
def _bound(towers: EmbeddingBackend, cores: Cores) -> Iterator[EmbeddingBackend]:
    assert isinstance(towers, TowersProcess)
    with towers:
        assert towers.pid is not None
        with engine_binding(towers.pid, cores):
            yield towers


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


def _extract(clips: Sequence[Path], settings: Settings, model: str) -> tuple[list[npt.NDArray[np.uint8]], float]:
    """Do all that comes before and after the towers for a video's embeddings; return the frames, and seconds."""
    card, spec = _spec(settings, model)
    with open_towers(settings, card) as towers:
        info: TowersInfo = towers.wait_ready()
    processes = settings.extract.processes or len(Cores.split().host) or 1
    instant, objects = _Instant(info.dimensions), ObjectStore(settings.store)
    assert settings.store.uri is not None
    with decode_pool(settings, processes=processes) as pool:
        extractor = open_extractor(settings, pool, spec.sampling(max_pixels=frame_pixels(info)), keep_bytes=1 << 28)
        embedder = VideoEmbedder(
            extractor=extractor,
            reader=extractor,
            cache=EmbeddingCache.of(settings.store, objects),
            packs=PackFiles.of(settings.store, objects),
            frames=instant,  # type: ignore[arg-type]
            spec=spec,
            info=info,
        )
        root = f"{settings.store.uri.partition('/round-')[0]}/clips"
        jobs = [Job(job_id=clip.stem, video_uri=f"{root}/{clip.name}", prompt="", choices=()) for clip in clips]
        began_s = time.perf_counter()
        with ThreadPoolExecutor(processes * (1 + settings.extract.lookahead_shards)) as threads:
            list(threads.map(embedder.embed, jobs))
        return instant.frames, time.perf_counter() - began_s


def _embed(frames: Sequence[npt.NDArray[np.uint8]], settings: Settings, model: str, cores: Cores) -> float:
    """Embed frames by the towers alone, with the next request always waiting; return seconds."""
    card, _ = _spec(settings, model)
    with _bound(open_towers(settings, card), cores) as towers:
        towers.wait_ready()
        towers.embed_frames([frames[0][:16]])
        left, lock = list(frames), threading.Lock()

        def work(_: int) -> None:
            while True:
                with lock:
                    group = [left.pop() for _ in range(min(2, len(left)))]
                if not group:
                    return
                towers.embed_frames(group)

        began_s = time.perf_counter()
        with ThreadPoolExecutor(_REQUESTS) as threads:
            list(threads.map(work, range(_REQUESTS)))
        return time.perf_counter() - began_s


def _describe(
    manifest: str, settings: Settings, model: str, cores: Cores, *, dataset: str
) -> tuple[float, float | None]:
    """Run the flow; return seconds from the loaded towers to the last row, and the towers' share of them."""
    parameters = {"manifest": manifest, "dataset": dataset, "options": {"model": model}}
    with variables(export(settings)), _towers_bound(cores):
        run_id = run_here(describe, parameters)
    return _timing(settings, run_id)


def _timing(settings: Settings, run_id: UUID) -> tuple[float, float]:
    with connected(settings.database) as engine, engine.connect() as connection:
        run: Any = connection.execute(select(RUN).where(RUN.c.run_id == run_id)).mappings().one()
        embedded = select(func.sum(DESCRIPTION.c.frames_embedded)).where(DESCRIPTION.c.run_id == run_id)
        assert connection.execute(embedded).scalar_one()
    spent_ms = {part: ms for part, ms in run["wall_ms"].items() if part not in _UNMEASURED}
    total_ms = sum(spent_ms.values())
    return total_ms / 1e3, spent_ms.get(RunPhase.ANSWER, 0.0) / total_ms


@contextmanager
def _towers_bound(cores: Cores) -> Iterator[None]:
    """Keep the towers that a flow starts on their cores."""
    begin, bindings = TowersProcess._begin, ExitStack()  # noqa: SLF001 - wherever the flow starts them

    def bound(self: TowersProcess) -> Any:  # noqa: ANN401
        life = begin(self)
        bindings.enter_context(engine_binding(life.process.pid, cores))
        return life

    TowersProcess._begin = bound  # type: ignore[method-assign]  # noqa: SLF001
    try:
        with bindings:
            yield
    finally:
        TowersProcess._begin = begin  # type: ignore[method-assign]  # noqa: SLF001
