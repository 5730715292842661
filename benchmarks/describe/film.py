"""A long film, described by the real flow: the most memory that each of its processes takes."""

from __future__ import annotations

import contextlib
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import av
import polars as pl
from sqlalchemy import select

from benchmarks.cores import descendants
from benchmarks.media.clips import BenchClip
from benchmarks.pipeline.flow_run import run_here
from benchmarks.repeat import repeating
from benchmarks.services import variables
from flows.describe import describe
from infra.database.connect import connected
from infra.embedded import export
from reelabel.sources.object_store import ObjectStore
from tasks.database.tables import DESCRIPTION
from tasks.embedding.encoder import TINY_ENCODER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from infra.settings import Settings

_WIDTH_PX, _HEIGHT_PX, _GOP = 240, 136, 60
_POLL_S = 0.2
_PROCESSES = {"reelabel_engine": "encoder", "reelabel.pool.child": "decoding"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FilmRow:
    """One run.

    Attributes:
        hours: Length of the film.
        seconds: Of the whole flow.
        chunks: Chunks described.
        frames_embedded: Frames embedded.
        frames_decoded: Frames decoded.
        before_bytes: Physical memory of the flow's process before the run.
        peak_bytes: Most physical memory of a process, by what it does.
    """

    hours: float
    seconds: float
    chunks: int
    frames_embedded: int
    frames_decoded: int
    before_bytes: int
    peak_bytes: Mapping[str, int]


def measure_film(
    hours: float, *, settings: Settings, folder: Path, as_ts: bool, on_progress: Callable[[str], None]
) -> FilmRow:
    """Describe a film of small pictures once.

    Args:
        hours: Its length.
        settings: With the services' addresses.
        folder: Folder that keeps the film.
        as_ts: As MPEG-TS instead of as MP4.
        on_progress: Called with a description of each step.
    """
    on_progress(f"making a film of {hours:g} h")
    film = _make(hours, folder)
    manifest = _store(_as_ts(film) if as_ts else film, settings)
    on_progress("describing it")
    before_bytes = _status("self", "VmRSS")
    with variables({"REELABEL_DESCRIBE_MODEL": str(TINY_ENCODER)} | export(settings)), _peaks() as peak_bytes:
        began_s = time.perf_counter()
        run_id = run_here(describe, {"manifest": manifest, "dataset": f"film of {hours:g} h"})
        seconds = time.perf_counter() - began_s
    names = ("chunks", "frames_embedded", "frames_decoded")
    query = select(*(DESCRIPTION.c[name] for name in names)).where(DESCRIPTION.c.run_id == run_id)
    with connected(settings.database) as engine, engine.connect() as connection:
        found = connection.execute(query).one()
    return FilmRow(
        hours=hours,
        seconds=seconds,
        before_bytes=before_bytes,
        peak_bytes=peak_bytes,
        **dict(zip(names, found, strict=True)),
    )


def _make(hours: float, folder: Path) -> Path:
    length_s = max(60, round(hours * 3600))
    return BenchClip(width_px=_WIDTH_PX, height_px=_HEIGHT_PX, gop=_GOP, length_s=length_s).make(folder)


def _as_ts(film: Path) -> Path:
    path = film.with_suffix(".ts")
    if not path.exists():
        with av.open(str(film)) as source, av.open(str(path), "w", format="mpegts") as target:
            stream = target.add_stream_from_template(source.streams.video[0])
            for packet in source.demux(video=0):
                if packet.size:
                    packet.stream = stream
                    target.mux(packet)
    return path


def _store(film: Path, settings: Settings) -> str:
    objects, root = ObjectStore(settings.store), f"{settings.store.uri}/films"
    objects.replace(f"{root}/{film.name}", film.read_bytes())
    path = settings.home / f"{film.stem}.parquet"
    pl.DataFrame({"job_id": ["film"], "video_uri": [f"{root}/{film.name}"]}).write_parquet(path)
    return str(path)


@contextmanager
def _peaks() -> Iterator[dict[str, int]]:
    """Measure the peaks of this process and of those that it starts while the body runs."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is reset to what is in use
    found: dict[str, int] = {}

    def look() -> None:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(OSError, StopIteration, IndexError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
                name = next(name for module, name in _PROCESSES.items() if module in command)
                found[name] = max(found.get(name, 0), _status(str(pid), "VmHWM"))

    with repeating(look, every_s=_POLL_S):
        yield found
    found["flow"] = _status("self", "VmHWM")


def _status(pid: str, name: str) -> int:
    """Return a size in bytes of /proc/PID/status."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024
