"""Pixel encodings of frame files.

`raw` is read without a copy. `zstd` compresses reversible differences: green is subtracted from red and blue, as in
lossless WebP (luma noise is equal in all three), and from each row the one above, as in PNG's filter "up". `jpeg` is
lossy. For `sparse`, see `reelabel.frames.sparse`.
"""

from __future__ import annotations

from io import BytesIO
from math import prod
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from reelabel import arrow as pa
from reelabel.errors import VideoTooLargeError
from reelabel.optional import require

if TYPE_CHECKING:
    from types import ModuleType

    import numpy.typing as npt

LosslessEncoding = Literal["raw", "zstd"]
ExactEncoding = Literal["raw", "zstd", "sparse"]
Encoding = Literal["raw", "zstd", "sparse", "jpeg"]

# The higher levels take up to ten times as long for a tenth fewer bytes.
_ZSTD_LEVEL = 1
_MAX_JPEG_PX = 65_500
_RED, _GREEN, _BLUE = range(3)


def write_options(encoding: Encoding) -> pa.ipc.IpcWriteOptions:
    is_compressed = encoding in {"zstd", "sparse"}
    return pa.ipc.IpcWriteOptions(
        compression=pa.Codec("zstd", compression_level=_ZSTD_LEVEL) if is_compressed else None
    )


def encode_pixels(images: npt.NDArray[np.uint8], encoding: Encoding, *, jpeg_quality: int | None = None) -> pa.Array:
    """Encode RGB images, shape (N, H, W, 3), as a pixel column, one row per image; `jpeg` has a quality from 1 to 100.

    Raises VideoTooLargeError if a side exceeds JPEG's maximum.
    """
    if encoding == "jpeg":
        return pa.array([to_jpeg(image, quality=jpeg_quality or 0) for image in images], pa.binary())
    pixels = np.ascontiguousarray(images) if encoding == "raw" else to_differences(images)
    row_bytes = pixels[0].nbytes
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(row_bytes), len(pixels), [None, pa.py_buffer(pixels)])


def decode_pixels(column: pa.Array, encoding: Encoding, shape: tuple[int, int, int, int]) -> npt.NDArray[np.uint8]:
    """Decode a pixel column to RGB pixels, shape (N, H, W, 3), read-only; `raw` pixels are not copied.

    Raises ValueError if it holds no images of that shape, and OSError if a JPEG cannot be decoded.
    """
    if encoding not in {*get_args(LosslessEncoding), "jpeg"}:
        raise ValueError(f"encoding {encoding} holds no pixels")
    if encoding == "jpeg":
        images = np.stack([from_jpeg(data) for data in column.to_pylist()])
    else:
        images = np.frombuffer(column.buffers()[1], np.uint8, count=prod(shape)).reshape(shape)
    if images.shape != shape:
        raise ValueError(f"images must be {shape}, got {images.shape}")
    if encoding == "zstd":
        images = from_differences(images)
    images.flags.writeable = False
    return images


def jpeg_round_trip(images: npt.NDArray[np.uint8], *, quality: int) -> npt.NDArray[np.uint8]:
    return np.stack([from_jpeg(to_jpeg(image, quality=quality)) for image in images])


def to_differences(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Subtract green from red and blue, then from each row the one above, modulo 256; shape (N, H, W, 3)."""
    plain = images.copy()
    plain[..., _RED] -= images[..., _GREEN]
    plain[..., _BLUE] -= images[..., _GREEN]
    differences = plain.copy()
    differences[:, 1:] -= plain[:, :-1]
    return differences


def from_differences(differences: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Reverse `to_differences`, into a new array; shape (N, H, W, 3)."""
    images = np.empty_like(differences)
    images[:, 0] = differences[:, 0]
    # Row by row over all images: several times as fast as `np.cumsum`.
    for row in range(1, images.shape[1]):
        np.add(images[:, row - 1], differences[:, row], out=images[:, row])
    images[..., _RED] += images[..., _GREEN]
    images[..., _BLUE] += images[..., _GREEN]
    return images


def to_jpeg(image: npt.NDArray[np.uint8], *, quality: int) -> bytes:
    """Encode one image of shape (H, W, 3); raise VideoTooLargeError if a side exceeds JPEG's maximum."""
    if max(image.shape) > _MAX_JPEG_PX:
        raise VideoTooLargeError(
            f"A frame of {image.shape[1]}x{image.shape[0]} pixels is too large for JPEG; leave jpeg_quality empty."
        )
    file = BytesIO()
    _pillow().fromarray(image).save(file, "jpeg", quality=quality)
    return file.getvalue()


def from_jpeg(data: bytes) -> npt.NDArray[np.uint8]:
    with _pillow().open(BytesIO(data), formats=("jpeg",)) as image:
        return np.asarray(image, np.uint8)


def _pillow() -> ModuleType:
    return require("PIL.Image", extra="images", purpose="A frame file that stores JPEG")
