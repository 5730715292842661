"""Pixels of the wanted frames, drawn as they are decoded, by one or several threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from reelabel.decode.render import Renderer, View, cut_margins, orientation_of
from reelabel.errors import FallbackRequired, VideoUnreadableError
from reelabel.index import MOST, NOT_CROPPED, Bools, Float64s, HeaderInfo, Int64s, VideoIndex
from reelabel.result import Orientation  # noqa: TC001

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from av.video.frame import VideoFrame

    from reelabel.options import Limits

Pixels: TypeAlias = npt.NDArray[np.uint8]
_T = TypeVar("_T")


class FrameInfo(NamedTuple):
    """One frame, and its position among the frames that are shown.

    `pts` is `NO_PTS` if it has none; `time_s` is on the clock of the video's first frame, 0 if unknown.
    """

    pts: int
    time_s: float
    position: int
    is_keyframe: bool


def frames_of(index: VideoIndex, indices: Int64s) -> list[FrameInfo]:
    rows = index.order[indices]
    times_s = np.zeros(len(rows)) if index.time_s is None else index.time_s[indices]
    columns = index.pts[rows], times_s, indices, index.is_keyframe[rows]
    return [FrameInfo(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decoded:
    """The frames that a decoder was asked for, in their order.

    Attributes:
        images: RGB pixels; shape (N, H, W, 3), N >= 1. Each column has N rows.
        pts: Presentation timestamps, `NO_PTS` where there is none.
        time_s: When each is shown, on the clock of the first frame, never falling.
        position: Positions in the linear decode, -1 where unknown.
        info: What is known of the stream after decoding.
        native_width_px: Width as stored, without the margins that the container crops.
        is_counted: Whether the number of frames in the index is right.
        missing_bytes: Bytes missing at the end of the file.
        frames_decoded: Frames that the decoder has output so far.
    """

    images: Pixels
    pts: Int64s
    time_s: Float64s
    position: Int64s
    is_keyframe: Bools
    info: HeaderInfo
    orientation: Orientation
    native_width_px: int
    native_height_px: int
    note: str = ""
    is_counted: bool = True
    missing_bytes: int = 0
    frames_decoded: int = 0

    def __post_init__(self) -> None:
        columns = self.pts, self.time_s, self.position, self.is_keyframe
        if self.images.ndim != 4 or self.images.shape[-1] != 3 or not self.images.size:  # noqa: PLR2004
            raise ValueError(f"images of shape {self.images.shape}")
        if any(column.shape != self.images.shape[:1] for column in columns):
            raise ValueError(f"{len(self.images)} images, but columns of {[column.shape for column in columns]}")
        if not np.isfinite(self.time_s).all() or (np.diff(self.time_s) < 0).any() or self.position.min() < -1:
            raise ValueError("time_s must be finite and never fall, and position at least -1")
        if not all(1 <= side <= MOST for side in (self.native_width_px, self.native_height_px)):
            raise ValueError(f"frames of {self.native_width_px} x {self.native_height_px}")
        if self.orientation.rotation_deg not in {0, 90, 180, 270}:
            raise ValueError(f"a rotation of {self.orientation.rotation_deg} degrees")
        if self.missing_bytes < 0 or not 0 <= self.frames_decoded <= MOST:
            raise ValueError("counts must not be negative")


class Canvas:
    """The pixels of wanted frames. The first frame determines size and orientation; others wait for it.

    `stopped` is set when the frames are no longer wanted.
    """

    def __init__(
        self,
        wanted: Sequence[FrameInfo],
        view: View,
        limits: Limits,
        describe: Callable[[], HeaderInfo],
        *,
        size: tuple[int, int] | None = None,
    ) -> None:
        """`describe` reads the header, after frames were decoded; `size` is the frame size that it states."""
        self.wanted, self.stopped = wanted, threading.Event()
        self._rows = {info: row for row, info in enumerate(wanted)}
        self._view, self._limits, self._describe = view, limits, describe
        self._stated_size = size
        self._renderer: Renderer | None = None
        self._has_begun, self._threads = threading.Event(), threading.local()
        self._drawn: set[int] = set()

    def draw(self, info: FrameInfo, frame: VideoFrame) -> None:
        """Draw a frame.

        Raises FallbackRequired if the first frame differs in size from the header; and as `Renderer.draw` does.
        """
        row = self._rows[info]
        if row == 0 and self._renderer is None:
            self._begin(frame)
        self._has_begun.wait()
        if self._renderer is None:  # stopped
            return
        if not hasattr(self._threads, "renderer"):
            self._threads.renderer = self._renderer.copy()
        self._threads.renderer.draw(cut_margins(frame, self._crop), self.images[row])
        self._drawn.add(row)

    def stop(self) -> None:
        self.stopped.set()
        self._has_begun.set()

    def share(self, items: Sequence[_T], workers: Sequence[Callable[[Iterable[_T]], None]]) -> None:
        """Share items among workers, each in a thread of its own; the first worker draws the first item.

        Raises what a worker raises first, or MemoryError if memory does not suffice for that many threads.
        """
        if len(workers) == 1:
            workers[0](items)
            return
        rest, errors = iter(items[len(workers) :]), list[BaseException]()

        def work(worker: Callable[[Iterable[_T]], None], first: _T) -> None:
            try:
                worker(chain([first], rest))
            except BaseException as error:  # noqa: BLE001 - raised again below
                errors.append(error)
                self.stop()

        with ThreadPoolExecutor(len(workers)) as threads:
            try:
                for started in [threads.submit(work, *each) for each in zip(workers, items, strict=False)]:
                    started.result()
            except RuntimeError as error:  # no room for another thread's stack
                self.stop()
                raise MemoryError(str(error)) from None
            except BaseException:
                self.stop()
                raise
        if errors:
            raise errors[0]

    def restart(self) -> None:
        self.stopped.clear()

    def finish(self, position: Int64s, *, note: str = "", is_counted: bool = True) -> Decoded:
        """Return the frames; raise VideoUnreadableError if one was not drawn."""
        if self._renderer is None or len(self._drawn) < len(self._rows):
            raise VideoUnreadableError("The video is decoded differently each time; it is probably damaged.")
        return Decoded(
            images=self.images,
            pts=np.array([each.pts for each in self.wanted], np.int64),
            time_s=np.array([each.time_s for each in self.wanted], np.float64),
            position=position,
            is_keyframe=np.array([each.is_keyframe for each in self.wanted], np.bool_),
            info=self._describe(),
            orientation=self._renderer.orientation,
            native_width_px=self._native_size[0],
            native_height_px=self._native_size[1],
            note="; ".join(filter(None, [note, self._renderer.note])),
            is_counted=is_counted,
        )

    def _begin(self, frame: VideoFrame) -> None:
        if self._stated_size and (frame.width, frame.height) != self._stated_size:
            raise FallbackRequired("the header states another frame size")
        self._crop = NOT_CROPPED if self._view.as_stored else self._describe().crop
        picture = cut_margins(frame, self._crop)
        orientation = orientation_of(frame)
        renderer = Renderer.from_frame(picture, view=self._view, limits=self._limits, orientation=orientation)
        self.images = np.empty((len(self.wanted), *renderer.shape), np.uint8)
        self._native_size = picture.width, picture.height
        self._renderer = renderer
        self._has_begun.set()
