"""How frames travel to a server: exact in every way, with their times in all but one."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Any

from PIL import Image

from tasks.frames.file import decode_frame_file
from tasks.model.video_input import video_input

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from tasks.frames.file import FrameFile

_ARROW = "application/vnd.apache.arrow.file"
# vLLM tells a list of pictures by this type, and takes each one for what it is, PNG as well as JPEG.
_PICTURES = "video/jpeg"
_TIMES = ("fps", "duration", "total_num_frames", "frames_indices", "do_sample_frames")
_FASTEST = 1  # of PNG's levels: the higher ones take several times as long for a tenth fewer bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """Frames, ready to be sent.

    Attributes:
        parts: Stand before the question's text in the message.
        options: Go into the request beside the message.
    """

    parts: list[dict[str, Any]] = field(repr=False)
    options: dict[str, Any] = field(default_factory=dict, repr=False)


def as_frame_file(data: bytes) -> Carried:
    """Send the frame file as it is; the server reads it by Reelabel's plugin.

    Raises:
        FrameFileError: It is damaged.
    """
    decode_frame_file(data)  # what is damaged is better told here
    return Carried(parts=[_video(f"data:{_ARROW};base64,{_base64(data)}")])


def as_pngs(data: bytes) -> Carried:
    """Send a video as a list of PNGs with their times beside it; vLLM must trust requests with those.

    Raises:
        FrameFileError: The frame file is damaged.
    """
    frames = decode_frame_file(data)
    _, metadata = video_input(frames)
    times = {name: metadata[name] for name in _TIMES}
    return Carried(
        parts=[_video(f"data:{_PICTURES};base64,{','.join(_pngs(frames))}")],
        options={"media_io_kwargs": {"video": {"num_frames": -1, **times}}},
    )


def as_images(data: bytes) -> Carried:
    """Send each frame as an image of its own: no times, and to the model no video.

    Raises:
        FrameFileError: The frame file is damaged.
    """
    urls = [f"data:image/png;base64,{png}" for png in _pngs(decode_frame_file(data))]
    return Carried(parts=[{"type": "image_url", "image_url": {"url": url}} for url in urls])


WAYS: dict[str, Callable[[bytes], Carried]] = {"frame_file": as_frame_file, "png": as_pngs, "images": as_images}
TIMED_WAYS = ("frame_file", "png")


def _video(url: str) -> dict[str, Any]:
    return {"type": "video_url", "video_url": {"url": url}}


def _pngs(frames: FrameFile) -> list[str]:
    """Encode the frames in the order shown, each unique one once."""
    encoded = [_png(image) for image in frames.images]
    return [encoded[pick] for pick in frames.picks]


def _png(image: npt.NDArray[np.uint8]) -> str:
    file = BytesIO()
    Image.fromarray(image).save(file, "png", compress_level=_FASTEST)
    return _base64(file.getvalue())


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
