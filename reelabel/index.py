"""The list of a video's frames, made from its container's index, by a pass over its packets, or by a linear decode."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from reelabel.coverage import CoverageThresholds, KeyframeCoverage, measure_coverage
from reelabel.segment import WHOLE, Segment

Int64s: TypeAlias = npt.NDArray[np.int64]
Float64s: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]

Hdr: TypeAlias = Literal["", "PQ", "HLG"]
Kind: TypeAlias = Literal["container", "packets", "decode"]
Lists: TypeAlias = Literal["frames", "keyframes"]

NO_PTS = -(2**63)  # FFmpeg's AV_NOPTS_VALUE; -1 is a valid PTS
UNKNOWN_POSITION = -1

# Differences of larger numbers are inexact, and may exceed 64 bits; as seconds, they no longer resolve milliseconds.
LATEST_MS = 2.0**53
MOST = 2**31 - 1  # of a count or a side: a 32-bit column of a database holds it


class Crop(NamedTuple):
    """Margins of the stored picture that are not shown, in pixels."""

    left: int = 0
    top: int = 0
    right: int = 0
    bottom: int = 0

    def fits(self, width_px: int, height_px: int) -> bool:
        """Return whether there are margins, and they leave part of the picture."""
        return any(self) and self.left + self.right < width_px and self.top + self.bottom < height_px


NOT_CROPPED = Crop()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderInfo:
    """Properties of a stream as the header states them; the frames may contradict it.

    A name is empty, a number 0, and `frames` None if it is unknown. `container` is FFmpeg's first name of the format.
    Width and height are stored ones, with the margins in `crop` that the container has players cut off. `fps` is as
    OpenCV reports it, and `frames` an estimate if their number is not stated. `pixel_aspect` is 1.0 if it is not
    specified.
    """

    container: str = ""
    codec: str = ""
    width_px: int = 0
    height_px: int = 0
    hdr: Hdr = ""
    time_base: Fraction = Fraction(0)
    fps: float = 0.0
    duration_s: float = 0.0
    pixel_aspect: float = 1.0
    crop: Crop = NOT_CROPPED
    frames: int | None = None

    def __post_init__(self) -> None:
        sides = self.width_px, self.height_px, *self.crop
        if not all(0 <= side <= MOST for side in sides) or min(self.fps, self.duration_s, self.frames or 0) < 0:
            raise ValueError("sides, fps, duration_s and frames must not be negative")

    @property
    def shown_size(self) -> tuple[int, int]:
        """Width and height without the margins."""
        crop = self.crop if self.crop.fits(self.width_px, self.height_px) else NOT_CROPPED
        return self.width_px - crop.left - crop.right, self.height_px - crop.top - crop.bottom


def _no_rows() -> Int64s:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VideoIndex:
    """The frames, or the keyframes, of one video. Rows are in decode order.

    Attributes:
        info: What the header states.
        kind: How the rows were found: by the container's index, a pass over all packets, or a linear decode.
        lists: Whether every frame has a row, or only keyframes.
        pts: PTS of each row, `NO_PTS` if it has none; shape (N,).
        is_keyframe: Whether it is a keyframe; shape (N,).
        is_shown: Whether it is presented; shape (N,).
        pos: Offset of the bytes from which its packet is read; shape (N,).
        size: Number of these bytes; 0 where it is unknown; shape (N,).
        order: Rows that are shown, in the order in which a decoder outputs them; shape (M,).
        time_s: When each of `order` is shown, in seconds on the clock of the first frame, never falling; shape (M,);
            None if unknown.
        position: Position of each of `order` in the linear decode, -1 if unknown; shape (M,).
        keyframe_s: When each keyframe of the whole video is shown, never falling; shape (K,); None if unknown.
        keyframes: Number of keyframes of the whole video.
        first_s: When the first frame is shown; None if unknown.
        last_s: When the last frame is shown; None if unknown.
        total_frames: Number of frames shown; None if unknown.
        is_whole: Whether the rows are of the whole video, not only of what lies around a segment.
        is_order_proven: Whether PTS are known to ascend in the order in which a decoder outputs frames.
        doubt: Why frames must not be decoded by this index, which still serves to measure coverage and to find scenes.
        note: How times differ from timestamps, or why there are no rows; empty if neither applies.
    """

    info: HeaderInfo
    kind: Kind
    lists: Lists
    pts: Int64s = field(default_factory=_no_rows)
    is_keyframe: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))
    is_shown: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))
    pos: Int64s = field(default_factory=_no_rows)
    size: Int64s = field(default_factory=_no_rows)
    order: Int64s = field(default_factory=_no_rows)
    time_s: Float64s | None = None
    position: Int64s = field(default_factory=_no_rows)
    keyframe_s: Float64s | None = None
    keyframes: int = 0
    first_s: float | None = None
    last_s: float | None = None
    total_frames: int | None = None
    is_whole: bool = True
    is_order_proven: bool = True
    doubt: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        rows = self.pts.shape
        columns = {"is_keyframe": self.is_keyframe, "is_shown": self.is_shown, "pos": self.pos, "size": self.size}
        shown = {"position": self.position} | ({} if self.time_s is None else {"time_s": self.time_s})
        shapes = {name: column.shape for name, column in (columns | shown).items()}
        wanted = dict.fromkeys(columns, rows) | dict.fromkeys(shown, self.order.shape)
        if self.pts.ndim != 1 or self.order.ndim != 1 or shapes != wanted:
            raise ValueError(f"{rows} rows of which {self.order.shape} are shown, but columns are {shapes}")
        if self.order.size and not 0 <= self.order.min() <= self.order.max() < len(self.pts):
            raise ValueError(f"order must be rows of {len(self.pts)}")
        if (self.pos < 0).any() or (self.size < 0).any() or (self.position < -1).any():
            raise ValueError("pos, size and position must not be negative")
        for name, times_s in {"time_s": self.time_s, "keyframe_s": self.keyframe_s}.items():
            if times_s is not None and (not np.isfinite(times_s).all() or (np.diff(times_s) < 0).any()):
                raise ValueError(f"{name} must be finite and never fall")
        if not 0 <= self.keyframes <= MOST or not 0 <= (self.total_frames or 0) <= MOST:
            raise ValueError(f"{self.keyframes} keyframes of {self.total_frames} frames")
        if self.keyframe_s is not None and self.keyframe_s.shape != (self.keyframes,):
            raise ValueError(f"{self.keyframes} keyframes, but keyframe_s has shape {self.keyframe_s.shape}")

    @property
    def is_listed(self) -> bool:
        """Whether it is known when the keyframes are shown."""
        return self.keyframe_s is not None

    @property
    def keyframe_indices(self) -> Int64s:
        """Indices of keyframes in `order`, ascending."""
        return np.flatnonzero(self.is_keyframe[self.order])

    @property
    def sizes_bytes(self) -> Int64s:
        """Size of the packet of each frame that is shown; shape (M,)."""
        return self.size[self.order]

    @property
    def shown_keyframes(self) -> Bools:
        """Whether each frame that is shown is a keyframe; shape (M,)."""
        return self.is_keyframe[self.order]

    @property
    def times_ms(self) -> Int64s:
        """When each frame is shown, in milliseconds; shape (M,); ValueError if unknown."""
        if self.time_s is None:
            raise ValueError("the frames have no times")
        return to_ms(self.time_s)

    @property
    def keyframe_ms(self) -> Int64s | None:
        """When each keyframe of the whole video is shown, in milliseconds; None if unknown."""
        return None if self.keyframe_s is None else to_ms(self.keyframe_s)

    @property
    def first_ms(self) -> int | None:
        """When the first frame is shown, in milliseconds; None if unknown."""
        return None if self.first_s is None else int(to_ms(np.array([self.first_s]))[0])

    @property
    def start_s(self) -> float | None:
        """The time that segments are measured from; None if unknown."""
        is_listed = self.lists == "frames" and self.is_whole and self.time_s is not None and self.time_s.size
        return float(self.time_s[0]) if is_listed and self.time_s is not None else self.first_s

    def length_s(self, info: HeaderInfo) -> float:
        """Return the duration that the video states, else what its frames fill; 0.0 if unknown.

        Where frames are not shown at their timestamps, the stated duration is of the timestamps.
        """
        return (0.0 if self.kind == "decode" and self.note else info.duration_s) or self.filled_s(info.fps)

    def ends_s(self, info: HeaderInfo) -> float:
        """Return when the video ends, in seconds since its first frame: as stated, but not before a listed frame."""
        latest_s = [self.last_s] if self.keyframe_s is None else [self.last_s, *self.keyframe_s[-1:].tolist()]
        listed_s = (each - (self.start_s or 0.0) for each in latest_s if each is not None)
        return max(self.length_s(info), *listed_s)

    def filled_s(self, fps: float) -> float:
        """Return the time that the listed frames fill, by this frame rate if they have no times; 0.0 if unknown."""
        frames, first_s, last_s = self.total_frames or 0, self.first_s, self.last_s
        if first_s is None or last_s is None:
            return frames / fps if fps and first_s is None and last_s is None else 0.0
        return max(0.0, (last_s - first_s) * frames / max(1, frames - 1))

    def coverage(self, thresholds: CoverageThresholds, segment: Segment = WHOLE) -> KeyframeCoverage:
        """Measure how well the keyframes cover the video, or a segment of it."""
        return measure_coverage(
            self.keyframe_ms,
            first_ms=self.first_ms,
            keyframes=0,
            duration_s=self.length_s(self.info) if self.kind == "decode" else self.info.duration_s,
            thresholds=thresholds,
            segment=segment,
        )

    def part(self, inside: Bools, *, since_s: float) -> VideoIndex:
        """Return the index of some of the shown frames, with times since another instant on the same clock."""
        assert self.time_s is not None
        times_s, is_key = self.time_s[inside] - since_s, self.is_keyframe[self.order[inside]]
        return replace(
            self,
            order=self.order[inside],
            time_s=times_s,
            position=self.position[inside],
            keyframe_s=times_s[is_key],
            keyframes=int(is_key.sum()),
            first_s=float(times_s[0]),
            last_s=float(times_s[-1]),
            total_frames=len(times_s),
        )


def to_ms(times_s: Float64s) -> Int64s:
    """Convert seconds to milliseconds; times past `LATEST_MS` are cut off there."""
    times_ms: Int64s = np.rint(times_s * 1e3).clip(-LATEST_MS, LATEST_MS).astype(np.int64)
    return times_ms
