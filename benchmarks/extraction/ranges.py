"""Bytes and milliseconds from a real S3 server to sixteen frames between keyframes, by ranges and by a download."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import av
import numpy as np

from benchmarks.clock import time_ms
from benchmarks.extraction.fetch import header_bytes
from benchmarks.media.clips import bench_clips
from benchmarks.torchcodec.bare import BareDecode
from reelabel.cores import usable_cores
from reelabel.extract import extract_local, extract_ranges
from reelabel.limits import Limits
from reelabel.sampling.options import Sampling
from reelabel.segment import WHOLE, Segment
from reelabel.sources.source import StoredSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from benchmarks.media.clips import BenchClip
    from reelabel.sampled_frames import SampledFrames
    from reelabel.sources.object_store import ObjectInfo, ObjectStore

_SAMPLING = Sampling(sampler="uniform", num_frames=16, max_pixels=602_112, size_multiple_px=28)
_MOST_OVERHEAD = 1.25


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RangesRow:
    """Cost of one case; milliseconds are medians of rounds that alternate, and include decoding.

    Attributes:
        needed_bytes: Size of the header, the index and the GOPs that hold a frame.
        before_ms: A download, and a single decoder, as before there were ranges and several decoders.
        bare_ms: FFmpeg alone, on the pictures that ours decodes, from packets in memory, with all cores.
        speedup: Median of the ratios of each round, of a download with as many decoders to ranges.
        gain: The same, of a download with a single decoder to ranges.
        bound: The same, of a download with a single decoder to FFmpeg alone: more gain is not possible.
        is_same: Whether both gave the same frames.
    """

    case: Case
    file_bytes: int
    needed_bytes: int
    read_bytes: int
    before_ms: float
    download_ms: float
    ranges_ms: float
    bare_ms: float
    speedup: float
    gain: float
    bound: float
    is_same: bool

    @property
    def overhead(self) -> float:
        """Bytes read per byte needed."""
        return self.read_bytes / self.needed_bytes

    @property
    def saving(self) -> float:
        """How many times fewer bytes are read than by a download."""
        return self.file_bytes / self.read_bytes

    @property
    def is_met(self) -> bool:
        """Whether the frames are the same, and ranges as far ahead as they should be."""
        is_ahead = self.saving >= self.case.least_saving and self.gain >= self.case.least_gain
        return self.is_same and is_ahead and self.overhead <= _MOST_OVERHEAD


def cases(*, whole_s: int = 600, film_s: int = 3600, segment_s: int = 30) -> list[Case]:
    """Return the cases: sixteen frames of a whole clip, and of a segment in the middle of a long one."""
    middle = Segment(film_s / 2, film_s / 2 + segment_s)
    return [
        *(Case(clip, WHOLE, least_saving=1, least_gain=1) for clip in bench_clips((whole_s,))),
        *(Case(clip, middle, least_saving=20, least_gain=5) for clip in bench_clips((film_s,))),
    ]


def measure_ranges(
    wanted: Iterable[Case], folder: Path, *, objects: ObjectStore, root_uri: str, rounds: int
) -> Iterator[RangesRow]:
    """Measure downloads and ranges, interleaved within a round.

    Args:
        wanted: What to measure.
        folder: Folder that keeps the clips.
        objects: The store.
        root_uri: Where the clips are uploaded.
        rounds: Repetitions.
    """
    for case in wanted:
        path = case.clip.make(folder)
        uri = f"{root_uri}/{path.name}"
        objects.replace(uri, path.read_bytes())
        yield _measure(case, path, objects, objects.stat(uri), rounds)


def _measure(case: Case, path: Path, objects: ObjectStore, info: ObjectInfo, rounds: int) -> RangesRow:
    copy, threads = path.with_suffix(".download"), usable_cores()

    def download(decoders: int = threads) -> SampledFrames:
        objects.download(info.uri, copy, fingerprint=info.fingerprint)
        return extract_local(copy, sampling=_SAMPLING, limits=Limits(), segment=case.segment, threads=decoders)

    def by_ranges() -> SampledFrames:
        source = StoredSource(objects, info)
        return extract_ranges(source, sampling=_SAMPLING, limits=Limits(), segment=case.segment, threads=threads)[0]

    whole, got = download(), by_ranges()
    bare = BareDecode(path, np.unique(whole.frame_index).tolist())
    ways = (partial(download, 1), download, by_ranges, partial(bare.decode, threads, skips_leaves=True))
    times = [[time_ms(way) for way in ways] for _ in range(rounds)]
    before_ms, download_ms, ranges_ms, bare_ms = (median(column) for column in zip(*times, strict=True))
    copy.unlink()
    return RangesRow(
        case=case,
        file_bytes=info.size_bytes,
        needed_bytes=header_bytes(path) + _gop_bytes(path, set(whole.pts.tolist())),
        read_bytes=got.bytes_fetched,
        before_ms=before_ms,
        download_ms=download_ms,
        ranges_ms=ranges_ms,
        bare_ms=bare_ms,
        speedup=median(whole / parts for _, whole, parts, _ in times),
        gain=median(before / parts for before, _, parts, _ in times),
        bound=median(before / alone for before, _, _, alone in times),
        is_same=np.array_equal(got.images, whole.images) and np.array_equal(got.pts, whole.pts),
    )


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
