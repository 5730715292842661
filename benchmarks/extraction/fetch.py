"""Bytes and milliseconds from a real S3 server to sixteen frames."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.clock import time_ms
from benchmarks.extraction.loaders import SAMPLING, Limit
from benchmarks.extraction.locked import Pools, lock_ratio, one_process_pools
from reelabel.containers.mp4_sample_table import walk_boxes
from reelabel.extract import extract_local, extract_ranges
from reelabel.limits import Limits
from reelabel.sources.source import StoredSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.media.clips import BenchClip
    from reelabel.decode.keyframe_table import SavedIndex
    from reelabel.pool.decode_pool import DecodePool
    from reelabel.sources.object_store import ObjectInfo, ObjectStore

_BOX_HEAD_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRow:
    """Cost of one clip; milliseconds are medians and include decoding.

    Attributes:
        file_bytes: Size of the clip.
        needed_bytes: Size of the header, the index and the picked keyframes.
        parts_bytes: Bytes read in parts.
        cached_bytes: Bytes read in parts when the index is cached.
        locked: How many times as long parts take in a locked process as in one that has only limits.
    """

    clip: BenchClip
    file_bytes: int
    needed_bytes: int
    parts_bytes: int
    cached_bytes: int
    whole_ms: float
    parts_ms: float
    cached_ms: float
    locked: float

    @property
    def overhead(self) -> float:
        """Bytes read per byte needed."""
        return self.parts_bytes / self.needed_bytes

    @property
    def share(self) -> float:
        """Bytes read as a share of the file."""
        return self.parts_bytes / self.file_bytes


def measure_fetch(
    clips: Sequence[BenchClip],
    folder: Path,
    *,
    objects: ObjectStore,
    root_uri: str,
    rounds: int,
) -> Iterator[FetchRow]:
    """Measure download, parts, and parts with a cached index, interleaved within a round.

    Args:
        clips: Clips to measure.
        folder: Folder that keeps the clips.
        objects: The store.
        root_uri: Where the clips are uploaded.
        rounds: Repetitions.
    """
    with one_process_pools() as pools:
        for clip in clips:
            path = clip.make(folder)
            uri = f"{root_uri}/{path.name}"
            objects.replace(uri, path.read_bytes())
            yield _measure(clip, path, objects, objects.stat(uri), pools=pools, rounds=rounds)


def _measure(
    clip: BenchClip,
    path: Path,
    objects: ObjectStore,
    info: ObjectInfo,
    *,
    pools: Pools,
    rounds: int,
) -> FetchRow:
    source, copy = StoredSource(objects, info), path.with_suffix(".download")
    keyframes, index = extract_ranges(source, sampling=SAMPLING, limits=Limits())
    again, _ = extract_ranges(source, sampling=SAMPLING, limits=Limits(), known=index)

    def fetch_whole() -> None:
        objects.download(info.uri, copy, fingerprint=info.fingerprint)
        extract_local(copy, sampling=SAMPLING, limits=Limits())

    def fetch_parts(known: SavedIndex = ()) -> None:
        extract_ranges(source, sampling=SAMPLING, limits=Limits(), known=known)

    def fetch_in(pool: DecodePool) -> None:
        pool.extract_by_ranges(source, sampling=SAMPLING, limits=Limits())

    calls = (fetch_whole, fetch_parts, lambda: fetch_parts(index))
    times = [[time_ms(call) for call in calls] for _ in range(rounds)]
    copy.unlink()
    whole_ms, parts_ms, cached_ms = map(median, zip(*times, strict=True))
    return FetchRow(
        clip=clip,
        file_bytes=info.size_bytes,
        needed_bytes=header_bytes(path) + Limit(path).size_bytes,
        parts_bytes=keyframes.bytes_fetched,
        cached_bytes=again.bytes_fetched,
        whole_ms=whole_ms,
        parts_ms=parts_ms,
        cached_ms=cached_ms,
        locked=lock_ratio(pools, fetch_in, rounds=rounds),
    )


def header_bytes(path: Path) -> int:
    """Return the size of all boxes, counting only the head of media data."""
    with path.open("rb") as file:
        boxes = list(walk_boxes(file, path.stat().st_size))
    return sum(_BOX_HEAD_BYTES if box.kind == b"mdat" else box.span.size for box in boxes)
