"""Special structures of a file, and the containers and codecs for which they matter."""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.media.boxes import repeat_edit, trim_edit

if TYPE_CHECKING:
    from collections.abc import Mapping

_TICKS_PER_FRAME = 10
_TICK_RATE = 250
_FLV_HEAD_BYTES = 13
_EVERYWHERE = (
    "mp4/h264 fmp4/h264 mov/h264 mkv/h264 webm/vp9 avi/mpeg4 flv/h264 ts/h264 ps/mpeg2 ogg/vp8 asf/wmv2 mxf/mpeg2"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """A structure of the matrix.

    Attributes:
        title: Its name in the document.
        files: Containers and codecs, as `mp4/h264`, separated by spaces.
        changes: Fields of `Recipe` to replace; `options` and `mux_options` are merged.
    """

    title: str
    files: str
    changes: Mapping[str, Any]


def _steadily(number: int, *, start: int) -> int:
    return start + number * _TICKS_PER_FRAME


def _unsteadily(number: int) -> int:
    """Frames last 4 to 19 ticks, with a long pause after every fifteenth."""
    lengths = random.Random(number % 7)  # noqa: S311 - pictures, not secrets
    return number * _TICKS_PER_FRAME + lengths.randrange(6) + number // 15 * 200


def _cut(data: bytes) -> bytes:
    return data[: len(data) * 3 // 4]


def _damage(data: bytes) -> bytes:
    """Overwrite twelve bytes in five places of the second half, which holds pictures."""
    damaged, places = bytearray(data), random.Random(1)  # noqa: S311
    for _ in range(5):
        at = places.randrange(len(data) // 2, len(data) * 9 // 10)
        damaged[at : at + 12] = places.randbytes(12)
    return bytes(damaged)


def _x264(parameters: str) -> dict[str, str]:
    return {"x264-params": f"scenecut=0:log-level=none:qp=20:{parameters}"}


def _x265(parameters: str) -> dict[str, str]:
    return {"x265-params": f"scenecut=0:log-level=none:{parameters}"}


def _starting(start: int) -> dict[str, Any]:
    return {"ticks": partial(_steadily, start=start)}


_FOUR_THIRDS = Fraction(4, 3)
_HIDDEN = {"auto-alt-ref": "1", "lag-in-frames": "16", "deadline": "good", "cpu-used": "5"}
_WRAP_TICKS = 2**33 // 90_000 * _TICK_RATE - 100

_TURNS = {
    "rotated-by-90": (90, False, False),
    "rotated-by-180": (180, False, False),
    "rotated-by-270": (270, False, False),
    "mirrored": (0, True, False),
    "flipped": (0, False, True),
    "rotated-and-mirrored": (90, True, False),
}

STRUCTURES: dict[str, Structure] = {
    "b-frames-h264": Structure(
        title="B-frames",
        files="mp4/h264 fmp4/h264 mov/h264 mkv/h264 avi/h264 flv/h264 ts/h264 ps/h264 asf/h264 mxf/h264 raw/h264",
        changes={"b_frames": 3, "options": _x264("bframes=3:b-pyramid=normal")},
    ),
    "b-frames-hevc": Structure(
        title="B-frames",
        files="mp4/hevc fmp4/hevc mov/hevc mkv/hevc flv/hevc ts/hevc ps/hevc raw/hevc",
        changes={"options": _x265("bframes=3:open-gop=0")},
    ),
    "b-frames": Structure(
        title="B-frames",
        files="mp4/mpeg2 mov/mpeg2 mkv/mpeg2 avi/mpeg2 ts/mpeg2 ps/mpeg2 mxf/mpeg2 raw/mpeg2 "
        "ts/mpeg1 ps/mpeg1 mp4/mpeg4 mkv/mpeg4 avi/mpeg4 ts/mpeg4 ps/mpeg4 asf/mpeg4",
        changes={"b_frames": 2},
    ),
    "open-gop-h264": Structure(
        title="open GOP",
        files="mp4/h264 fmp4/h264 mov/h264 mkv/h264 avi/h264 flv/h264 ts/h264 ps/h264 raw/h264",
        changes={"b_frames": 3, "options": _x264("bframes=3:open-gop=1")},
    ),
    "open-gop-hevc": Structure(
        title="open GOP",
        files="mp4/hevc fmp4/hevc mov/hevc mkv/hevc ts/hevc raw/hevc",
        changes={"options": _x265("bframes=3:open-gop=1")},
    ),
    "one-keyframe": Structure(title="one keyframe", files=_EVERYWHERE, changes={"gop": 600}),
    "all-keyframes": Structure(title="all keyframes", files=_EVERYWHERE, changes={"gop": 1, "frames": 24}),
    "intra-refresh": Structure(
        title="intra refresh, no second keyframe",
        files="mp4/h264 mkv/h264 ts/h264",
        changes={"options": _x264("intra-refresh=1")},
    ),
    "variable-rate": Structure(
        title="variable frame rate",
        files="mp4/h264 fmp4/h264 mov/h264 mkv/h264 webm/vp9 avi/h264 flv/h264 ts/h264 ogg/vp8 asf/h264 mp4/av1",
        changes={"ticks": _unsteadily},
    ),
    "start-later": Structure(
        title="start later than zero",
        files="mp4/h264 fmp4/h264 mov/h264 mkv/h264 webm/vp9 avi/mpeg4 flv/h264 ts/h264 ogg/vp8 asf/h264",
        changes=_starting(1230),
    ),
    "start-negative": Structure(
        title="start before zero",
        files="mp4/h264 fmp4/h264 mov/h264 mkv/h264 ts/h264",
        changes=_starting(-70) | {"b_frames": 2, "mux_options": {"avoid_negative_ts": "disabled"}},
    ),
    "clock-wraps": Structure(
        title="clock wraps around",
        files="ts/h264",
        changes=_starting(_WRAP_TICKS) | {"mux_options": {"mpegts_copyts": "1"}},
    ),
    "edit-trims": Structure(
        title="edit list that trims",
        files="mp4/h264 mov/h264 mp4/hevc mp4/mpeg4",
        changes={"change": partial(trim_edit, ticks=512 * 17)},
    ),
    "edit-repeats": Structure(
        title="edit list of two segments",
        files="mp4/h264 mov/h264",
        changes={"b_frames": 2, "change": repeat_edit},
    ),
    **{
        name: Structure(
            title=name.replace("-", " "),
            files="mp4/h264 fmp4/h264 mov/h264 mkv/h264",
            changes={"turn": turn},
        )
        for name, turn in _TURNS.items()
    },
    "odd-size": Structure(
        title="odd size",
        files="webm/vp8 webm/vp9 mkv/vp9 mp4/mpeg4 avi/mpeg4 ps/mpeg2 ts/mpeg2 ogg/vp8 avi/mjpeg mov/mjpeg",
        changes={"width_px": 97, "height_px": 65},
    ),
    "odd-size-444": Structure(
        title="odd size",
        files="mp4/h264 mkv/h264 ts/h264 mp4/hevc",
        changes={"width_px": 97, "height_px": 65, "pix_fmt": "yuv444p"},
    ),
    "pixel-aspect": Structure(
        title="pixels that are not square",
        files="mp4/h264 mov/h264 mkv/h264 webm/vp9 avi/mpeg4 ts/h264 ps/mpeg2 mxf/mpeg2",
        changes={"sample_aspect": _FOUR_THIRDS},
    ),
    "ten-bits": Structure(
        title="10 bits",
        files="mp4/h264 mkv/h264 ts/h264 mp4/hevc mkv/hevc mp4/av1 webm/av1 mkv/ffv1",
        changes={"pix_fmt": "yuv420p10le"},
    ),
    "full-range": Structure(
        title="full range",
        files="mp4/h264 mkv/h264 ts/h264 mp4/hevc webm/vp9 avi/mpeg4",
        changes={"is_full_range": True},
    ),
    "limited-range": Structure(
        title="limited range",
        files="mp4/h264 mkv/h264 ts/h264 mp4/hevc webm/vp9",
        changes={"is_full_range": False},
    ),
    "interlaced-h264": Structure(
        title="interlaced",
        files="mp4/h264 mkv/h264 ts/h264 ps/h264",
        changes={"options": _x264("tff=1"), "b_frames": 2},
    ),
    "interlaced-mpeg": Structure(
        title="interlaced",
        files="ts/mpeg2 ps/mpeg2 mxf/mpeg2 avi/mpeg4",
        changes={"options": {"flags": "+ildct+ilme"}},
    ),
    "faststart": Structure(
        title="index in front",
        files="mp4/h264 mov/h264 mp4/hevc mp4/av1",
        changes={"mux_options": {"movflags": "faststart"}},
    ),
    "cues-in-front": Structure(
        title="index in front",
        files="mkv/h264 webm/vp9",
        changes={"mux_options": {"cues_to_front": "1"}},
    ),
    "keyframe-index": Structure(
        title="index in front",
        files="flv/h264",
        changes={"mux_options": {"flvflags": "add_keyframe_index"}},
    ),
    "segment-index": Structure(
        title="index in front",
        files="fmp4/h264",
        changes={"mux_options": {"movflags": "frag_keyframe+empty_moov+default_base_moof+global_sidx"}},
    ),
    "many-frames-a-fragment": Structure(
        title="fragments that start within a GOP",
        files="fmp4/h264 fmp4/hevc",
        changes={"mux_options": {"movflags": "empty_moov+default_base_moof", "frag_duration": "300000"}, "b_frames": 2},
    ),
    "negative-composition": Structure(
        title="negative composition offsets",
        files="mp4/h264 fmp4/h264",
        changes={"mux_options": {"movflags": "negative_cts_offsets"}, "b_frames": 3},
    ),
    "no-index": Structure(
        title="no index",
        files="mkv/h264 mkv/hevc webm/vp9 webm/vp8 webm/av1 avi/mpeg4 avi/h264",
        changes={"is_streamed": True},
    ),
    "hidden-frames": Structure(
        title="hidden reference frames",
        files="webm/vp8 webm/vp9 mkv/vp8 ogg/vp8 mp4/vp9 ivf/vp9",
        changes={"options": _HIDDEN},
    ),
    "with-sound": Structure(
        title="with an audio stream",
        files="mp4/h264 fmp4/h264 mov/h264 mkv/h264 avi/mpeg4 ts/h264 asf/wmv2 flv/h264",
        changes={"sound": "aac"},
    ),
    "with-mpeg-sound": Structure(title="with an audio stream", files="ps/mpeg2 ts/mpeg2", changes={"sound": "mp2"}),
    "cut-in": Structure(
        title="begins within a GOP",
        files="mp4/h264 mkv/h264 webm/vp9 avi/mpeg4 flv/h264 ts/h264 ps/mpeg2 ts/mpeg2 asf/wmv2 raw/h264",
        changes={"skipped_packets": 3},
    ),
    "joined": Structure(
        title="recordings joined end to end",
        files="ts/h264 ts/hevc ts/mpeg2 ps/mpeg2 ps/h264 raw/h264",
        changes={"recordings": 2},
    ),
    "joined-b-frames": Structure(
        title="recordings joined end to end",
        files="ts/h264 ps/mpeg2 ps/mpeg4 raw/h264",
        changes={"recordings": 2, "b_frames": 2},
    ),
    "joined-tags": Structure(
        title="recordings joined end to end",
        files="flv/h264",
        changes={"recordings": 2, "b_frames": 2, "cut_head_bytes": _FLV_HEAD_BYTES},
    ),
    "times-of-decoding": Structure(
        title="B-frames with the times of decoding",
        files="mp4/h264 mov/h264 fmp4/h264 mkv/h264 ts/h264 mp4/mpeg2 mkv/mpeg2 mp4/mpeg4 mkv/mpeg4",
        changes={"b_frames": 2, "times_of_decoding": True},
    ),
    "times-of-decoding-open-gop": Structure(
        title="B-frames with the times of decoding",
        files="mp4/h264 mkv/h264",
        changes={"b_frames": 3, "options": _x264("bframes=3:open-gop=1"), "times_of_decoding": True},
    ),
    "times-of-decoding-hevc": Structure(
        title="B-frames with the times of decoding",
        files="mp4/hevc fmp4/hevc mkv/hevc",
        changes={"options": _x265("bframes=3:open-gop=1"), "times_of_decoding": True},
    ),
    "leading-pictures": Structure(
        title="begins with leading pictures",
        files="mp4/hevc fmp4/hevc mkv/hevc ts/hevc raw/hevc",
        changes={
            "options": _x265("bframes=2:b-adapt=0:open-gop=0:radl=2:keyint=10:min-keyint=10"),
            "skipped_packets": 8,
        },
    ),
    "leading-pictures-open-gop": Structure(
        title="begins with leading pictures",
        files="mp4/hevc mkv/hevc ts/hevc",
        changes={"options": _x265("bframes=3:open-gop=1"), "skipped_packets": 8},
    ),
    "truncated": Structure(
        title="truncated tail",
        files="fmp4/h264 mkv/h264 mkv/hevc webm/vp9 webm/av1 avi/mpeg4 flv/h264 ts/h264 ps/mpeg2 ogg/vp8 asf/wmv2 "
        "mxf/mpeg2 raw/h264",
        changes={"change": _cut},
    ),
    "truncated-faststart": Structure(
        title="truncated tail",
        files="mp4/h264 mov/h264 mp4/hevc",
        changes={"mux_options": {"movflags": "faststart"}, "change": _cut},
    ),
    "damaged": Structure(
        title="damaged in the middle",
        files=f"{_EVERYWHERE} mp4/hevc mkv/hevc webm/av1 mp4/mpeg4 raw/h264",
        changes={"change": _damage},
    ),
}
