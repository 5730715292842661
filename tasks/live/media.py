"""Checks and decodes pictures and audio from clients; pictures only in the sandboxed processes of the pool."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reelabel.errors import DecoderTimeoutError, VideoError, VideoTooLargeError
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.sources.video_file import VideoFile
from reelabel_engine.live_items import AUDIO_HZ
from tasks.live.messages import ProtocolError

if TYPE_CHECKING:
    import numpy.typing as npt

    from reelabel.pool.decode_pool import DecodePool
    from tasks.live.model import LiveInfo

# How pictures begin: FFmpeg would also open videos, playlists and subtitles.
_JPEG, _GIF = b"\xff\xd8\xff", b"GIF8"
_KINDS = (_JPEG, _GIF, b"\x89PNG\r\n\x1a\n", b"BM", b"RIFF")
# How the kinds end of which FFmpeg would make up a missing part.
_ENDS = {_JPEG: b"\xff\xd9", _GIF: b"\0;"}
_WEBP = slice(8, 12)
_MIN_PX = 4 * 28 * 28
MAX_FRAME_BYTES, MAX_FRAME_PX = 8 * 1024**2, 16_000_000
_MAX_PICTURES = 64  # of an animation, which is refused
_MAX_CHUNK_S = 30.0
_SAMPLE_BYTES = 2
# Signatures of audio files, which are refused: a chunk is bare samples.
_CONTAINERS = {b"RIFF": "WAV", b"OggS": "Ogg", b"fLaC": "FLAC", b"ID3": "MP3", b"\x1a\x45\xdf\xa3": "WebM"}
AUDIO_FORMAT = "16-bit little-endian PCM of one channel at 16 kHz"


class Picture(NamedTuple):
    image: npt.NDArray[np.uint8]  # RGB pixels as the model sees them; shape (H, W, 3), uint8
    decoded_px: int  # before it was scaled


class FrameReader:
    """Decodes pictures and scales them to the model's size. Thread-safe."""

    def __init__(self, pool: DecodePool, info: LiveInfo, *, max_frame_px: int) -> None:
        """Prepare to scale frames to at most `max_frame_px` pixels, and at most as many as the model takes."""
        self._pool = pool
        self._sampling = Sampling(
            num_frames=1,
            max_pixels=max(_MIN_PX, min(max_frame_px, info.max_frame_px)),
            size_multiple_px=info.size_multiple_px,
        )
        self._limits = Limits(max_frame_pixels=MAX_FRAME_PX, max_frames=_MAX_PICTURES)

    def read(self, data: bytes) -> Picture:
        """Decode a frame.

        Raises:
            ProtocolError: It is no picture, is truncated, or is too large.
            TransientError: Decoding processes keep being killed.
        """
        _check_picture(data)
        descriptor = os.memfd_create("frame", os.MFD_CLOEXEC)
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.write(data)
            frames = self._pool.extract(VideoFile(descriptor, len(data)), sampling=self._sampling, limits=self._limits)
        except VideoTooLargeError as error:
            raise ProtocolError(f"The frame is too large: {error.message}", code="frame_too_large") from None
        except DecoderTimeoutError:
            raise _unreadable("took too long to decode") from None
        except VideoError:
            raise _unreadable("cannot be decoded") from None
        finally:
            os.close(descriptor)
        if frames.selection.total_frames != 1:
            raise _unreadable("has several pictures; send each as a frame")
        return Picture(frames.unique[0], frames.selection.native_width_px * frames.selection.native_height_px)


def _check_picture(data: bytes) -> None:
    if not data.startswith(_KINDS) or (data.startswith(b"RIFF") and data[_WEBP] != b"WEBP"):
        raise _unreadable("is no picture; send JPEG, PNG, WebP, BMP or GIF")
    if any(data.startswith(kind) and end not in data[-64:] for kind, end in _ENDS.items()):
        raise _unreadable("is cut short; send all of it")


def _unreadable(why: str) -> ProtocolError:
    return ProtocolError(f"The frame {why}.", code="frame_unreadable")


def read_samples(data: bytes, info: LiveInfo) -> npt.NDArray[np.int16]:
    """Return the samples of a chunk; shape (N,).

    Raises:
        ProtocolError: It is no such audio, or the model accepts none.
    """
    if not info.takes_audio:
        raise ProtocolError(
            f"The model {info.model} takes no audio, unlike models of the family Qwen2.5-Omni; send frames only.",
            code="audio_unsupported",
        )
    kind = next((name for start, name in _CONTAINERS.items() if data.startswith(start)), None)
    if kind:
        raise audio_refused(f"The audio is a file ({kind}); send its samples alone, as {AUDIO_FORMAT}.")
    if len(data) % _SAMPLE_BYTES or not data:
        raise audio_refused(f"The audio has {len(data):,} bytes, which are no whole samples; send {AUDIO_FORMAT}.")
    samples = np.frombuffer(data, "<i2").astype(np.int16)
    seconds = len(samples) / AUDIO_HZ
    if seconds > _MAX_CHUNK_S:
        raise audio_refused(f"The audio has {seconds:.1f} seconds; a chunk has at most {_MAX_CHUNK_S:g}.")
    return samples


def audio_refused(message: str) -> ProtocolError:
    return ProtocolError(message, code="audio_refused")
