"""Requests, bytes and milliseconds from a tar on a real S3 server to the keyframes of one clip in it."""

from __future__ import annotations

import io
import tarfile
import time
from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.extraction.loaders import SAMPLING
from benchmarks.media.clips import BenchClip
from reelabel.errors import ReelabelError
from reelabel.extract import extract_ranges
from reelabel.frames.cache import FrameCache
from reelabel.limits import Limits
from reelabel.sources.object_info import split_member
from reelabel.sources.object_store import ObjectStore
from reelabel.sources.source import StoredSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from infra.settings import StoreSettings
    from reelabel.sampled_frames import SampledFrames
    from reelabel.sources.object_info import ObjectInfo

CLIP = BenchClip(width_px=1920, height_px=1080, gop=60, length_s=30)
ALONE, NEW, KNOWN, COPIED = "as a file of its own", "in the tar", "in the tar, index saved", "whole tar, copied"


class Cost(NamedTuple):
    """What one way has taken, once."""

    requests: int
    bytes_read: int
    ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRow:
    """Cost of one way to the keyframes of the clip, or of copying the whole archive; medians.

    Attributes:
        way: Where the clip is, and what is known of it.
        requests: Requests for what an object is, and for its bytes.
        bytes_read: Bytes read of the clip, its archive, and the saved index.
        ms: Milliseconds, with decoding.
        archive_bytes: Size of the archive.
        members: Number of clips in it.
    """

    way: str
    requests: int
    bytes_read: int
    ms: float
    archive_bytes: int
    members: int


class _CountingStore(ObjectStore):
    """Counts requests for objects; those for members become requests for their archive."""

    def __init__(self, store: StoreSettings, cache_uri: str) -> None:
        super().__init__(store, archive_indexes=FrameCache(self, cache_uri))
        self.sizes: list[int] = []  # of what each request has brought; several threads append to it

    def stat(self, uri: str) -> ObjectInfo:
        info = super().stat(uri)
        self._count(uri, 0)
        return info

    def read(self, uri: str, *, fingerprint: str | None = None, max_bytes: int | None = None) -> bytes:
        data = super().read(uri, fingerprint=fingerprint, max_bytes=max_bytes)
        self._count(uri, len(data))
        return data

    def read_range(self, uri: str, *, start: int, size: int, fingerprint: str) -> bytes:
        data = super().read_range(uri, start=start, size=size, fingerprint=fingerprint)
        self._count(uri, len(data))
        return data

    def _count(self, uri: str, size: int) -> None:
        if split_member(uri) is None:
            self.sizes.append(size)


def measure_archive(
    clip: BenchClip, folder: Path, *, store: StoreSettings, root_uri: str, megabytes: int, rounds: int
) -> Iterator[ArchiveRow]:
    """Measure a clip in a tar, without and with its saved index, beside the same clip as a file of its own.

    Args:
        clip: The clip.
        folder: Folder that keeps it.
        store: Settings of the store.
        root_uri: Where clip and archive are uploaded.
        megabytes: Size of the archive, which holds the clip many times, by different names.
        rounds: Repetitions.

    Raises:
        ReelabelError: The frames of the member are not those of the file.
    """
    path, objects = clip.make(folder), ObjectStore(store)
    members = max(1, megabytes * 10**6 // path.stat().st_size)
    alone, archive = f"{root_uri}/{path.name}", f"{root_uri}/{path.stem}.tar"
    objects.replace(alone, path.read_bytes())
    packed = _pack(path, members)
    size_bytes = packed.stat().st_size
    objects.replace(archive, packed.read_bytes())
    packed.unlink()
    member = f"{archive}#{_name(members // 2)}"
    costs: dict[str, list[Cost]] = defaultdict(list)
    for number in range(rounds):
        cache_uri = f"{root_uri}/cache-{number}"
        frames = []
        for way, uri in ((ALONE, alone), (NEW, member), (KNOWN, member)):
            got, cost = _extract(_CountingStore(store, cache_uri), uri)
            frames.append(got.images)
            costs[way].append(cost)
        if not all(np.array_equal(images, frames[0]) for images in frames):
            raise ReelabelError("The frames of the member are not those of the file.")
        costs[COPIED].append(_download(objects, archive, packed))
    for way, taken in costs.items():
        requests, bytes_read, ms = map(median, zip(*taken, strict=True))
        yield ArchiveRow(
            way=way,
            requests=round(requests),
            bytes_read=round(bytes_read),
            ms=ms,
            archive_bytes=size_bytes,
            members=members,
        )


def _extract(objects: _CountingStore, uri: str) -> tuple[SampledFrames, Cost]:
    """Extract keyframes as a process does that has read nothing yet."""
    started = time.perf_counter()
    source = StoredSource(objects, objects.stat(uri))
    got, _ = extract_ranges(source, sampling=SAMPLING, limits=Limits())
    return got, Cost(len(objects.sizes), sum(objects.sizes), _since(started))


def _download(objects: ObjectStore, uri: str, path: Path) -> Cost:
    started = time.perf_counter()
    size = objects.download(uri, path)
    path.unlink()
    return Cost(1, size, _since(started))


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1e3


def _pack(clip: Path, members: int) -> Path:
    packed = clip.with_suffix(".tar")
    data = clip.read_bytes()
    with tarfile.open(packed, "w") as archive:
        for number in range(members):
            info = tarfile.TarInfo(_name(number))
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return packed


def _name(number: int) -> str:
    return f"clips/{number:05d}.mp4"
