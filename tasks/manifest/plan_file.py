"""A plan's jobs on the store, in files of up to `SHARDS_PER_FILE` shards.

Each shard is an Arrow IPC stream behind a seal that names the plan and the shard. A file ends with the offsets at which
its shards end, so that a worker reads a shard with one range request, whatever the size of the manifest.
"""

from __future__ import annotations

import io
import json
import math
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate, pairwise, starmap
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import polars as pl
import pyarrow as pa

from infra.errors import PlanForeignError, PlanLostError
from reelabel.errors import ForeignSealError, ObjectChangedError, ObjectMissingError, SealError
from tasks.domain import MAX_JOBS, ONE_VIDEO, MediaCounts, Shard
from tasks.manifest.digests import job_of
from tasks.manifest.media import max_media
from tasks.manifest.schema import JOB_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import TracebackType

    from reelabel.seal import Seal
    from reelabel.sources.object_store import ObjectInfo, ObjectStore

SHARDS_PER_FILE = 256
_COLUMNS = JOB_COLUMNS | {"chunk_s": pl.Float64(), "asks_again": pl.Boolean()}
_COLUMNS |= {"group": pl.String(), "fingerprint": pl.String()}
# With 64-bit offsets: data: URIs may exceed 2 GiB together.
PLAN_SCHEMA = pl.DataFrame(schema=_COLUMNS).to_arrow(compat_level=pl.CompatLevel.oldest()).schema
# Prompts and choices repeat. Zstandard would compress better, but is much slower to write.
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_ENDS = np.dtype("<u8")
_ENDS_BYTES = SHARDS_PER_FILE * _ENDS.itemsize
_CACHED_ENDS = 64


