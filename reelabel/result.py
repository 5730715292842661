"""Results of the library: frames as they are shown, and properties of their video."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache, cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from reelabel.coverage import DEFAULT_THRESHOLDS
from reelabel.errors import ConfigurationError
from reelabel.optional import require
from reelabel.sampled_frames import SampledFrames, Selection, shown_pixels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from reelabel.coverage import CoverageThresholds, KeyframeCoverage
    from reelabel.index import VideoIndex
    from reelabel.index import VideoInfo as HeaderInfo


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

    @classmethod
    def of(cls, got: Selection, header: HeaderInfo | None = None) -> VideoInfo:
        """Return what is known after decoding some frames, and from the header if it was read."""
        sides = got.native_width_px, got.native_height_px
        width, height = reversed(sides) if got.orientation.is_transposed else sides
        return cls(
            container=header.container if header else "",
            codec=header.codec if header else "",
            width=width,
            height=height,
            fps=got.fps,
            duration_s=got.duration_s,
            rotation_deg=got.rotation_deg,
            pixel_aspect=got.pixel_aspect,
            hdr=header.hdr if header else "",
        )


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
        bytes_fetched: Bytes read of a remote video.
        frames_decoded: Frames that decoders have output, including those that only others depend on.
    """

    decode_ms: float = 0.0
    fetch_ms: float = 0.0
    bytes_fetched: int = 0
    frames_decoded: int = 0


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Frames:
    """Frames of one video, in the order in which they were asked for, with repeats.

    Its length is their number, M. Iterating yields their pixels, `frames[i]` is one image, and `frames[a:b]` are
    `Frames` again.

    Attributes:
        shown: Rows of `unique`, in the order asked for; shape (M,), int64.
        time_s: When each is shown, in seconds since the video's first frame; shape (M,), float64.
        pts: Presentation timestamps in the stream's time base, -2**63 where there is none; shape (M,), int64.
        index: Positions in a linear decode of the whole video, -1 where unknown; shape (M,), int64.
        is_keyframe: Whether each is a keyframe; shape (M,), bool.
        deviation_s: `time_s` minus the instant for which each was chosen; shape (M,), float64; None if the sampler has
            no such instants.
        shape: Shape of `unique`.
        info: What is known of the video.
        sampler: The sampler that chose them; empty if they were asked for by position or time.
        method: How they were found: by the container's `index`, by `seek`, or by a `linear` decode.
        note: Why no faster method was possible, and what is unusual about the video; empty if nothing is.
        cost: What it took to get them.
        selection: The rest that is known of each frame of `unique`, and of the video.
        source_uri: URI of the video, if they were read from a frame file; else empty.
    """

    shown: npt.NDArray[np.int64]
    time_s: npt.NDArray[np.float64]
    pts: npt.NDArray[np.int64]
    index: npt.NDArray[np.int64]
    is_keyframe: npt.NDArray[np.bool_]
    deviation_s: npt.NDArray[np.float64] | None
    shape: tuple[int, ...]
    info: VideoInfo
    sampler: str
    method: Literal["index", "seek", "linear"]
    note: str
    cost: Cost
    selection: Selection
    source_uri: str = ""
    _pixels: Callable[[], npt.NDArray[np.uint8]]

    @classmethod
    def of(
        cls,
        got: SampledFrames,
        info: VideoInfo | None = None,
        *,
        sampler: str | None = None,
        cost: Cost | None = None,
    ) -> Frames:
        """Return decoded frames as they are shown."""
        frames = cls.with_pixels(got, lambda: got.images, got.images.shape)
        return replace(
            frames,
            info=info or frames.info,
            sampler=frames.sampler if sampler is None else sampler,
            cost=cost or frames.cost,
        )

    @classmethod
    def with_pixels(
        cls,
        got: Selection,
        pixels: Callable[[], npt.NDArray[np.uint8]],
        shape: tuple[int, ...],
        *,
        source_uri: str = "",
    ) -> Frames:
        """Return frames whose pixels, of some shape, are decoded by `pixels` when they are first used."""
        picks = got.picks
        return cls(
            shown=picks,
            time_s=got.time_s[picks] - (got.first_s or 0.0),
            pts=got.pts[picks],
            index=got.frame_index[picks],
            is_keyframe=got.is_keyframe[picks],
            deviation_s=got.deviation_s,
            shape=shape,
            info=VideoInfo.of(got),
            sampler=got.sampler,
            method=got.method,
            note=got.reason,
            cost=Cost(decode_ms=got.decode_ms, frames_decoded=got.frames_decoded),
            selection=got,
            source_uri=source_uri,
            _pixels=cache(pixels),  # shared by slices
        )

    @property
    def unique(self) -> npt.NDArray[np.uint8]:
        """RGB pixels of each frame once, in the order of the decode; shape (N, H, W, 3), uint8.

        Raises:
            FrameFileError: They were read from a frame file, and do not match its metadata.
        """
        return self._pixels()

    @cached_property
    def images(self) -> npt.NDArray[np.uint8]:
        """RGB pixels in the order asked for, with repeats; shape (M, H, W, 3), uint8; upright unless `as_stored`."""
        return shown_pixels(self.unique, self.shown)

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
        return self.selection.coverage(thresholds)

    def sampled(self) -> SampledFrames:
        """Return these frames with all that is known of them; there is at least one."""
        known = {each.name: getattr(self.selection, each.name) for each in fields(Selection)}
        return SampledFrames(**known | {"picks": self.shown, "deviation_s": self.deviation_s}, images=self.unique)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the pixels themselves: what decodes them may be a function, or a pool."""
        state = {each.name: getattr(self, each.name) for each in fields(self)}
        return state | {"_pixels": partial(np.asarray, self.unique)}

    def __len__(self) -> int:
        return len(self.shown)

    def __iter__(self) -> Iterator[npt.NDArray[np.uint8]]:
        return iter(self.images)

    @overload
    def __getitem__(self, key: int) -> npt.NDArray[np.uint8]: ...
    @overload
    def __getitem__(self, key: slice) -> Frames: ...
    def __getitem__(self, key: int | slice) -> npt.NDArray[np.uint8] | Frames:
        if not isinstance(key, slice):
            image: npt.NDArray[np.uint8] = self.images[key]
            return image
        return replace(
            self,
            shown=self.shown[key],
            time_s=self.time_s[key],
            pts=self.pts[key],
            index=self.index[key],
            is_keyframe=self.is_keyframe[key],
            deviation_s=None if self.deviation_s is None else self.deviation_s[key],
        )

    def __repr__(self) -> str:
        height, width = self.shape[1:3]
        times = f"{self.time_s.min():.4g}-{self.time_s.max():.4g} s, " if len(self) else ""
        sampler = f"sampler={self.sampler!r}, " if self.sampler else ""
        return f"Frames({len(self)} x {height}x{width}, {times}{sampler}method={self.method!r})"
