"""Videos that are embedded, described again by another bank: the real flow, Postgres and S3."""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from benchmarks.describe.model import make_model
from benchmarks.describe.stored import StoredVideos, store_shards, store_videos, write_manifest
from benchmarks.pipeline.flow_run import run_here
from benchmarks.services import variables
from flows.describe import describe
from flows.run.descriptions import resolve_request
from flows.run.parameters import DescribeParameters
from flows.run.request import RunRequest
from infra.database.connect import connected
from infra.embedded import export
from tasks.database.scope import Scope
from tasks.database.tables import DESCRIPTION, DESCRIPTION_CHUNK, RUN
from tasks.domain import DescribeSpec, RunPhase
from tasks.embedding.encoder import open_encoder

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from infra.settings import Settings

_DATASET = "retag"
_FRAMES = ("frames_decoded", "frames_embedded")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetagRow:
    """One run.

    Attributes:
        name: Which run.
        videos: Videos described.
        seconds: Of the whole flow: from the manifest to the audit, with the start of the encoder.
        wall_s: Seconds of it by what the run says it was doing; they sum to nearly all of it.
        stage_s: Seconds of work by stage, summed over threads.
        cpu_s: Seconds of CPU of this process.
        decoded: Frames decoded.
        embedded: Frames embedded.
        chunk_rows: Rows of chunks written.
    """

    name: str
    videos: int
    seconds: float
    wall_s: dict[str, float]
    stage_s: dict[str, float]
    cpu_s: float
    decoded: int
    embedded: int
    chunk_rows: int

    @property
    def videos_per_s(self) -> float:
        """Videos per second of the whole flow."""
        return self.videos / self.seconds

    @property
    def describing_s(self) -> float:
        """Seconds without the start of the encoder, which embeds the bank before the run's first row."""
        return self.seconds - self.stage_s.get(RunPhase.LOAD, 0.0)


def measure_retag(
    count: int,
    *,
    seconds: float,
    shards_only: bool,
    settings: Settings,
    folder: Path,
    on_progress: Callable[[str], None],
) -> list[RetagRow]:
    """Store so many videos that are embedded, describe them, and describe them again by another bank of tags.

    Args:
        count: Videos.
        seconds: Length of each; ten seconds are one chunk of 16 frames.
        shards_only: Store what an earlier run leaves for each shard, instead of making that run.
        settings: With the services' addresses.
        folder: Folder that keeps the model.
        on_progress: Called with a description of each step.

    Raises:
        AssertionError: A frame was decoded or embedded, or a video has no description.
    """
    model = make_model(folder)
    assert settings.store.uri is not None
    own = settings.model_copy(
        update={
            "store": replace(settings.store, uri=f"{settings.store.uri}/{count}"),
            "describe": settings.describe.model_copy(update={"model": str(model.resolve())}),
        }
    )
    videos = StoredVideos(root_uri=f"{own.store.uri}/videos", count=count, seconds=seconds)
    with TemporaryDirectory(prefix="reelabel-banks-") as banks:
        options = {name: DescribeParameters(tags=_bank(Path(banks), name)) for name in ("one bank", "another bank")}
        on_progress("vector files of shards" if shards_only else "vector files")
        manifest = write_manifest(videos, own)
        _store(videos, manifest, own, options["one bank"], shards_only=shards_only)
        if shards_only:
            del options["one bank"]
        rows = []
        for name, chosen in options.items():
            on_progress(f"describing by {name}")
            rows.append(_run(name, manifest, own, chosen, dataset=f"{_DATASET} {count}"))
    for row in rows:
        assert (row.videos, row.decoded, row.embedded) == (count, 0, 0), row
    return rows


def _bank(folder: Path, name: str) -> str:
    path = folder / f"{name}.txt"
    path.write_text("\n".join(f"place {number} of {name}" for number in range(20)))
    return str(path)


def _store(
    videos: StoredVideos, manifest: str, settings: Settings, options: DescribeParameters, *, shards_only: bool
) -> None:
    card, spec, _ = resolve_request(RunRequest(kind="describe", manifest="", describes=options), settings)
    assert isinstance(spec, DescribeSpec)
    with open_encoder(settings, card) as encoder:
        info = encoder.info()
        if shards_only:
            store_shards(videos, manifest, settings, spec=spec, encoder=info)
        else:
            store_videos(videos, settings, spec=spec, encoder=info)


def _run(name: str, manifest: str, settings: Settings, options: DescribeParameters, *, dataset: str) -> RetagRow:
    parameters = {
        "manifest": manifest,
        "dataset": dataset,
        "options": options.model_dump(mode="json", exclude_none=True),
    }
    with variables(export(settings)):
        began_s, began_cpu_s = time.perf_counter(), _cpu_s()
        run_id = run_here(describe, parameters)
        seconds, cpu_s = time.perf_counter() - began_s, _cpu_s() - began_cpu_s
    return _row(name, settings, run_id, seconds=seconds, cpu_s=cpu_s)


def _cpu_s() -> float:
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return spent.ru_utime + spent.ru_stime


def _row(name: str, settings: Settings, run_id: UUID, *, seconds: float, cpu_s: float) -> RetagRow:
    with connected(settings.database) as engine, engine.connect() as connection:
        mine = DESCRIPTION.c.run_id == run_id
        sums = (func.coalesce(func.sum(DESCRIPTION.c[column]), 0) for column in _FRAMES)
        videos, *frames = connection.execute(select(func.count(), *sums).where(mine)).one()
        run: Any = connection.execute(select(RUN).where(RUN.c.run_id == run_id)).mappings().one()
        chunk_rows = Scope.of(run).count(connection, DESCRIPTION_CHUNK)
    return RetagRow(
        name=name,
        videos=videos,
        seconds=seconds,
        wall_s=_in_seconds(run["wall_ms"]),
        stage_s=_in_seconds(run["stage_ms"]),
        cpu_s=cpu_s,
        decoded=int(frames[0]),
        embedded=int(frames[1]),
        chunk_rows=chunk_rows,
    )


def _in_seconds(by_name_ms: dict[str, float]) -> dict[str, float]:
    return {name: ms / 1e3 for name, ms in by_name_ms.items()}
