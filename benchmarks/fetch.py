"""`reelabel bench fetch`: bytes and milliseconds from a real S3 server to sixteen frames."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.loaders import SAMPLING, Limit
from tasks.frames.remote import RemoteVideo
from tasks.video.boxes import walk_boxes
from tasks.video.extract import extract_by_ranges, extract_keyframes
from tasks.video.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from benchmarks.clips import BenchClip
    from infra.objects import ObjectInfo, ObjectStore
    from tasks.video.table import KnownIndex

_BOX_HEAD_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRow:
    """What one clip takes; milliseconds are medians and hold the decode.

    Attributes:
        file_bytes: Length of the clip.
        needed_bytes: Header, index and picked keyframes.
        parts_bytes: Bytes read in parts.
        cached_bytes: Bytes read in parts, the index known.
    """

    clip: BenchClip
    file_bytes: int
    needed_bytes: int
    parts_bytes: int
    cached_bytes: int
    whole_ms: float
    parts_ms: float
    cached_ms: float

    @property
    def overhead(self) -> float:
        """Bytes read for each byte needed."""
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
    """Measure download, parts, and parts with a known header, in turn within a round.

    Args:
        clips: What to measure on.
        folder: Where clips are made once.
        objects: The store.
        root_uri: Where on it the clips are put.
        rounds: How often each way is taken.
    """
    for clip in clips:
        path = clip.make(folder)
        uri = f"{root_uri}/{path.name}"
        objects.replace(uri, path.read_bytes())
        yield _measure(clip, path, objects, objects.stat(uri), rounds)


def _measure(clip: BenchClip, path: Path, objects: ObjectStore, info: ObjectInfo, rounds: int) -> FetchRow:
    source, copy = RemoteVideo(objects, info), path.with_suffix(".download")
    keyframes, index = extract_by_ranges(source, sampling=SAMPLING, limits=Limits())
    again, _ = extract_by_ranges(source, sampling=SAMPLING, limits=Limits(), known=index)

    def fetch_whole() -> None:
        objects.download(info.uri, copy, fingerprint=info.fingerprint)
        extract_keyframes(copy, sampling=SAMPLING, limits=Limits())

    def fetch_parts(known: KnownIndex = ()) -> None:
        extract_by_ranges(source, sampling=SAMPLING, limits=Limits(), known=known)

    ways = (fetch_whole, fetch_parts, lambda: fetch_parts(index))
    times = [[_time_ms(way) for way in ways] for _ in range(rounds)]
    copy.unlink()
    whole_ms, parts_ms, cached_ms = map(median, zip(*times, strict=True))
    return FetchRow(
        clip=clip,
        file_bytes=info.size_bytes,
        needed_bytes=_header_bytes(path) + Limit(path).size_bytes,
        parts_bytes=keyframes.bytes_fetched,
        cached_bytes=again.bytes_fetched,
        whole_ms=whole_ms,
        parts_ms=parts_ms,
        cached_ms=cached_ms,
    )


def _header_bytes(path: Path) -> int:
    """Count the bytes of all boxes but the media's own, of which only the head."""
    with path.open("rb") as file:
        boxes = list(walk_boxes(file, path.stat().st_size))
    return sum(_BOX_HEAD_BYTES if box.kind == b"mdat" else box.span.size for box in boxes)


def _time_ms(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1e3
