"""How the pixels of a frame file are stored.

`raw` reads without a copy. `lz4` and `zstd` compress differences between neighbours, which undoes
exactly: green from red and blue, as lossless WebP does it (luma noise is the same in all three), and
each row from the one above, PNG's filter "up". `jpeg` is lossy. For `packets` see `tasks.frames.packets`.
"""

from __future__ import annotations

from io import BytesIO
from math import prod
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import pyarrow as pa
from PIL import Image

from infra.errors import VideoTooLargeError

if TYPE_CHECKING:
    import numpy.typing as npt

Lossless = Literal["raw", "lz4", "zstd"]
Exact = Literal["raw", "lz4", "zstd", "packets"]
Encoding = Literal["raw", "lz4", "zstd", "packets", "jpeg"]

# The higher levels take up to ten times as long for a tenth fewer bytes: `python -m benchmarks store`.
_ZSTD_LEVEL = 1
_MOST_JPEG_PX = 65_500
_RED, _GREEN, _BLUE = range(3)


def write_options(encoding: Encoding) -> pa.ipc.IpcWriteOptions:
    """Say how Arrow compresses a file of this encoding."""
    codecs = {"lz4": pa.Codec("lz4"), "zstd": pa.Codec("zstd", compression_level=_ZSTD_LEVEL)}
    return pa.ipc.IpcWriteOptions(compression=codecs.get(encoding))


def encode_pixels(images: npt.NDArray[np.uint8], encoding: Encoding, *, jpeg_quality: int | None = None) -> pa.Array:
    """Make the column of pixels, one row per image.

    Args:
        images: RGB pixels; shape (N, H, W, 3).
        encoding: How they are stored.
        jpeg_quality: 1 to 100, for `jpeg` alone.

    Raises:
        VideoTooLargeError: A side is longer than JPEG can tell.
    """
    if encoding == "jpeg":
        return pa.array([to_jpeg(image, quality=jpeg_quality or 0) for image in images], pa.binary())
    pixels = np.ascontiguousarray(images) if encoding == "raw" else to_differences(images)
    row_bytes = pixels[0].nbytes
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(row_bytes), len(pixels), [None, pa.py_buffer(pixels)])


def decode_pixels(column: pa.Array, encoding: Encoding, shape: tuple[int, int, int, int]) -> npt.NDArray[np.uint8]:
    """Read the column of pixels; `raw` ones stay where they are.

    Returns:
        RGB pixels; shape (N, H, W, 3), read-only.

    Raises:
        ValueError: The column does not hold images of that shape.
        OSError: A JPEG cannot be read.
    """
    if encoding not in {*get_args(Lossless), "jpeg"}:
        raise ValueError(f"there are no pixels in the encoding {encoding}")
    if encoding == "jpeg":
        images = np.stack([from_jpeg(data) for data in column.to_pylist()])
    else:
        images = np.frombuffer(column.buffers()[1], np.uint8, count=prod(shape)).reshape(shape)
    if images.shape != shape:
        raise ValueError(f"images are {images.shape}, not {shape}")
    if encoding in {"lz4", "zstd"}:
        images = from_differences(images)
    images.flags.writeable = False
    return images


def as_jpeg_shows(images: npt.NDArray[np.uint8], *, quality: int) -> npt.NDArray[np.uint8]:
    """Give images as they come back from JPEG; shape (N, H, W, 3).

    Raises:
        VideoTooLargeError: A side is longer than JPEG can tell.
    """
    return np.stack([from_jpeg(to_jpeg(image, quality=quality)) for image in images])


def to_differences(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Subtract green from red and blue, then from each row the one above, modulo 256.

    Args:
        images: RGB pixels; shape (N, H, W, 3).
    """
    plain = images.copy()
    plain[..., _RED] -= images[..., _GREEN]
    plain[..., _BLUE] -= images[..., _GREEN]
    differences = plain.copy()
    differences[:, 1:] -= plain[:, :-1]
    return differences


def from_differences(differences: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Undo `to_differences`, into new memory; shape (N, H, W, 3)."""
    images = np.empty_like(differences)
    images[:, 0] = differences[:, 0]
    # Row by row over all images: several times as fast as NumPy's own running sum.
    for row in range(1, images.shape[1]):
        np.add(images[:, row - 1], differences[:, row], out=images[:, row])
    images[..., _RED] += images[..., _GREEN]
    images[..., _BLUE] += images[..., _GREEN]
    return images


def to_jpeg(image: npt.NDArray[np.uint8], *, quality: int) -> bytes:
    """Compress one image, shape (H, W, 3).

    Raises:
        VideoTooLargeError: A side is longer than JPEG can tell.
    """
    if max(image.shape) > _MOST_JPEG_PX:
        raise VideoTooLargeError(
            f"A frame of {image.shape[1]}x{image.shape[0]} pixels has no room in a JPEG; leave jpeg_quality empty."
        )
    file = BytesIO()
    Image.fromarray(image).save(file, "jpeg", quality=quality)
    return file.getvalue()


def from_jpeg(data: bytes) -> npt.NDArray[np.uint8]:
    """Decompress one image; shape (H, W, 3)."""
    with Image.open(BytesIO(data), formats=("jpeg",)) as image:
        return np.asarray(image, np.uint8)
