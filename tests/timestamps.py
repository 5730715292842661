"""Small files whose frames are presented at absurd times."""

from __future__ import annotations

import io
import struct
from contextlib import suppress
from fractions import Fraction
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING

import av
import av.error
from av.video.stream import VideoStream

from benchmarks.media.boxes import replace_boxes
from benchmarks.media.codecs import CONTAINERS
from benchmarks.media.matrix import Cell

if TYPE_CHECKING:
    from collections.abc import Sequence

_FRAMES = 40
_TICKS_PER_S = 1_000
_FRAME, _DAY = 40, 86_400 * _TICKS_PER_S
_CONTAINERS = ("mp4", "fmp4", "mov", "mkv", "flv", "ts", "3gp")  # FFmpeg would write ASF an index of gigabytes
_STARTS = (0, 0, -1, -_DAY, _DAY, 2**31, 2**32, 2**33, 2**43, 2**53, 2**60, -(2**60))
_GAPS = (1, _FRAME, 1_000, _DAY, 365 * _DAY, 2**31, 2**32, 2**40, 2**55)
_TIMESCALES = (1, 1_000, 90_000, 2**31 - 1, 2**32 - 1)
_DELTAS = (0, 1, 512, 2**24, 2**30, 2**31 - 1, 2**31, 2**32 - 1)
# Matroska's `Duration`, a float of eight bytes, in milliseconds.
_MATROSKA_DURATION = bytes.fromhex("448988")


def clusters_days_apart() -> bytes:
    """Make a Matroska whose forty frames are a day apart, and whose header claims a second."""
    return retimed("mkv", [number * _DAY for number in range(_FRAMES)])


def frames_before_zero() -> bytes:
    """Make a Matroska whose second half is presented a year after its first, which starts before zero."""
    late = 365 * _DAY
    return retimed("mkv", [(number - 5) * _FRAME + late * (number >= _FRAMES // 2) for number in range(_FRAMES)])


def one_frame_in_years() -> bytes:
    """Make an MP4 whose forty frames last four months each."""
    return with_sample_times([(_FRAMES, 10_000_000)], timescale=1)


def fuzzed_timestamps(seed: int) -> bytes:
    """Make a file with random timestamps, many of them extreme; the same bytes for the same seed."""
    random = Random(seed)
    if random.random() < 1 / 3:
        counts = [random.randint(1, 8) for _ in range(20)]
        deltas = random.choices(_DELTAS, k=random.randint(1, 4))
        return with_sample_times(
            [(count, random.choice(deltas)) for count in counts],
            timescale=random.choice(_TIMESCALES),
            offsets=random.choices((0, 1, -1, 2**31 - 1, -(2**31)), k=_FRAMES) if random.random() < 1 / 2 else (),
        )
    gaps = random.choices(_GAPS, k=random.randint(1, 3))
    pts = list(accumulate(random.choices(gaps, k=_FRAMES - 1), initial=random.choice(_STARTS)))
    if random.random() < 1 / 4:
        random.shuffle(pts)
    return retimed(random.choice(_CONTAINERS), pts)


def retimed(container: str, pts: Sequence[int]) -> bytes:
    """Copy the packets of a plain clip to other times.

    Args:
        container: Name of the container in the matrix.
        pts: Presentation time of each frame in milliseconds; those that the muxer refuses are left out.

    Returns:
        The file; if it is a Matroska, its header claims a duration of one second.
    """
    target = io.BytesIO()
    described = CONTAINERS[container]
    # MPEG-TS takes H.264 only in its own format.
    clip = Cell("ts" if container == "ts" else "mp4", "h264").make()
    with (
        av.open(io.BytesIO(clip), "r") as source,
        av.open(target, "w", format=described.muxer, options={"fflags": "bitexact", **described.mux_options}) as copy,
    ):
        [taken] = source.streams.video
        stream = copy.add_stream_from_template(taken)
        assert isinstance(stream, VideoStream)
        packets = (packet for packet in source.demux(taken) if packet.size)
        for packet, time in zip(packets, pts, strict=False):
            packet.stream, packet.time_base = stream, Fraction(1, _TICKS_PER_S)
            packet.pts = packet.dts = time
            with suppress(av.error.FFmpegError, OverflowError):
                copy.mux(packet)
    data = bytearray(target.getvalue())
    if (at := data.find(_MATROSKA_DURATION)) > 0:
        struct.pack_into(">d", data, at + len(_MATROSKA_DURATION), 1_000.0)
    return bytes(data)


def with_sample_times(durations: Sequence[tuple[int, int]], *, timescale: int, offsets: Sequence[int] = ()) -> bytes:
    """Replace the timing tables of a plain MP4, whose header keeps its claim of 1.6 seconds.

    Args:
        durations: Numbers of frames, and the ticks that each of them lasts.
        timescale: Ticks per second.
        offsets: Ticks from each frame's decoding to its presentation.
    """
    times = struct.pack(">II", 0, len(durations)) + b"".join(struct.pack(">II", *each) for each in durations)
    shifts = struct.pack(">II", 1 << 24, len(offsets)) + b"".join(struct.pack(">Ii", 1, each) for each in offsets)
    clock = struct.pack(">IIIIIHH", 0, 0, 0, timescale, min(timescale, 2**32 // 2), 0x55C4, 0)
    changed = {b"stts": times, b"mdhd": clock, b"edts": None}
    return replace_boxes(Cell("mp4", "h264", "b-frames-h264").make(), changed | ({b"ctts": shifts} if offsets else {}))