class PlanWriter:
    """Writes shards in order to a folder of the store; buffers one file in memory.

    The files take effect once the plan has its row: see `tasks.plans.plan.open_plan`.

    Attributes:
        jobs: Number of jobs per shard, in order.
        media: The largest numbers of videos and of images that a job shows.
    """

    def __init__(self, objects: ObjectStore, plan_uri: str, *, seal: Seal) -> None:
        self.jobs: list[int] = []
        self.media = ONE_VIDEO
        self._objects = objects
        self._plan_uri = plan_uri
        self._seal = seal
        self._shards: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Write the last file, unless an exception was raised."""
        if kind is None and self._shards:
            self._write_file()
        if kind is None and self.media.are_several:
            uri = _media_uri(self._plan_uri)
            self._objects.replace(uri, self._seal.wrap(uri, json.dumps(self.media).encode()))

    def add(self, rows: pl.DataFrame, sizes: Sequence[int]) -> None:
        """Write shards of `sizes` rows each; columns of PLAN_SCHEMA that are missing are null, or false.

        Raises:
            ConfigurationError: The store denies access.
        """
        rows = rows if "asks_again" in rows.columns else rows.with_columns(asks_again=False)
        named = (pl.col(name) if name in rows.columns else pl.lit(None).alias(name) for name in PLAN_SCHEMA.names)
        if "media" in rows.columns:
            self.media = self.media.larger(max_media(rows))
        table = rows.select(named).to_arrow(compat_level=pl.CompatLevel.oldest()).cast(PLAN_SCHEMA)
        [batch] = table.combine_chunks().to_batches()
        for size, end in zip(sizes, accumulate(sizes), strict=True):
            self._add(batch.slice(end - size, size))

    def _add(self, shard: pa.RecordBatch) -> None:
        stream = io.BytesIO()
        with pa.ipc.new_stream(stream, PLAN_SCHEMA, options=_COMPRESSED) as writer:
            writer.write_batch(shard)
        self._shards.append(self._seal.wrap(_shard_name(self._plan_uri, len(self.jobs)), stream.getvalue()))
        self.jobs.append(shard.num_rows)
        if len(self._shards) == SHARDS_PER_FILE:
            self._write_file()

    def _write_file(self) -> None:
        ends = np.zeros(SHARDS_PER_FILE, _ENDS)
        ends[: len(self._shards)] = np.cumsum(list(map(len, self._shards)))
        self._objects.replace(_file_uri(self._plan_uri, len(self.jobs) - 1), b"".join((*self._shards, ends.tobytes())))
        self._shards = []


def read_media(objects: ObjectStore, plan_uri: str, *, seal: Seal) -> MediaCounts:
    """Read the largest numbers of videos and of images that a job of a plan shows, for which an engine is loaded."""
    uri = _media_uri(plan_uri)
    try:
        videos, images = json.loads(bytes(seal.unwrap(uri, objects.read(uri))))
    except (ObjectMissingError, SealError):  # if it was altered, so were the shards, whose seals fail as well
        return ONE_VIDEO
    return MediaCounts(videos, images)


def read_shard(objects: ObjectStore, plan_uri: str, index: int, *, seal: Seal) -> Shard:
    """Read one shard of a plan, with one range request once the offsets in its file are cached.

    Raises:
        PlanLostError: The plan's files are gone, or were altered.
        PlanForeignError: They were signed with another key.
    """
    uri = _file_uri(plan_uri, index)
    try:
        sealed = _read_sealed(objects, uri, index % SHARDS_PER_FILE)
        batch = _read_jobs(seal.unwrap(_shard_name(plan_uri, index), sealed))
    except (ObjectMissingError, ObjectChangedError):
        raise PlanLostError(
            f"The plan's file {uri} is gone or was replaced; run again to plan the unfinished jobs again."
        ) from None
    except ForeignSealError:
        raise PlanForeignError(
            f"The plan's file {uri} was signed with another store.mac_key, or without one; set the key here that "
            "the machine has where the run was started, or end that run and start it again from here."
        ) from None
    except SealError:
        raise PlanLostError(
            f"The plan's file {uri} was altered or damaged after it was written, so its jobs were not run; check who "
            "can write to the store, and run again to plan the unfinished jobs again."
        ) from None
    return Shard(index=index, jobs=tuple(map(job_of, batch.to_pylist())))


def _read_jobs(stream: memoryview) -> pa.RecordBatch:
    [batch] = pa.ipc.open_stream(stream)
    if batch.num_rows > MAX_JOBS:
        raise SealError("It has more jobs than a shard.")
    return batch


def _read_sealed(objects: ObjectStore, uri: str, place: int) -> bytes:
    info, ends = _read_ends(objects, uri)
    start, end = ends[place], ends[place + 1]
    if start >= end:
        raise SealError("It has no such shard.")
    return objects.read_part(uri, start=start, size=end - start, fingerprint=info.fingerprint)


@lru_cache(maxsize=_CACHED_ENDS)
def _read_ends(objects: ObjectStore, uri: str) -> tuple[ObjectInfo, list[int]]:
    """Stat a file, and read the offsets at which its shards end, after a 0; a file never changes once written.

    The offsets need no seal: a shard that is read from a wrong position has a wrong one.
    """
    info = objects.stat(uri)
    shards_bytes = info.size_bytes - _ENDS_BYTES
    if shards_bytes < 0:
        raise SealError("It is truncated.")
    data = objects.read_part(uri, start=shards_bytes, size=_ENDS_BYTES, fingerprint=info.fingerprint)
    return info, [0, *np.frombuffer(data, _ENDS).clip(max=shards_bytes).tolist()]


def _shard_name(plan_uri: str, index: int) -> str:
    return f"{plan_uri}/{index}"


def _media_uri(plan_uri: str) -> str:
    return f"{plan_uri}/media.json"


def _file_uri(plan_uri: str, index: int) -> str:
    return f"{plan_uri}/{index // SHARDS_PER_FILE:06}.shards"


_SMALLEST_JOBS = 50


class ShardBatch(NamedTuple):
    """Consecutive shards."""

    rows: pl.DataFrame  # their jobs, shard after shard, with jobs on one video adjacent
    sizes: Sequence[int]  # number of jobs per shard, in order


def split_into_shards(parts: Iterable[pl.DataFrame], *, target_jobs: int) -> Iterator[ShardBatch]:
    """Split jobs into shards of about `target_jobs`; yield the shards that each part completes.

    The same jobs yield the same shards, whatever their order in the manifest. Videos with neighbouring names share a
    shard, so that one listing covers all of them. Shards are ordered by a hash, so that folders of long and short
    videos mix, and a run's rate predicts its remaining time. Every shard has 50 to 200 jobs, except that the last may
    be smaller. The jobs on a video are in one shard, except that a video with more than 200 jobs has shards of its own,
    of nearly the same size. A `group` of jobs, of at most 200, is in one shard.
    """
    remainder = pl.DataFrame()
    for part in parts:
        together = pl.coalesce(*(name for name in ("group", "video_uri") if name in part.columns))
        rows = part.sort(together, "video_uri", "job_id")
        videos = rows.select(together.rle().struct.field("len")).to_series()
        jobs = pl.concat([remainder, rows]) if len(remainder) else rows
        shards, open_shard = _cut([*videos], begun=len(remainder), target_jobs=target_jobs)
        if shards:
            uris = jobs["video_uri"]
            shards.sort(key=lambda shard: sha256(uris[shard[0].start].encode()).digest())
            sizes = [sum(map(len, shard)) for shard in shards]
            # One gather for all shards: one per shard would take several times as long as everything else.
            yield ShardBatch(_take(jobs, [video for shard in shards for video in shard]), sizes)
        remainder = _take(jobs, open_shard)
    if len(remainder):
        yield ShardBatch(remainder, [len(remainder)])


def _cut(videos: Sequence[int], *, begun: int, target_jobs: int) -> tuple[list[list[range]], list[range]]:
    """Group consecutive videos, given their numbers of jobs, after `begun` jobs of an open shard.

    Return the complete shards as ranges of rows, and the ranges of the shard that is still open.
    """
    shards: list[list[range]] = []
    group, size, place = [range(begun)] if begun else [], begun, begun
    for jobs in videos:
        video = range(place, place + jobs)
        place += jobs
        if jobs > MAX_JOBS:
            shards += [[piece] for piece in _pieces(video, target_jobs=target_jobs)]
        elif size + jobs <= MAX_JOBS:
            group.append(video)
            size += jobs
        elif size >= _SMALLEST_JOBS:
            shards.append(group)
            group, size = [video], jobs
        else:
            shards.append([video])  # large enough for a shard of its own; the small group keeps growing
        if size >= target_jobs:
            shards.append(group)
            group, size = [], 0
    return shards, group


def _pieces(video: range, *, target_jobs: int) -> Iterator[range]:
    count = max(len(video) // target_jobs, math.ceil(len(video) / MAX_JOBS))
    edges = [video.start + len(video) * piece // count for piece in range(count + 1)]
    return starmap(range, pairwise(edges))


def _take(jobs: pl.DataFrame, videos: Sequence[range]) -> pl.DataFrame:
    places = [np.arange(each.start, each.stop, dtype=np.uint32) for each in videos]
    return jobs[np.concatenate([np.empty(0, np.uint32), *places])]
