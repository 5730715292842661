"""From the bytes that vLLM hands over to frames: in its own threads, or in processes that may die."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from infra.errors import ConfigurationError, FrameFileError
from tasks.domain import Sampling
from tasks.domain.passes import of_videos_alone
from tasks.frames.file import decode_frame_file
from tasks.frames.packets import with_pixels
from tasks.loaders.decoders import Decoders
from tasks.video.extract import extract_keyframes
from tasks.video.limits import Limits
from tasks.video.unreadable import decoding_errors

if TYPE_CHECKING:
    from tasks.frames.file import FrameFile
    from tasks.video.keyframes import Keyframes
    from tasks.video.pool import DecodePool

PROCESSES = "REELABEL_LOADER_PROCESSES"

# The model's processor scales frames to its own size, unless the configuration names that size here.
_UNSCALED = {"max_pixels": 16_777_216, "size_multiple_px": 1}
_starting = threading.Lock()
_started: list[Decoders] = []


def decode_video(data: bytes, **options: Any) -> Keyframes:  # noqa: ANN401
    """Decode the frames of a video that the model sees.

    Args:
        data: A whole video file.
        options: Those of `tasks.domain.Sampling`.

    Raises:
        ConfigurationError: An option is unknown or has no such value.
        VideoError: The video cannot be used; see its code.
    """
    sampling = _sampling(options)
    pool = _pool()
    with tempfile.NamedTemporaryFile(prefix="reelabel-") as file:
        file.write(data)
        file.flush()
        if pool is not None:
            return pool.extract(Path(file.name), sampling=sampling, limits=Limits())
        with decoding_errors():
            return extract_keyframes(Path(file.name), sampling=sampling, limits=Limits())


def is_frame_file(data: bytes) -> bool:
    """Tell a frame file from a video, by Arrow's mark at its beginning."""
    return data.startswith(b"ARROW1\0\0")


def read_frame_file(data: bytes) -> FrameFile:
    """Read a frame file; stored packets are decoded, in a process that may die.

    Raises:
        FrameFileError: It is damaged, or holds packets and there are no such processes.
        VideoError: Its packets cannot be decoded.
    """
    file = decode_frame_file(data)
    if file.encoding != "packets":
        return file
    pool = _pool()
    if pool is None:
        raise FrameFileError(f"The frame file holds a video's packets; set {PROCESSES} to 1 or more to decode them.")
    return decode_frame_file(with_pixels(file, pool, Limits()))


def _sampling(options: dict[str, Any]) -> Sampling:
    try:
        return of_videos_alone(Sampling(**_UNSCALED | options))
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"])) or "the options together"
        message = fault["msg"].removeprefix("Value error, ")
    except ValueError as error:
        where, message = "the options together", str(error)
    raise ConfigurationError(f"media_io_kwargs of the video loader pyav_keyframes, {where}: {message}.")


def _pool() -> DecodePool | None:
    """Give the pool, where one was asked for; vLLM calls from many threads, and the first of them starts it."""
    processes = os.environ.get(PROCESSES) or "0"
    if not processes.isdecimal():
        raise ConfigurationError(f"{PROCESSES} is {processes!r}; give a number of processes, or 0 for none.")
    if int(processes) == 0:
        return None
    with _starting:
        if not (_started and _started[-1].are_running):
            _started.append(Decoders(int(processes)))
        return _started[-1].pool
