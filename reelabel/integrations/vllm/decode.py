"""Decode the bytes or the URL of a video that vLLM passes, in its own threads or in disposable processes.

Options of vLLM's own loaders are translated to those of our samplers.
"""

from __future__ import annotations

import atexit
import os
from contextlib import suppress
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
from reelabel.optional import require
from reelabel.options import Limits, WebOptions, read_options
from reelabel.per_process import once_per_process
from reelabel.pool.decode_pool import DecodePool
from reelabel.sampling.options import Sampling, check_no_job_options
from reelabel.sampling.registry import DEFAULT_DENSE_SAMPLER, find_sampler
from reelabel.sampling.spec import EVERY, SamplerSpec
from reelabel.sandbox import SandboxMode
from reelabel.sources.object_store import ObjectStore
from reelabel.sources.opened import RANGES_MIN_BYTES
from reelabel.sources.source import StoredSource
from reelabel.video import extract_frames

if TYPE_CHECKING:
    from collections.abc import Mapping

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

    Raises ConfigurationError if an option is unknown or invalid, and VideoError.
    """
    return extract_frames(data, parse_sampling(options), pool=decode_pool())


def is_frame_file(data: bytes) -> bool:
    """Return whether the bytes are a frame file, by Arrow's magic number."""
    return data.startswith(b"ARROW1\0\0")


def read_frame_file(data: bytes) -> Frames:
    """Read a frame file; stored ranges of a video are decoded in a disposable process.

    Raises FrameFileError if the file is damaged, or stores ranges and there are no such processes, and VideoError.
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

    None if the video is small, or cannot be read by ranges: vLLM then downloads it, and reports any fault. Only `hosts`
    may be read, also after redirects; if there are none, every public one. `timeout_s` is for a connection or for data.

    Raises ConfigurationError if an option or a variable is invalid.
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


_INVALID = "Invalid media_io_kwargs of the video loader pyav_keyframes"
# Options of vLLM whose value is fixed in this loader.
_ALWAYS: dict[str, object] = {
    "backend": "pyav",
    "seek_mode": "exact",
    "device": "cpu",
    "overflow_strategy": "uniform",
    "temporal_patch_size": 2,
}
# Defaults of vLLM's loaders, which clients send with any sampler.
_NEUTRAL: dict[str, object] = {"fps": EVERY, "max_duration_s": 300, "frame_recovery": False}
# Loaders that lower a larger max_frames to their maximum.
_CLAMPING = frozenset({"qwen2_vl", "qwen3_vl", "glmga"})
# Loaders for which -1 stands for their default.
_DEFAULT_RATE = frozenset({"glm46v", "glm5_next", "embedding_gemma2", "llava_onevision2"})
_LLAVA_MAX_FRAMES = 32


def invalid_option(where: str, message: str) -> ConfigurationError:
    return ConfigurationError(f"{_INVALID}: {where}: {message}.")


def translate_media_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the equivalent options of `Sampling`; raise ConfigurationError if there are none."""
    given = dict(options)
    specs = _samplers_in_use(given)
    sampler = specs[0].name if specs else None
    for name, always in _ALWAYS.items():
        if given.get(name, always) == always:
            given.pop(name, None)
    for name in given.keys() & _ALWAYS.keys():
        raise invalid_option(name, f"it is always {_ALWAYS[name]} here; leave it out")
    _rename(given, "max_duration", "max_duration_s")
    if sampler == "molmo2":
        _translate_molmo2(given)
    if given.get("fps") == EVERY and sampler in _DEFAULT_RATE:
        del given["fps"]
    if given.get("num_frames") == EVERY and sampler == "llava_onevision2":
        given["num_frames"] = _LLAVA_MAX_FRAMES
    if sampler in _CLAMPING and isinstance(most := given.get("max_frames"), int):
        given["max_frames"] = min(most, int(dict(specs[0].at_most)["max_frames"]))
    read = {option for spec in specs for option in (*spec.options, *(["frame_recovery"] if spec.choose else []))}
    return {name: value for name, value in given.items() if name in read or value != _NEUTRAL.get(name, ...)}


def _samplers_in_use(given: Mapping[str, Any]) -> list[SamplerSpec]:
    names = [given.get("sampler", "keyframes")]
    if names == ["auto"]:
        names.append(given.get("dense_sampler", DEFAULT_DENSE_SAMPLER))
    with suppress(ValueError, TypeError):
        return [find_sampler(name) for name in names]
    return []


def _rename(given: dict[str, Any], theirs: str, ours: str) -> None:
    if theirs not in given:
        return
    if ours in given:
        raise invalid_option(theirs, f"it means the same as {ours}; leave one of them out")
    given[ours] = given.pop(theirs)


def _translate_molmo2(given: dict[str, Any]) -> None:
    if "frame_sample_mode" in given and given["frame_sample_mode"] is None:  # as in vLLM, whose default it is
        given["frame_sample_mode"] = "every_frame"
    mode = given.get("frame_sample_mode", "uniform_last_frame")
    rates = {name: given.pop(name) for name in ("max_fps", "sampling_fps") if name in given}
    if mode == "every_frame":
        given.pop("num_frames", None)
        return
    read = "sampling_fps" if mode == "fps" else "max_fps"
    if read in rates:
        given[read] = EVERY if read == "max_fps" and rates[read] is None else rates[read]
        _rename(given, read, "fps")
