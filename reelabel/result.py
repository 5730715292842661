"""Results of the library: frames as they are shown, and properties of their video."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, SupportsIndex, TypeVar, overload

import numpy as np

from reelabel.coverage import DEFAULT_THRESHOLDS, CoverageThresholds, KeyframeCoverage, measure_coverage
from reelabel.errors import ConfigurationError
from reelabel.index import Bools, Float64s, Int64s  # noqa: TC001 - fields are read back by their types
from reelabel.optional import require
from reelabel.segment import WHOLE, Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from reelabel.index import HeaderInfo, VideoIndex

    Pixels = npt.NDArray[np.uint8]

_Pixel = TypeVar("_Pixel", np.uint8, np.uint16)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoInfo:
    """Properties of a video.

    Attributes:
        container: Its format, such as `mp4` or `matroska`; empty if unknown.
        codec: FFmpeg's name of its codec, such as `h264`; empty if unknown.
        width: Width in pixels, as shown: without cropped margins, and turned.
        height: Height in pixels, as shown.
        fps: Average frame rate; 0.0 if unknown.
        duration_s: Duration as stated, else what its frames fill; 0.0 if unknown.
        rotation_deg: Counter-clockwise rotation requested by the container: 0, 90, 180 or 270.
        pixel_aspect: Sample aspect ratio; reported, not applied.
        hdr: Transfer function of an HDR video, `PQ` or `HLG`; empty otherwise.
    """

    container: str
    codec: str
    width: int
    height: int
    fps: float
    duration_s: float
    rotation_deg: int
    pixel_aspect: float
    hdr: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrameIndex:
    """The frames of a video in the order in which they are shown, as the file lists them; nothing was decoded.

    Attributes:
        time_s: When each is shown, in seconds since the first frame, never falling; shape (N,), float64, N >= 1.
        pts: Presentation timestamps in the stream's time base; shape (N,), int64.
        is_keyframe: Whether each is a keyframe; shape (N,), bool.
        pos: Offsets of their packets in the file, 0 where unknown; shape (N,), int64.
        size: Sizes of their packets in bytes, 0 where unknown; shape (N,), int64.
        listed: Whether the container's index lists them, or all packets were demuxed.
    """

    time_s: npt.NDArray[np.float64]
    pts: npt.NDArray[np.int64]
    is_keyframe: npt.NDArray[np.bool_]
    pos: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    listed: Literal["index", "packets"]

    @classmethod
    def of(cls, index: VideoIndex) -> FrameIndex:
        """Return the frames that an index of all of them lists, with their times."""
        assert index.time_s is not None
        return cls(
            time_s=index.time_s - index.time_s[0],
            pts=index.pts[index.order],
            is_keyframe=index.shown_keyframes,
            pos=index.pos[index.order],
            size=index.sizes_bytes,
            listed="index" if index.kind == "container" else "packets",
        )

    def __len__(self) -> int:
        return len(self.time_s)

    def __repr__(self) -> str:
        keyframes = int(self.is_keyframe.sum())
        return f"FrameIndex({len(self)} frames, {keyframes} keyframes, {self.time_s[-1]:.4g} s, listed={self.listed!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of some frames.

    Attributes:
        decode_ms: Milliseconds of decoding, from opening the file to the last frame.
        fetch_ms: Milliseconds spent waiting for the bytes of a remote video.
        bytes_fetched: Bytes read of a remote video, also for attempts that failed; in a run, the size of a local one.
        frames_decoded: Frames that decoders have output, including those that only others depend on.
    """

    decode_ms: float = 0.0
    fetch_ms: float = 0.0
    bytes_fetched: int = 0
    frames_decoded: int = 0


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
        first_s: When the video's first frame is shown, on that clock; None if unknown.
        keyframes_in_file: Number of keyframes in the video stream; with method `index`, as listed in the index.
        keyframe_ms: Presentation time of each keyframe in milliseconds; shape (K,), int64, ascending; None if unknown.
        first_ms: Presentation time of the first frame in milliseconds, or slightly less; None if unknown.
        total_frames: Number of frames in the video stream; None if only decoding could count them.
        fps: Average frame rate; 0.0 if the container has none.
        duration_s: Duration of the stream as stated, else what its frames fill; 0.0 if unknown.
        pixel_aspect: Sample aspect ratio; reported, not applied.
        native_width_px: Width as stored, without the margins that the container crops, before rotation and scaling.
        native_height_px: Its height.
        orientation: Rotation and mirroring for display; applied unless `as_stored`.
        method: How the frames were located: by the container's `index`, by `seek`, or by a `linear` decode.
        note: Why a faster method was unavailable, where times differ from timestamps, whether the file is cut short,
            and what was done about HDR; empty if there is nothing to report.
        decode_ms: Milliseconds from opening the file to the last frame, excluding `fetch_ms`.
        frames_decoded: Frames output by decoders, including those of attempts that failed.
        sampler: The sampler that chose the frames; empty if they were asked for by position or time.
        fetch_ms: Milliseconds spent waiting for the bytes of a remote file, in ranges or whole; 0 for a local one.
        bytes_fetched: Bytes fetched of a remote file, in ranges or whole; in a run, the size of a local one.
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
    note: str
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

    def __post_init__(self) -> None:
        shapes = [column.shape for column in (self.pts, self.time_s, self.frame_index, self.is_keyframe)]
        if not self.pts.size or any(shape != (len(self.pts),) for shape in shapes):
            raise ValueError(f"columns must be of one length, at least 1; got {shapes}")
        if self.picks.size and not 0 <= self.picks.min() <= self.picks.max() < len(self.pts):
            raise ValueError(f"picks must be indices of {len(self.pts)} images, got {self.picks.tolist()}")
        if self.deviation_s is not None and self.deviation_s.shape != self.picks.shape:
            raise ValueError(f"{self.picks.size} picks, but {self.deviation_s.size} deviations")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Frames:
    """Frames of one video, in the order in which they were asked for, with repeats.

    Its length is their number, M. Iterating yields their pixels, `frames[i]` is one image, and `frames[a:b]` are
    `Frames` again. Those of a frame file are decoded when their pixels are first used.

    Attributes:
        selection: All that is known of the frames, each once, and of their video.
        pixels: Returns `unique`; the same array each time.
        shape: Shape of `unique`.
        header: What the header of the video states; None if it was not read.
        source_uri: URI of the video, if they were read from a frame file; else empty.
    """

    selection: Selection
    pixels: Callable[[], Pixels]
    shape: tuple[int, ...]
    header: HeaderInfo | None = None
    source_uri: str = ""

    def __post_init__(self) -> None:
        count = len(self.selection.pts)
        if len(self.shape) != 4 or self.shape[0] != count or self.shape[3] != 3 or 0 in self.shape:  # noqa: PLR2004
            raise ValueError(f"images must be ({count}, H, W, 3), got {self.shape}")

    @classmethod
    def of(cls, images: Pixels, selection: Selection) -> Self:
        """Return frames by the pixels of each once; shape (N, H, W, 3)."""
        return cls(selection=selection, pixels=lambda: images, shape=images.shape)

    def with_selection(self, **known: Any) -> Self:  # noqa: ANN401 - fields of `Selection`
        """Return the same frames, with some fields of `selection` replaced."""
        return replace(self, selection=replace(self.selection, **known))

    @property
    def unique(self) -> Pixels:
        """RGB pixels of each frame once, in the order of the decode; shape (N, H, W, 3), uint8.

        Raises:
            FrameFileError: They were read from a frame file, and do not match its metadata.
        """
        return self.pixels()

    @cached_property
    def images(self) -> Pixels:
        """RGB pixels in the order asked for, with repeats; shape (M, H, W, 3), uint8; upright unless `as_stored`.

        They can be written to; the array is `unique` where that is possible and each is shown once in its place.
        """
        is_each = len(self) == self.shape[0] and (np.diff(self.shown) == 1).all()
        return self.unique if is_each and self.unique.flags.writeable else self.unique[self.shown]

    @property
    def shown(self) -> Int64s:
        """Rows of `unique`, in the order asked for; shape (M,), int64."""
        return self.selection.picks

    @cached_property
    def time_s(self) -> Float64s:
        """When each is shown, in seconds since the video's first frame; shape (M,), float64."""
        return self.selection.time_s[self.shown] - (self.selection.first_s or 0.0)

    @cached_property
    def pts(self) -> Int64s:
        """Presentation timestamps in the stream's time base, -2**63 where there is none; shape (M,), int64."""
        return self.selection.pts[self.shown]

    @cached_property
    def index(self) -> Int64s:
        """Positions in a linear decode of the whole video, -1 where unknown; shape (M,), int64."""
        return self.selection.frame_index[self.shown]

    @cached_property
    def is_keyframe(self) -> Bools:
        """Whether each is a keyframe; shape (M,), bool."""
        return self.selection.is_keyframe[self.shown]

    @property
    def deviation_s(self) -> Float64s | None:
        """`time_s` minus the instant each was chosen for; shape (M,), float64; None if the sampler has no instants."""
        return self.selection.deviation_s

    @property
    def info(self) -> VideoInfo:
        """What is known of the video."""
        known, header = self.selection, self.header
        sides = known.native_width_px, known.native_height_px
        width, height = reversed(sides) if known.orientation.is_transposed else sides
        return VideoInfo(
            container=header.container if header else "",
            codec=header.codec if header else "",
            width=width,
            height=height,
            fps=known.fps,
            duration_s=known.duration_s,
            rotation_deg=known.rotation_deg,
            pixel_aspect=known.pixel_aspect,
            hdr=header.hdr if header else "",
        )

    @property
    def sampler(self) -> str:
        """The sampler that chose them; empty if they were asked for by position or time."""
        return self.selection.sampler

    @property
    def method(self) -> Literal["index", "seek", "linear"]:
        """How they were found: by the container's `index`, by `seek`, or by a `linear` decode."""
        return self.selection.method

    @property
    def note(self) -> str:
        """Why no faster method was possible, and what is unusual about the video; empty if nothing is."""
        return self.selection.note

    @property
    def cost(self) -> Cost:
        """What it took to get them."""
        return Cost(**{each.name: getattr(self.selection, each.name) for each in fields(Cost)})

    def to_torch(self, *, channels_first: bool = True) -> Any:  # noqa: ANN401 - torch is optional
        """Return the images as a tensor of torch, uint8: (M, 3, H, W), or (M, H, W, 3). It shares their memory.

        Raises:
            ConfigurationError: Torch is not installed.
        """
        try:
            torch = import_module("torch")
        except ModuleNotFoundError:
            raise ConfigurationError(
                "to_torch() needs torch, which is not installed; install it, or use images."
            ) from None
        tensor = torch.from_numpy(self.images)
        return tensor.permute(0, 3, 1, 2) if channels_first else tensor

    def to_pil(self) -> list[Any]:
        """Return the images as images of Pillow.

        Raises:
            ConfigurationError: Pillow is not installed.
        """
        image = require("PIL.Image", extra="images", purpose="to_pil()")
        return [image.fromarray(each) for each in self.images]

    def coverage(self, thresholds: CoverageThresholds = DEFAULT_THRESHOLDS) -> KeyframeCoverage:
        """Return how well the video's keyframes cover it, or the segment that was sampled."""
        known = self.selection
        return measure_coverage(
            known.keyframe_ms,
            first_ms=known.first_ms,
            keyframes=known.keyframes_in_file,
            duration_s=known.duration_s,
            thresholds=thresholds,
            segment=known.segment,
            frames=known.total_frames,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the pixels themselves: what decodes them may be a function, or a pool."""
        return {each.name: getattr(self, each.name) for each in fields(self)} | {
            "pixels": partial(np.asarray, self.unique)
        }

    def __len__(self) -> int:
        return len(self.shown)

    def __iter__(self) -> Iterator[npt.NDArray[np.uint8]]:
        return iter(self.images)

    @overload
    def __getitem__(self, key: SupportsIndex) -> npt.NDArray[np.uint8]: ...
    @overload
    def __getitem__(self, key: slice) -> Frames: ...
    def __getitem__(self, key: SupportsIndex | slice) -> npt.NDArray[np.uint8] | Frames:
        if not isinstance(key, slice):
            image: npt.NDArray[np.uint8] = self.images[key]
            return image
        deviation_s = self.selection.deviation_s
        return self.with_selection(picks=self.shown[key], deviation_s=None if deviation_s is None else deviation_s[key])

    def __repr__(self) -> str:
        height, width = self.shape[1:3]
        times = f"{self.time_s.min():.4g}-{self.time_s.max():.4g} s, " if len(self) else ""
        sampler = f"sampler={self.sampler!r}, " if self.sampler else ""
        return f"Frames({len(self)} x {height}x{width}, {times}{sampler}method={self.method!r})"
