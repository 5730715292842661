"""The sampled frames of one video."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import numpy as np

from reelabel.coverage import DEFAULT_THRESHOLDS, measure_coverage
from reelabel.index import Bools, Float64s, Int64s  # noqa: TC001 - fields are read back by their types
from reelabel.segment import WHOLE, Segment

if TYPE_CHECKING:
    import numpy.typing as npt

    from reelabel.coverage import CoverageThresholds, KeyframeCoverage


_Pixel = TypeVar("_Pixel", np.uint8, np.uint16)

NO_PTS = -(2**63)  # FFmpeg's AV_NOPTS_VALUE; -1 is a valid PTS
UNKNOWN_POSITION = -1


class Orientation(NamedTuple):
    """One of eight orientations: transposition, then mirroring.

    Attributes:
        is_transposed: Swap rows and columns.
        is_mirrored: Swap left and right.
        is_flipped: Swap top and bottom.
        rotation_deg: Counter-clockwise rotation requested by the container: 0, 90, 180 or 270.
    """

    is_transposed: bool = False
    is_mirrored: bool = False
    is_flipped: bool = False
    rotation_deg: int = 0

    def apply(self, image: npt.NDArray[_Pixel]) -> npt.NDArray[_Pixel]:
        """Orient an image of shape (H, W, ...); return a view."""
        transposed = image.swapaxes(0, 1) if self.is_transposed else image
        return transposed[:: -1 if self.is_flipped else 1, :: -1 if self.is_mirrored else 1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Selection:
    """The frames that were chosen of a video, each once, and the order in which to show them to the model: no pixels.

    Attributes:
        pts: Presentation timestamps in the stream's time base, `NO_PTS` if the container has none; shape (N,), int64,
            N >= 1, in the order in which a decoder outputs the frames.
        time_s: When each is shown, in seconds on the clock of the first frame, never falling; shape (N,), float64. The
            same as `pts`, unless these jump back or contradict the order.
        frame_index: Positions in the full linear decode, `UNKNOWN_POSITION` if unknown; shape (N,), int64.
        is_keyframe: Whether each frame is a keyframe; shape (N,), bool.
        picks: Indices of frames in the order shown to the model, with repeats; shape (M,), int64.
        deviation_s: Presentation time of each pick minus the instant it was chosen for; shape (M,), float64; None for
            samplers that target no instants.
        segment: The part of the video that was sampled; all counts are of the whole video.
        starts_s: Start of the segment on the clock of `time_s`; None for the whole video.
        first_s: When the video's first frame is shown, or slightly earlier, on that clock; None if unknown.
        keyframes_in_file: Number of keyframes in the video stream; with method `index`, as listed in the index.
        keyframe_ms: Presentation time of each keyframe in milliseconds; shape (K,), int64, ascending; None if unknown.
        first_ms: Presentation time of the first frame in milliseconds, or slightly less; None if unknown.
        total_frames: Number of frames in the video stream; None if only decoding could count them.
        fps: Average frame rate; 0.0 if the container has none.
        duration_s: Duration of the stream as stated, else what its frames fill; 0.0 if unknown.
        pixel_aspect: Sample aspect ratio; reported, not applied.
        native_width_px: Width as stored, without the margins that the container crops, before rotation and scaling.
        native_height_px: Its height.
        orientation: Rotation and mirroring for display; applied unless native frames were requested.
        method: How the frames were located: by the container's `index`, by `seek`, or by a `linear` decode.
        reason: Why a faster method was unavailable, where times differ from timestamps, whether the file is cut short,
            and what was done about HDR; empty if there is nothing to report.
        decode_ms: Milliseconds from opening the file to the last frame, excluding `fetch_ms`.
        frames_decoded: Frames output by decoders, including those of attempts that failed.
        sampler: The sampler that chose the frames.
        fetch_ms: Milliseconds spent waiting for ranges of a remote file; 0 for a local one.
        bytes_fetched: Bytes fetched in those ranges.
        dropped_as_similar: Number of frames dropped as near-duplicates.
    """

    pts: Int64s
    time_s: Float64s
    frame_index: Int64s
    is_keyframe: Bools
    picks: Int64s
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
    deviation_s: Float64s | None = None
    segment: Segment = WHOLE
    starts_s: float | None = None
    first_s: float | None = None
    keyframe_ms: Int64s | None = field(default=None, repr=False)
    first_ms: int | None = None

    @property
    def rotation_deg(self) -> int:
        """Counter-clockwise rotation requested by the container: 0, 90, 180 or 270."""
        return self.orientation.rotation_deg

    def coverage(self, thresholds: CoverageThresholds = DEFAULT_THRESHOLDS) -> KeyframeCoverage:
        """Return how well keyframes cover the video, by the container's list, else by a linear decode's."""
        return measure_coverage(
            self.keyframe_ms,
            first_ms=self.first_ms,
            keyframes=self.keyframes_in_file,
            duration_s=self.duration_s,
            thresholds=thresholds,
            segment=self.segment,
            frames=self.total_frames,
        )

    def __post_init__(self) -> None:
        shapes = [column.shape for column in (self.pts, self.time_s, self.frame_index, self.is_keyframe)]
        if not self.pts.size or any(shape != (len(self.pts),) for shape in shapes):
            raise ValueError(f"columns must be of one length, at least 1; got {shapes}")
        if self.picks.size == 0 or self.picks.min() < 0 or self.picks.max() >= len(self.pts):
            raise ValueError(f"picks must be indices of {len(self.pts)} images, got {self.picks.tolist()}")
        if self.deviation_s is not None and self.deviation_s.shape != self.picks.shape:
            raise ValueError(f"{self.picks.size} picks, but {self.deviation_s.size} deviations")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SampledFrames(Selection):
    """Decoded frames, and their RGB pixels; shape (N, H, W, 3), uint8."""

    images: npt.NDArray[np.uint8]

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.shape[-1] != 3 or len(self.images) == 0:  # noqa: PLR2004
            raise ValueError(f"images must be (N>=1, H, W, 3), got {self.images.shape}")
        if self.pts.shape != self.images.shape[:1]:
            raise ValueError(f"{len(self.images)} images, but columns of shape {self.pts.shape}")
        Selection.__post_init__(self)


def shown_pixels(images: npt.NDArray[np.uint8], picks: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Return the frames that the model is shown, in their order and with repeats.

    Returns:
        An array of shape (M, H, W, 3) that can be written to: `images` itself where each is shown once in its place,
        else a copy.
    """
    is_each = len(picks) == len(images) and (np.diff(picks) == 1).all()
    return images if is_each and images.flags.writeable else images[picks]
