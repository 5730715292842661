"""Turns a query into a vector: a text, a picture, or a known moment."""

from __future__ import annotations

import hashlib
import io
import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from reelabel.errors import ConfigurationError, FrameFileError, ObjectMissingError
from reelabel.text import escape_controls, first_control, read_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    import numpy.typing as npt

    from tasks.domain import ModelIdentity
    from tasks.embedding.bank_file import BankFiles
    from tasks.embedding.encoder import Encoder
    from tasks.embedding.vector_file import VectorCache

_MAX_CHARACTERS = 2000
_MAX_IMAGE_BYTES = 64 * 1024**2
_MAX_PIXELS = 64_000_000
_WHITE_16 = 0xFFFF
_NEAR_MS = 5000  # maximum distance of a frame from a time within its video
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryEmbedder:
    """Embeds texts and pictures by one model. Each is embedded once; its vector is cached on the store."""

    model: ModelIdentity
    cache: BankFiles
    open_encoder: Callable[[], AbstractContextManager[Encoder]]  # not called for cached vectors

    def embed_text(self, text: str) -> npt.NDArray[np.float32]:
        """Embed a text; return its vector, of shape (D,).

        Raises:
            ConfigurationError: It is empty, cannot be printed, or is too long for the model.
            ModelError: The model cannot be loaded.
        """
        text = check_text(text)
        # Encoders are given lower case.
        return self._find_or_embed(text.lower(), lambda encoder: _embed_text(encoder, text))

    def embed_image(self, path: Path) -> npt.NDArray[np.float32]:
        """Embed a picture; return its vector, of shape (D,).

        Raises:
            ConfigurationError: It cannot be read.
            ModelError: The model cannot be loaded.
        """
        pixels = read_image(path)
        digest = hashlib.sha256(repr(pixels.shape).encode() + pixels.tobytes()).hexdigest()
        # No text hashes to this name.
        return self._find_or_embed(f"\0picture {digest}", lambda encoder: encoder.embed_images([pixels[None]]))

    def _find_or_embed(self, name: str, embed: Callable[[Encoder], npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
        if stored := self.cache.load_vectors([name], self.model):
            return np.asarray(stored[0][0], np.float32)
        with self.open_encoder() as encoder:
            vectors = embed(encoder)
            self.cache.save_vectors([name], vectors, encoder.info(), self.model)
        return np.asarray(vectors[0], np.float32)


def check_text(text: str) -> str:
    """Return a text without surrounding whitespace.

    Raises:
        ConfigurationError: It is empty, too long, or cannot be printed.
    """
    text = text.strip()
    if not text:
        raise ConfigurationError("There is no text to search for; describe in a few words what to look for.")
    if hidden := first_control(text):
        raise ConfigurationError(
            f"The text to search for has the character {hidden}, which cannot be printed; remove it."
        )
    if len(text) > _MAX_CHARACTERS:
        raise ConfigurationError(
            f"The text to search for has {len(text):,} characters; the maximum is {_MAX_CHARACTERS:,}."
        )
    return text


def _embed_text(encoder: Encoder, text: str) -> npt.NDArray[np.float32]:
    (vectors, (tokens,)), most = encoder.embed_texts([text]), encoder.info().max_tokens
    if tokens > most:
        raise ConfigurationError(
            f"The text to search for has {tokens:,} tokens, but the model takes at most {most:,}; shorten it."
        )
    return vectors


def read_image(path: Path) -> npt.NDArray[np.uint8]:
    """Read a picture, upright as its EXIF data says, as RGB; shape (H, W, 3).

    Raises:
        ConfigurationError: It is missing, damaged, too large, or in another format.
    """
    try:
        return _decode_image(path)
    except ConfigurationError:
        raise
    except UnidentifiedImageError:
        raise ConfigurationError(f"{path} is not a picture; use {', '.join(_FORMATS[:3])} or similar.") from None
    except Exception as error:  # noqa: BLE001 - decoders of damaged pictures raise whatever they like
        raise ConfigurationError(f"Cannot read the picture {path}: {read_error(error)}.") from None


def _decode_image(path: Path) -> npt.NDArray[np.uint8]:
    if not path.is_file() and path.exists():
        raise ConfigurationError(f"{path} is not a file; save the picture to a file.")
    if path.stat().st_size > _MAX_IMAGE_BYTES:
        raise ConfigurationError(f"The picture {path} is larger than {_MAX_IMAGE_BYTES >> 20} MiB; make it smaller.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit
        with Image.open(io.BytesIO(path.read_bytes()), formats=_FORMATS) as image:
            if image.width * image.height > _MAX_PIXELS:
                raise ConfigurationError(
                    f"The picture {path} has {image.width:,} x {image.height:,} pixels; make it smaller."
                )
            return np.asarray(_as_seen(path, ImageOps.exif_transpose(image)))


def _as_seen(path: Path, image: Image.Image) -> Image.Image:
    """Return a picture as RGB: the upper 8 of 16 bits, and transparency on white."""
    if image.mode.startswith(("I", "F")):
        values = np.asarray(image)
        if image.mode == "F" or values.min() < 0 or values.max() > _WHITE_16:
            raise ConfigurationError(f"The picture {path} does not have 8 or 16 bits per channel; save it as a PNG.")
        image = Image.fromarray((values >> 8).astype(np.uint8))
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
    return image.convert("RGB")


def parse_moment(text: str) -> tuple[str, float]:
    """Split JOB_ID@SECONDS into its parts.

    Raises:
        ConfigurationError: It does not have this form.
    """
    job_id, at, seconds = text.rpartition("@")
    try:
        time_s = float(seconds)
    except ValueError:
        time_s = math.nan
    if not at or not job_id or not (math.isfinite(time_s) and time_s >= 0):
        raise ConfigurationError(
            f"{escape_controls(text)} does not name a moment; write a job id and seconds, such as film-7@12.5."
        )
    return job_id, time_s


def vector_at(cache: VectorCache, key: str, time_s: float) -> tuple[npt.NDArray[np.float32], int]:
    """Return the vector of the frame nearest to a time, of shape (D,), and its own time in milliseconds.

    Raises:
        ConfigurationError: The embedding file is missing or invalid, or has no frames near the time.
    """
    try:
        embeddings, _ = cache.read_stored(key)
    except (FrameFileError, ObjectMissingError) as error:
        raise ConfigurationError(
            f"The embeddings of that video cannot be used: {error.message} Describe it again."
        ) from None
    if not len(embeddings.pts_ms):
        raise ConfigurationError("That video has no frames to compare with.")
    first_ms, last_ms = embeddings.pts_ms[[0, -1]].tolist()
    near_ms = max(_NEAR_MS, embeddings.duration_s * 1e3 - (last_ms - first_ms))
    if time_s * 1e3 > last_ms + near_ms:
        raise ConfigurationError(
            f"That video has no embedded frames after {last_ms / 1e3:g} s; name an earlier moment."
        )
    if time_s * 1e3 < first_ms - near_ms:  # of a segment
        raise ConfigurationError(f"That video has no embedded frames before {first_ms / 1e3:g} s; name a later moment.")
    nearest = int(np.abs(embeddings.pts_ms - round(time_s * 1000)).argmin())
    return embeddings.vectors[nearest], int(embeddings.pts_ms[nearest])
