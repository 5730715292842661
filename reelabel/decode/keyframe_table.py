"""Offsets and presentation times of a video's keyframes, so that its header need not be read again."""

from __future__ import annotations

import base64
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from reelabel.decode.packet_decoder import CodecParameters
from reelabel.index import Crop, Int64s, VideoIndex, VideoInfo
from reelabel.sampled_frames import Orientation
from reelabel.sources.sparse_file import CachedRange


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeyframeTable:
    """The keyframes of an MP4 whose first frame is one, in presentation order.

    Attributes:
        codec: Parameters of their decoder.
        info: Properties of their stream.
        orientation: Rotation and mirroring for display.
        pts: PTS in the stream's time base; shape (K,), int64, ascending.
        pos: Offset of each packet in the file; shape (K,), int64.
        size: Size of each packet in bytes; shape (K,), int64.
        frames_before: Presented frames before each keyframe in decode order, `UNKNOWN_POSITION` if unknown; shape (K,),
            int64.
        frames: Number of presented frames in the stream; None if unknown.
        missing_bytes: Bytes missing at the end of the file.
        brings_parameters: Whether the first packet brings parameter sets, so that those of `codec` may not be for all.
        is_order_proven: Whether timestamps are known to be those of the order in which a decoder outputs frames.
    """

    codec: CodecParameters
    info: VideoInfo
    orientation: Orientation
    pts: Int64s
    pos: Int64s
    size: Int64s
    frames_before: Int64s
    frames: int | None
    missing_bytes: int
    brings_parameters: bool = False
    is_order_proven: bool = True

    def __post_init__(self) -> None:
        """Check shapes and ranges.

        Raises:
            ValueError: A column contradicts another, or a value is not possible.
        """
        columns = self.pts, self.pos, self.size, self.frames_before
        if not self.pts.size or any(column.shape != (len(self.pts),) for column in columns):
            raise ValueError(f"columns of {[column.shape for column in columns]}")
        if (self.pts[1:] <= self.pts[:-1]).any() or self.size.min() < 1 or self.frames_before.min() < -1:
            raise ValueError("pts must ascend, size be at least 1 and frames_before at least -1")
        if min(self.missing_bytes, self.frames or 0) < 0 or not self.codec.is_possible:
            raise ValueError("counts must not be negative")

    def is_within(self, size_bytes: int) -> bool:
        """Return whether all packets are in a file of so many bytes."""
        return bool(((self.pos >= 0) & (self.pos <= size_bytes) & (self.size <= size_bytes - self.pos)).all())

    @property
    def index(self) -> VideoIndex:
        """The keyframes."""
        times_s = self.pts.astype(np.float64) * float(self.info.time_base)
        are_shown = np.ones(len(self.pts), np.bool_)
        return VideoIndex(
            info=self.info,
            kind="container",
            lists="keyframes",
            pts=self.pts,
            is_keyframe=are_shown,
            is_shown=are_shown,
            pos=self.pos,
            size=self.size,
            order=np.arange(len(self.pts)),
            time_s=times_s,
            position=self.frames_before,
            keyframe_s=times_s,
            keyframes=len(self.pts),
            first_s=float(times_s[0]),
            total_frames=self.frames,
            is_order_proven=self.is_order_proven,
        )


def describe_table(table: KeyframeTable) -> dict[str, Any]:
    """Return the attributes of a table, without its columns, as JSON values."""
    return {
        "codec": asdict(table.codec) | {"extradata": base64.b64encode(table.codec.extradata).decode()},
        "info": asdict(table.info) | {"time_base": str(table.info.time_base)},
        "orientation": list(table.orientation),
        "frames": table.frames,
        "missing_bytes": table.missing_bytes,
        "brings_parameters": table.brings_parameters,
        "is_order_proven": table.is_order_proven,
    }


def table_arguments(described: dict[str, Any]) -> dict[str, Any]:
    """Convert the result of `describe_table` to arguments of `KeyframeTable`."""
    codec, info = described["codec"], described["info"]
    return described | {
        "codec": CodecParameters(**codec | {"extradata": base64.b64decode(codec["extradata"])}),
        "info": VideoInfo(**info | {"time_base": Fraction(info["time_base"]), "crop": Crop(*info["crop"])}),
        "orientation": Orientation(*described["orientation"]),
    }


# What locates keyframes: a table of them, or the ranges of the file that FFmpeg must read.
SavedIndex: TypeAlias = KeyframeTable | tuple[CachedRange, ...]
