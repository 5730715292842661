"""The frames of one video that the model sees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tasks.domain.segment import WHOLE, Segment
from tasks.video.verdict import judge

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tasks.video.orientation import Orientation
    from tasks.video.ranges import Extent
    from tasks.video.verdict import Thresholds, Verdict


NO_PTS = -(2**63)  # FFmpeg's own: -1 is a time like any other
UNKNOWN_POSITION = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Keyframes:
    """Decoded frames, each once, and the order in which they are shown.

    Attributes:
        images: RGB pixels; shape (N, H, W, 3), uint8, N >= 1, in presentation order.
        pts: Presentation times in the stream's time base, `NO_PTS` where the container gives none; shape (N,), int64.
        time_s: The same in seconds; shape (N,), float64.
        frame_index: Positions in the full linear decode, `UNKNOWN_POSITION` where unknown; shape (N,), int64.
        is_keyframe: Whether each frame is a keyframe; shape (N,), bool.
        picks: Indices into `images` as shown to the model, with repeats; shape (M,), int64.
        deviation_s: How much later than its instant each pick is shown; shape (M,), float64; None for
            samplers that ask for no instants.
        segment: The part of the video that was asked for; all other counts are of the whole.
        starts_s: When the segment starts, by the clock of `time_s`; None for the whole video.
        keyframes_in_file: Keyframes of the video stream; with method `index`, those that the index lists.
        keyframe_ms: When each of them is shown, in milliseconds of the stream's time; shape (K,), int64, ascending;
            None where unknown.
        are_keyframes_listed: Whether the container tells when they are shown; where only decoding did, no verdict goes
            by them.
        first_ms: When the first frame is shown, by the same clock, or a little before; None where unknown.
        total_frames: Frames of the video stream; None where that cannot be told without decoding.
        fps: Average frame rate; 0.0 where the container gives none.
        duration_s: Length of the stream; 0.0 where unknown.
        pixel_aspect: Width of a stored pixel over its height when shown; reported, not applied.
        native_width_px: Width as stored, before rotation and scaling.
        native_height_px: Height as stored.
        orientation: How stored pictures are turned to be shown; applied unless native.
        method: How frames were reached: by the container's `index`, by `seek`, or by a `linear` decode.
        reason: Why not by a shorter way, and whether the file is cut short; empty where all is well.
        decode_ms: Milliseconds from opening to the last frame, without those of `fetch_ms`.
        frames_decoded: Frames that came out of a decoder for these, those of ways tried in vain included.
        sampler: What chose them.
        fetch_ms: Milliseconds spent waiting for parts of a remote file; 0 for a local one.
        bytes_fetched: Bytes of those parts.
        parts: Those parts, and what was known of the file before.
        dropped_as_similar: Frames that were left out because they show nothing new.
    """

    images: npt.NDArray[np.uint8]
    pts: npt.NDArray[np.int64]
    time_s: npt.NDArray[np.float64]
    frame_index: npt.NDArray[np.int64]
    is_keyframe: npt.NDArray[np.bool_]
    picks: npt.NDArray[np.int64]
    keyframes_in_file: int
    total_frames: int | None
    fps: float
    duration_s: float
    native_width_px: int
    native_height_px: int
    orientation: Orientation
    method: Literal["index", "seek", "linear"]
    reason: str
    decode_ms: float
    frames_decoded: int = 0
    sampler: str = "keyframes"
    fetch_ms: float = 0.0
    bytes_fetched: int = 0
    dropped_as_similar: int = 0
    pixel_aspect: float = 1.0
    deviation_s: npt.NDArray[np.float64] | None = None
    segment: Segment = WHOLE
    starts_s: float | None = None
    keyframe_ms: npt.NDArray[np.int64] | None = field(default=None, repr=False)
    are_keyframes_listed: bool = True
    first_ms: int | None = None
    parts: tuple[Extent, ...] = field(default=(), repr=False)

    @property
    def rotation_deg(self) -> int:
        """Counter-clockwise rotation that the container asks for: 0, 90, 180 or 270."""
        return self.orientation.rotation_deg

    def judged(self, thresholds: Thresholds) -> Verdict:
        """Judge the video by its keyframes, as far as they can be known before anything is decoded."""
        return judge(
            self.keyframe_ms if self.are_keyframes_listed else None,
            first_ms=self.first_ms,
            keyframes=self.keyframes_in_file,
            duration_s=self.duration_s,
            thresholds=thresholds,
            segment=self.segment,
        )

    def __post_init__(self) -> None:
        """Check that all columns speak of the same frames."""
        if self.images.ndim != 4 or self.images.shape[-1] != 3 or len(self.images) == 0:  # noqa: PLR2004
            raise ValueError(f"images must be (N>=1, H, W, 3), got {self.images.shape}")
        columns = (self.pts, self.time_s, self.frame_index, self.is_keyframe)
        if any(column.shape != self.images.shape[:1] for column in columns):
            raise ValueError(f"{len(self.images)} images, but columns of {[column.shape for column in columns]}")
        if self.picks.size == 0 or self.picks.min() < 0 or self.picks.max() >= len(self.images):
            raise ValueError(f"picks {self.picks.tolist()} are not indices of {len(self.images)} images")
        if self.deviation_s is not None and self.deviation_s.shape != self.picks.shape:
            raise ValueError(f"{self.picks.size} picks, but {self.deviation_s.size} deviations")
