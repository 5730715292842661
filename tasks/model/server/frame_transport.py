"""Encode frames for a server: lossless in every encoding, with their times in all but one."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Any

from PIL import Image

from reelabel.errors import ConfigurationError
from reelabel.frames.frame_file import read_frames
from reelabel.integrations.vllm.video_input import video_input

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np
    import numpy.typing as npt

    from reelabel.result import Frames
    from tasks.domain import MediaCounts
    from tasks.domain.job import MediumKind

_ARROW = "application/vnd.apache.arrow.file"
# By this type vLLM recognises a list of images; it detects each one's format, PNG as well as JPEG.
_IMAGE_LIST = "video/jpeg"
_TIMES = ("fps", "duration", "total_num_frames", "frames_indices", "do_sample_frames")
_PNG_LEVEL = 1  # the fastest; higher ones take several times as long and save a tenth of the bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedFrames:
    """Frames, encoded for a request."""

    parts: list[dict[str, Any]] = field(repr=False)  # content parts that precede the question's text in the message
    options: dict[str, Any] = field(default_factory=dict, repr=False)  # further fields of the request's body


def encode_as_frame_file(data: bytes) -> EncodedFrames:
    read_frames(data)  # report a damaged file here, not from the server
    return EncodedFrames(parts=[_video(f"data:{_ARROW};base64,{_base64(data)}")])


def encode_as_pngs(data: bytes) -> EncodedFrames:
    """Encode a video as a list of PNGs, with their times as request options, which vLLM must be set to trust."""
    frames = read_frames(data)
    metadata = _with_room_for_all(video_input(frames)[1])
    times = {name: metadata[name] for name in _TIMES}
    return EncodedFrames(
        parts=[_video(f"data:{_IMAGE_LIST};base64,{','.join(_pngs(frames))}")],
        options={"media_io_kwargs": {"video": {"num_frames": -1, **times}}},
    )


def encode_as_images(data: bytes) -> EncodedFrames:
    urls = [f"data:image/png;base64,{png}" for png in _pngs(read_frames(data))]
    return EncodedFrames(parts=[{"type": "image_url", "image_url": {"url": url}} for url in urls])


FRAME_ENCODINGS: dict[str, Callable[[bytes], EncodedFrames]] = {
    "frame_file": encode_as_frame_file,
    "png": encode_as_pngs,
    "images": encode_as_images,
}


def encodings_of(media: MediaCounts) -> tuple[str, ...]:
    """Return the encodings that carry the times of so many videos, the best one first."""
    # Beside PNGs, times are options of a request, of which all its videos have the same.
    return ("frame_file", "png") if media.videos == 1 else ("frame_file",)


def require_encoding(encoding: str, media: MediaCounts) -> None:
    """Raise a ConfigurationError if an encoding does not carry the times of several videos; `auto` finds one."""
    encodings = encodings_of(media)
    if media.are_several and encoding not in {"auto", *encodings}:
        raise ConfigurationError(
            f"server.frames {encoding} cannot show {media} in a question; set it to {' or '.join(encodings)}."
        )


def encode_media(encoding: str, media: Iterable[tuple[MediumKind, bytes]]) -> EncodedFrames:
    """Encode videos and images, given by kind and frame file, in their order; images are PNGs."""
    parts: list[dict[str, Any]] = []
    options: dict[str, Any] = {}
    for kind, data in media:
        encoded = encode_as_images(data) if kind == "image" else FRAME_ENCODINGS[encoding](data)
        parts += encoded.parts
        options |= encoded.options
    return EncodedFrames(parts=parts, options=options)


def _with_room_for_all(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the same times at a multiple of the rate, if a short clip has fewer frames than are sent, with repeats.

    vLLM refuses more frames than `total_num_frames`. The factor is a power of two, so that every time stays exact.
    """
    factor = 1
    while factor * metadata["total_num_frames"] < len(metadata["frames_indices"]):
        factor *= 2
    return metadata | {
        "fps": metadata["fps"] * factor,
        "total_num_frames": metadata["total_num_frames"] * factor,
        "frames_indices": [index * factor for index in metadata["frames_indices"]],
    }


def _video(url: str) -> dict[str, Any]:
    return {"type": "video_url", "video_url": {"url": url}}


def _pngs(frames: Frames) -> list[str]:
    """Encode the frames in the order shown; each distinct frame is encoded once."""
    encoded = [encode_image(image) for image in frames.unique]
    return [encoded[row] for row in frames.shown]


def encode_image(image: npt.NDArray[np.uint8]) -> str:
    """Return an RGB picture, shape (H, W, 3), as a PNG in base64."""
    file = BytesIO()
    Image.fromarray(image).save(file, "png", compress_level=_PNG_LEVEL)
    return _base64(file.getvalue())


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
