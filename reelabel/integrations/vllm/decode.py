"""Decode the bytes or the URL of a video that vLLM passes, in its own threads or in disposable processes."""

from __future__ import annotations

import atexit
import os
from functools import cache
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_args

from reelabel.errors import (
    ConfigurationError,
    FallbackRequired,
    FrameFileError,
    InvalidOptionError,
    ReelabelError,
    as_video_errors,
)
from reelabel.extract import extract_ranges
from reelabel.frames.frame_file import is_sparse, read_frames
from reelabel.integrations.vllm.media_options import invalid_option, translate_media_options
from reelabel.optional import require
from reelabel.options import Limits, WebOptions, read_options
from reelabel.per_process import once_per_process
from reelabel.pool.decode_pool import DecodePool
from reelabel.sampling.options import Sampling, check_no_job_options
from reelabel.sandbox import SandboxMode
from reelabel.sources.object_store import ObjectStore
from reelabel.sources.opened import RANGES_MIN_BYTES
from reelabel.sources.source import StoredSource
from reelabel.video import extract_frames

if TYPE_CHECKING:
    from reelabel.result import Frames


PROCESSES_VARIABLE = "REELABEL_LOADER_PROCESSES"
SANDBOX_VARIABLE = "REELABEL_LOADER_SANDBOX"

# By default, frames are left for the model's processor to scale; options can set its size here instead.
_UNSCALED = {"max_pixels": 16_777_216, "size_multiple_px": 1}
_RENAMED = {"max_duration": "max_duration_s", "max_fps": "fps", "sampling_fps": "fps"}
_TIMEOUT_S = 60
_MEMORY_MIB = 4096


def decode_video(data: bytes, **options: Any) -> Frames:  # noqa: ANN401
    """Decode sampled frames of the bytes of a video; options are those of `Sampling`, or of vLLM's own loaders.

    Raises:
        ConfigurationError: An option is unknown or invalid.
        VideoError: The video cannot be used; see its code.
    """
    return extract_frames(data, parse_sampling(options), pool=decode_pool())


def is_frame_file(data: bytes) -> bool:
    """Return whether the bytes are a frame file, by Arrow's magic number."""
    return data.startswith(b"ARROW1\0\0")


def read_frame_file(data: bytes) -> Frames:
    """Read a frame file; stored ranges of a video are decoded in a disposable process.

    Raises:
        FrameFileError: The file is damaged, or stores ranges and there are no decoding processes.
        VideoError: The ranges cannot be decoded.
    """
    pool = decode_pool()
    frames = read_frames(data, pool=pool)
    if pool is None and is_sparse(data):
        raise FrameFileError(
            f"The frame file stores ranges of its video; set {PROCESSES_VARIABLE} to at least 1 to decode them."
        )
    return frames


def parse_sampling(options: dict[str, Any]) -> Sampling:
    """Return the sampling that `media_io_kwargs` ask for; ConfigurationError if an option is unknown or invalid."""
    translated = translate_media_options(options)
    try:
        return check_no_job_options(read_options(Sampling, _UNSCALED | translated))
    except InvalidOptionError as error:
        where, _, message = error.faults[0]
    except ValueError as error:
        where, message = "", str(error)
    where = where or "combination of options"
    theirs = [name for name, ours in _RENAMED.items() if ours == where and name in options and ours not in options]
    if "max_duration_s" not in options:
        message = message.replace("max_duration_s", "max_duration")
    raise invalid_option(" or ".join(theirs) or where, message)


def decode_pool() -> DecodePool | None:
    """Return the decoding pool, if processes are configured. vLLM calls from many threads; the first starts it."""
    processes = os.environ.get(PROCESSES_VARIABLE) or "0"
    if not processes.isdecimal():
        raise ConfigurationError(
            f"{PROCESSES_VARIABLE} is {processes!r}; it must be a number of processes, or 0 for none."
        )
    if int(processes) == 0:
        return None
    sandbox = os.environ.get(SANDBOX_VARIABLE) or "auto"
    if sandbox not in get_args(SandboxMode):
        raise ConfigurationError(f"{SANDBOX_VARIABLE} is {sandbox!r}; it must be auto, require or off.")
    return _pool_of(int(processes), cast("SandboxMode", sandbox))


@once_per_process
def _pool_of(processes: int, sandbox: SandboxMode) -> DecodePool:
    pool = DecodePool(processes=processes, timeout_s=_TIMEOUT_S, memory_mib=_MEMORY_MIB, threads=1, sandbox=sandbox)
    atexit.register(pool.close)
    return pool


NETWORKS_VARIABLE = "REELABEL_LOADER_NETWORKS"


class RemoteFrames(NamedTuple):
    """Frames of a remote video, and the version of the video that they are of."""

    frames: Frames
    fingerprint: str


def decode_url(
    url: str, options: dict[str, Any], *, hosts: tuple[str, ...] = (), timeout_s: float, max_bytes: int | None
) -> RemoteFrames | None:
    """Decode sampled frames of a remote video, reading only what they need.

    Args:
        url: An `https://` or `http://` URL.
        options: Options of `reelabel.sampling.options.Sampling`.
        hosts: Hosts that may be read, also after redirects; empty allows every public one.
        timeout_s: Seconds to wait for a connection or for data.
        max_bytes: Size of the largest video; None for any.

    Returns:
        The frames; None if the video is small, or cannot be read by ranges: vLLM then downloads it, and reports any
        fault.

    Raises:
        ConfigurationError: An option or a variable is invalid.
    """
    sampling, objects = parse_sampling(options), _store(hosts, timeout_s, os.environ.get(NETWORKS_VARIABLE, ""))
    pool = decode_pool()
    try:
        info = objects.stat(url)
        if info.size_bytes < RANGES_MIN_BYTES or (max_bytes is not None and info.size_bytes > max_bytes):
            return None
        with as_video_errors():
            extract = pool.extract_by_ranges if pool else extract_ranges
            frames, _ = extract(StoredSource(objects, info), sampling=sampling, limits=Limits())
    except (ReelabelError, FallbackRequired):
        return None
    return RemoteFrames(frames, info.fingerprint)


def check_web() -> None:
    """Raise ConfigurationError if videos at URLs cannot be read, as urllib3 is not installed or too old."""
    require("reelabel.sources.web", extra="web", purpose="The media connector reelabel")


@cache
def _store(hosts: tuple[str, ...], timeout_s: float, networks: str) -> ObjectStore:
    try:
        allowed = tuple(map(ip_network, filter(None, networks.split(","))))
    except ValueError:
        raise ConfigurationError(
            f"{NETWORKS_VARIABLE} is {networks!r}; it must be networks separated by commas, such as 10.1.0.0/16."
        ) from None
    try:
        return ObjectStore(web=WebOptions(allow_hosts=hosts, timeout_s=timeout_s, allow_networks=allowed))
    except InvalidOptionError as error:
        raise ConfigurationError(f"The video cannot be read by ranges: {error.faults[0].clause}.") from None
