"""Convert decoded frames to the RGB pixels that the model sees."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from av.filter import Graph
from av.sidedata.sidedata import Type as KnownSideData
from av.video.reformatter import Interpolation, VideoReformatter

from reelabel.containers.stream_properties import check_frame_size, hdr_transfer
from reelabel.decode.tone_mapping import DEEP_PLANAR, tone_map
from reelabel.errors import VideoUnreadableError
from reelabel.result import Orientation
from reelabel.sampling.options import AS_DECODED, Sampling

if TYPE_CHECKING:
    import numpy.typing as npt
    from av.video.frame import VideoFrame
    from av.video.plane import VideoPlane

    from reelabel.index import Crop
    from reelabel.options import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How frames are drawn.

    A `max_pixels` of None scales none down. With `as_stored`, they are left unscaled, with margins, not turned, not
    tone-mapped. `skip_loop_filter` leaves out the loop filter where GOPs are decoded: faster, and not exact.
    """

    max_pixels: int | None = None
    size_multiple_px: int = 1
    tone_maps: bool = True
    as_stored: bool = False
    skip_loop_filter: bool = False

    @classmethod
    def of(cls, sampling: Sampling, *, as_stored: bool = False, skip_loop_filter: bool = False) -> View:
        return cls(
            max_pixels=sampling.max_pixels,
            size_multiple_px=sampling.size_multiple_px,
            tone_maps=not as_stored and sampling.hdr != AS_DECODED,
            as_stored=as_stored,
            skip_loop_filter=skip_loop_filter,
        )

    @property
    def is_unscaled(self) -> bool:
        """Whether frames keep their size, so that they are converted as `to_ndarray(format="rgb24")` does."""
        return self.as_stored or (self.max_pixels is None and self.size_multiple_px == 1)

    def fit(self, width_px: int, height_px: int) -> tuple[int, int]:
        if self.is_unscaled:
            return width_px, height_px
        return fit_size(width_px, height_px, max_pixels=self.max_pixels, multiple_px=self.size_multiple_px)

    def shape(self, width_px: int, height_px: int, orientation: Orientation) -> tuple[int, int, int]:
        """Return height, width and channels of frames that were scaled to a size, after they are turned."""
        is_turned = orientation.is_transposed and not self.as_stored
        return (width_px, height_px, 3) if is_turned else (height_px, width_px, 3)


def fit_size(width_px: int, height_px: int, *, max_pixels: int | None, multiple_px: int) -> tuple[int, int]:
    """Round a frame's sides to multiples of the model's patch, at least one, within a pixel budget; None is no limit.

    The rule is `smart_resize` of transformers' Qwen2-VL video processor, without its lower limit, so that Qwen's
    processor does not resize again.
    """
    width = max(multiple_px, round(width_px / multiple_px) * multiple_px)
    height = max(multiple_px, round(height_px / multiple_px) * multiple_px)
    if max_pixels is not None and width * height > max_pixels:
        shrink = math.sqrt(width_px * height_px / max_pixels)
        width = max(multiple_px, math.floor(width_px / shrink / multiple_px) * multiple_px)
        height = max(multiple_px, math.floor(height_px / shrink / multiple_px) * multiple_px)
    return width, height


def orientation_of(frame: VideoFrame) -> Orientation:
    """Read a frame's display matrix, rounded to the nearest quarter turn.

    The matrix (a b u; c d v; x y w) maps a stored point (p, q) to (a p + c q, b p + d q), with q pointing down
    (ISO/IEC 14496-12, section 6.2.2; FFmpeg's `libavutil/display.h`). For a photograph, FFmpeg makes it of the
    orientation in the EXIF data.
    """
    # Reading a frame's side data keeps the frame alive until the next garbage collection, and with it a buffer of the
    # decoder, which would change what damage is concealed with. So it is read from a copy.
    frame = _filtered(frame, ("copy", ""))
    try:
        matrix: Any = frame.side_data.get("DISPLAYMATRIX")
    except ValueError:  # PyAV knows none of a frame's side data if there is one of a type that it does not know
        matrix = _keep_known_side_data(frame).side_data.get("DISPLAYMATRIX")
    if matrix is None:
        return Orientation()
    a, b, _, c, d = np.frombuffer(matrix, np.int32)[:5].tolist()
    rotation_deg = round(frame.rotation / 90) % 4 * 90
    if abs(b) + abs(c) > abs(a) + abs(d):
        return Orientation(is_transposed=True, is_mirrored=c < 0, is_flipped=b < 0, rotation_deg=rotation_deg)
    return Orientation(is_mirrored=a < 0, is_flipped=d < 0, rotation_deg=rotation_deg)


def _keep_known_side_data(frame: VideoFrame) -> VideoFrame:
    """Return the frame without side data of types that PyAV does not know, such as EXIF."""
    first = len(KnownSideData)
    return _filtered(frame, *(("sidedata", f"mode=delete:type={first + k}") for k in range(_NEWER_TYPES)))


