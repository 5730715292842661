"""Bytes and milliseconds from an S3 server to sixteen frames: keyframes, and frames between them, by ranges."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import av
import numpy as np

from benchmarks.extraction.loaders import SAMPLING, UNIFORM_SAMPLING, BareDecode, Limit
from benchmarks.harness import Column, Table, Target, medians, own_store, paired, race, ratio
from benchmarks.media.clips import bench_clips
from reelabel.containers.mp4_sample_table import walk_boxes
from reelabel.cores import usable_cores
from reelabel.extract import extract_local, extract_ranges
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.segment import WHOLE, Segment
from reelabel.sources.source import StoredSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from benchmarks.harness import Row
    from benchmarks.media.clips import BenchClip
    from reelabel.result import Frames
    from reelabel.sources.object_store import ObjectInfo, ObjectStore

FETCHED = (
    Column("clip", "clip"),
    Column("file", "file_bytes", ","),
    Column("header, index, picks", "needed_bytes", ","),
    Column("read", "read_bytes", ","),
    Column("index cached", "cached_bytes", ","),
    ratio("read / needed", "read_bytes", "needed_bytes"),
    Column("read / file", lambda row: row["read_bytes"] / row["file_bytes"], ".2%"),
    Column("download, ms", "whole", ",.1f"),
    Column("parts, ms", "parts", ",.1f"),
    Column("index cached, ms", "cached", ",.1f"),
    ratio("locked process / unlocked", "locked", "unlocked"),
)
RANGES = (
    Column("clip", "clip"),
    Column("file, bytes", "file_bytes", ","),
    Column("read", "read_bytes", ","),
    ratio("read / needed", "read_bytes", "needed_bytes"),
    Column("fewer", lambda row: row["file_bytes"] / row["read_bytes"], ".1fx"),
    Column("one decoder, ms", "before", ",.1f"),
    Column("download, ms", "download", ",.1f"),
    Column("ranges, ms", "ranges", ",.1f"),
    Column("FFmpeg alone, ms", "bare", ",.1f"),
    Column("one decoder / ranges", "gain", ".2fx"),
    Column("download / ranges", "speedup", ".2fx"),
    Column("bound", "bound", ".2fx"),
)
_BOX_HEAD_BYTES = 16
_WHOLE_S, _FILM_S, _SEGMENT_S = 600, 3600, 30
_MOST_OVERHEAD = 1.25
_POOL = partial(DecodePool, timeout_s=300, memory_mib=4096, threads=1)


class Case(NamedTuple):
    """What is asked of one clip, and by how much ranges should be ahead of a download and a single decoder."""

    clip: BenchClip
    segment: Segment
    least_saving: float
    least_gain: float

    @property
    def name(self) -> str:
        """Name of the case: `640x360-gop60-600s#t=100,130`."""
        return self.clip.name if self.segment.is_whole else f"{self.clip.name}#{self.segment}"


def cases() -> list[Case]:
    """Return the cases: sixteen frames of a whole clip, and of a segment in the middle of a long one."""
    middle = Segment(_FILM_S / 2, _FILM_S / 2 + _SEGMENT_S)
    return [
        *(Case(clip, WHOLE, least_saving=1, least_gain=1) for clip in bench_clips((_WHOLE_S,))),
        *(Case(clip, middle, least_saving=20, least_gain=5) for clip in bench_clips((_FILM_S,))),
    ]


def fetch(lengths_s: tuple[int, ...], folder: Path, *, rounds: int) -> list[Table]:
    with own_store() as (objects, root_uri):
        clips = bench_clips(lengths_s)
        rows = list(measure_fetch(clips, folder, objects=objects, root_uri=root_uri, rounds=rounds))
    return [Table("Sixteen keyframes from S3, bytes and milliseconds (medians)", rows, FETCHED)]


def ranges(wanted: Sequence[Case], folder: Path, *, rounds: int) -> tuple[list[Table], list[Target]]:
    with own_store() as (objects, root_uri):
        rows = list(measure_ranges(wanted, folder, objects=objects, root_uri=root_uri, rounds=rounds))
    targets = []
    for case, row in zip(wanted, rows, strict=True):
        targets += [
            Target(f"{case.name}: same frames", float(row["is_same"]), least=1),
            Target(f"{case.name}: read / needed", row["read_bytes"] / row["needed_bytes"], most=_MOST_OVERHEAD),
            Target(f"{case.name}: times fewer bytes", row["file_bytes"] / row["read_bytes"], least=case.least_saving),
            Target(f"{case.name}: one decoder / ranges", row["gain"], least=case.least_gain),
        ]
    return [Table("Sixteen uniform frames from S3, by a download and by ranges (medians)", rows, RANGES)], targets


def _uploaded(clip: BenchClip, folder: Path, objects: ObjectStore, root_uri: str) -> tuple[Path, ObjectInfo]:
    path = clip.make(folder)
    uri = f"{root_uri}/{path.name}"
    objects.replace(uri, path.read_bytes())
    return path, objects.stat(uri)


def measure_fetch(
    clips: Sequence[BenchClip], folder: Path, *, objects: ObjectStore, root_uri: str, rounds: int
) -> Iterator[Row]:
    """Yield the cost of a download, of parts, and of parts with a cached index, for each clip."""
    with _POOL(sandbox="require") as locked, _POOL(sandbox="off") as unlocked:
        for clip in clips:
            path, info = _uploaded(clip, folder, objects, root_uri)
            source, copy = StoredSource(objects, info), path.with_suffix(".download")
            in_parts = partial(extract_ranges, source, sampling=SAMPLING, limits=Limits())
            keyframes, index = in_parts()
            again, _ = in_parts(known=index)

            def whole(info: ObjectInfo = info, copy: Path = copy) -> None:
                objects.download(info.uri, copy, fingerprint=info.fingerprint)
                extract_local(copy, sampling=SAMPLING, limits=Limits())

            ways: dict[str, Callable[[], object]] = {
                "whole": whole,
                "parts": in_parts,
                "cached": partial(in_parts, known=index),
            }
            pools = {
                name: partial(pool.extract_by_ranges, source, sampling=SAMPLING, limits=Limits())
                for name, pool in (("locked", locked), ("unlocked", unlocked))
            }
            yield {
                "clip": clip.name,
                "file_bytes": info.size_bytes,
                "needed_bytes": header_bytes(path) + Limit(path).size_bytes,
                "read_bytes": keyframes.cost.bytes_fetched,
                "cached_bytes": again.cost.bytes_fetched,
                **medians(race(ways, rounds=rounds, warm_up=False)),
                **medians(race(pools, rounds=rounds)),
            }
            copy.unlink()


def header_bytes(path: Path) -> int:
    """Return the size of all boxes, counting only the head of media data."""
    with path.open("rb") as file:
        boxes = list(walk_boxes(file, path.stat().st_size))
    return sum(_BOX_HEAD_BYTES if box.kind == b"mdat" else box.span.size for box in boxes)


def measure_ranges(
    wanted: Iterable[Case], folder: Path, *, objects: ObjectStore, root_uri: str, rounds: int
) -> Iterator[Row]:
    """Yield the cost of downloads and of ranges, for each case.

    `before` is a download and a single decoder; `download` has as many decoders as `ranges`; `bare` is FFmpeg alone on
    the pictures that ours decodes, from packets in memory, with all cores, so that `bound` is the most that can be
    gained.
    """
    threads = usable_cores()
    for case in wanted:
        path, info = _uploaded(case.clip, folder, objects, root_uri)
        copy = path.with_suffix(".download")
        options = {"sampling": UNIFORM_SAMPLING, "limits": Limits(), "segment": case.segment}

        def download(decoders: int, info: ObjectInfo = info, copy: Path = copy, options: Row = options) -> Frames:
            objects.download(info.uri, copy, fingerprint=info.fingerprint)
            return extract_local(copy, **options, threads=decoders)

        def by_ranges(info: ObjectInfo = info, options: Row = options) -> Frames:
            return extract_ranges(StoredSource(objects, info), **options, threads=threads)[0]

        whole, got = download(threads), by_ranges()
        bare = BareDecode(path, np.unique(whole.selection.frame_index).tolist())
        ways: dict[str, Callable[[], object]] = {
            "before": partial(download, 1),
            "download": partial(download, threads),
            "ranges": by_ranges,
            "bare": partial(bare.decode, threads, skips_leaves=True),
        }
        times = race(ways, rounds=rounds, warm_up=False)
        yield {
            "clip": case.name,
            "file_bytes": info.size_bytes,
            "needed_bytes": header_bytes(path) + _gop_bytes(path, set(whole.selection.pts.tolist())),
            "read_bytes": got.cost.bytes_fetched,
            **medians(times),
            "gain": paired(times, "before", "ranges"),
            "speedup": paired(times, "download", "ranges"),
            "bound": paired(times, "before", "bare"),
            "is_same": np.array_equal(got.unique, whole.unique) and np.array_equal(got.pts, whole.pts),
        }
        copy.unlink()


def _gop_bytes(path: Path, wanted: set[int]) -> int:
    """Return the size of the GOPs that hold wanted frames, from the first to the last byte of each."""
    with av.open(str(path)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
    starts = [number for number, packet in enumerate(packets) if packet.is_keyframe]
    total = 0
    for start, stop in zip(starts, [*starts[1:], len(packets)], strict=True):
        gop = packets[start:stop]
        if any(packet.pts in wanted for packet in gop):
            total += (gop[-1].pos or 0) + gop[-1].size - (gop[0].pos or 0)
    return total
