"""Decode a video at a URL by range requests, for vLLM's media connector."""

from __future__ import annotations

import os
from functools import cache
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, NamedTuple

from reelabel.errors import ConfigurationError, FallbackRequired, InvalidOptionError, ReelabelError, as_video_errors
from reelabel.extract import extract_ranges
from reelabel.frames.fetch import RANGES_MIN_BYTES, RemoteVideo
from reelabel.integrations.vllm.decode import decode_pool, parse_sampling
from reelabel.limits import Limits
from reelabel.optional import require
from reelabel.sources.object_store import ObjectStore
from reelabel.sources.options import WebOptions

if TYPE_CHECKING:
    from reelabel.sampled_frames import SampledFrames

NETWORKS_VARIABLE = "REELABEL_LOADER_NETWORKS"


class RemoteFrames(NamedTuple):
    """Frames of a remote video, and the version of the video that they are of."""

    frames: SampledFrames
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
        The frames; None if the video is small, or anything stands in the way of ranges: vLLM then downloads it, and
        says what is wrong.

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
            frames, _ = extract(RemoteVideo(objects, info), sampling=sampling, limits=Limits())
    except (ReelabelError, FallbackRequired):
        return None
    return RemoteFrames(frames, info.fingerprint)


def require_web() -> None:
    """Check that videos at URLs can be read by ranges.

    Raises:
        ConfigurationError: urllib3 is not installed, or too old.
    """
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