def cut_margins(frame: VideoFrame, crop: Crop) -> VideoFrame:
    """Return a frame without the margins that its container crops; as it is if nothing would be left of it.

    As FFmpeg's tools do, margins are rounded to whole samples of chroma.
    """
    if not crop.fits(frame.width, frame.height):
        return frame
    size = f"w=iw-{crop.left + crop.right}:h=ih-{crop.top + crop.bottom}"
    return _filtered(frame, ("crop", f"{size}:x={crop.left}:y={crop.top}"))


def _filtered(frame: VideoFrame, *filters: tuple[str, str]) -> VideoFrame:
    graph = Graph()
    graph.threads = 1
    source = graph.add_buffer(
        width=frame.width, height=frame.height, format=frame.format, time_base=frame.time_base or Fraction(1)
    )
    graph.link_nodes(source, *itertools.starmap(graph.add, filters), graph.add("buffersink")).configure()
    graph.push(frame)
    return cast("VideoFrame", graph.pull())


# FFmpeg 8.1 has five types of side data that PyAV 18.1 does not know; later ones may have more.
_NEWER_TYPES = 16
# Exact rounding, so that every CPU's SIMD code gives the same pixels.
_SCALING = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.BITEXACT
_Sample = TypeVar("_Sample", np.uint8, np.uint16)
# FFmpeg scales to planar RGB faster than to packed, and with chroma at full resolution.
_PLANAR = "gbrp"
_PLANES_TO_CHANNELS = (1, 2, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Renderer:
    """Converts the frames of one video to RGB of a single size: width and height are those before rotation.

    `hdr` is the transfer function of the first frame if it is HDR; empty otherwise.
    """

    width_px: int
    height_px: int
    orientation: Orientation
    view: View
    limits: Limits
    hdr: str
    _reformatter: VideoReformatter = field(default_factory=VideoReformatter)

    @classmethod
    def from_frame(cls, frame: VideoFrame, *, view: View, limits: Limits, orientation: Orientation) -> Renderer:
        width, height = view.fit(frame.width, frame.height)
        return cls(
            width_px=width, height_px=height, orientation=orientation, view=view, limits=limits, hdr=hdr_transfer(frame)
        )

    def copy(self) -> Renderer:
        return replace(self, _reformatter=VideoReformatter())

    @property
    def note(self) -> str:
        """How HDR was treated; empty for SDR."""
        if not self.hdr or self.view.as_stored:
            return ""
        return f"{self.hdr} tone-mapped to SDR" if self.view.tone_maps else f"{self.hdr} shown as decoded"

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.view.shape(self.width_px, self.height_px, self.orientation)

    def draw(self, frame: VideoFrame, image: npt.NDArray[np.uint8]) -> None:
        """Convert one frame to RGB, into an array of `shape`.

        Raises VideoTooLargeError, and VideoUnreadableError if frames are not to be scaled, but this one is of another
        size.
        """
        check_frame_size(frame.width, frame.height, self.limits)
        if self.view.is_unscaled:
            self._check_size(frame)
        if self.view.tone_maps and hdr_transfer(frame):
            tone_map(frame, self._scaled(frame, DEEP_PLANAR, np.uint16), image)
            return
        if self.view.is_unscaled:
            image[:] = self._packed(frame)
            return
        for plane, channel in zip(self._scaled(frame, _PLANAR, np.uint8), _PLANES_TO_CHANNELS, strict=True):
            image[..., channel] = plane

    def _packed(self, frame: VideoFrame) -> npt.NDArray[np.uint8]:
        packed = self._reformatter.reformat(frame, format="rgb24", threads=1)
        pixels = self._lines(packed.planes[0])[:, : 3 * self.width_px].reshape(self.height_px, self.width_px, 3)
        return pixels if self.view.as_stored else self.orientation.apply(pixels)

    def _scaled(self, frame: VideoFrame, pixel_format: str, dtype: type[_Sample]) -> list[npt.NDArray[_Sample]]:
        scaled = self._reformatter.reformat(
            frame, width=self.width_px, height=self.height_px, format=pixel_format, interpolation=_SCALING, threads=1
        )
        planes = (self._lines(plane).view(dtype)[:, : self.width_px] for plane in scaled.planes)
        return [self.orientation.apply(plane) for plane in planes]

    def _lines(self, plane: VideoPlane) -> npt.NDArray[np.uint8]:
        lines: npt.NDArray[np.uint8] = np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)
        return lines[: self.height_px]

    def _check_size(self, frame: VideoFrame) -> None:
        if (frame.width, frame.height) != (self.width_px, self.height_px):
            raise VideoUnreadableError(
                f"The frame size changes within the video ({self.width_px}x{self.height_px}, then "
                f"{frame.width}x{frame.height}); set max_pixels, to scale all frames to one size."
            )
