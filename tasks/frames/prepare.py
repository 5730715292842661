"""From a video's URI to its frame file in the cache."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from infra.errors import (
    ConfigurationError,
    ObjectMissingError,
    ObjectTooLargeError,
    VideoError,
    VideoMissingError,
    VideoRefusedError,
    VideoTooLargeError,
)
from infra.roots import require_within
from infra.uri import show_uri
from tasks.frames.fetch import PARTS_FROM_BYTES, Fetcher, own_fault
from tasks.frames.file import encode_frame_file
from tasks.frames.key import frame_key
from tasks.frames.packets import with_packets

if TYPE_CHECKING:
    from pathlib import Path

    from infra.objects import ObjectInfo, ObjectStore
    from tasks.domain import Sampling
    from tasks.frames.cache import FrameCache
    from tasks.frames.fetch import Fetched
    from tasks.frames.pixels import Exact
    from tasks.video.limits import Limits
    from tasks.video.pool import DecodePool

_NO_PACKETS = "packets were asked for, but no table of keyframes tells of them, or they do not give these pixels alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedVideo:
    """A video whose frame file stands in the cache. Durations are milliseconds, 0 for a cache hit.

    Attributes:
        uri: The video.
        fingerprint: Which version of it.
        key: Its frame file.
        was_cached: Whether the frame file stood there already.
        keyframes_in_file: Keyframes of the video.
        frames_used: Unique frames that the model sees.
        frame_bytes: Their pixels.
        lookup_ms: Looking the video and its frame file up, a hit's included.
        cache_write_ms: Compressing the frames and writing the file.
        bytes_fetched: Bytes read from the store.
        decode_method: How the frames were reached.
        decode_note: Why not by the shortest way; empty otherwise.
    """

    uri: str
    fingerprint: str
    key: str
    was_cached: bool
    keyframes_in_file: int
    frames_used: int
    frame_bytes: int
    lookup_ms: float
    fetch_ms: float = 0.0
    decode_ms: float = 0.0
    cache_write_ms: float = 0.0
    bytes_fetched: int = 0
    decode_method: str = ""
    decode_note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparer:
    """Prepares videos; safe to call from many threads.

    Attributes:
        stored_as: How frame files hold their pixels; a `jpeg_quality` of the sampling comes before it.
    """

    objects: ObjectStore
    cache: FrameCache
    pool: DecodePool
    sampling: Sampling
    limits: Limits
    stored_as: Exact = "zstd"
    allow_roots: tuple[Path, ...] = ()
    parts_from_bytes: int = PARTS_FROM_BYTES

    def prepare(self, uri: str) -> PreparedVideo:
        """Make sure that a video's frame file stands in the cache.

        Raises:
            VideoError: The video cannot be used; see its code.
            TransientError: The store did not answer.
        """
        started = time.perf_counter()
        info = look_at_video(self.objects, uri, allow_roots=self.allow_roots)
        key = frame_key(source_uri=uri, fingerprint=info.fingerprint, sampling=self.sampling)
        found = self.cache.find(key)
        lookup_ms = (time.perf_counter() - started) * 1e3
        if found is None:
            try:
                return self._extract(info, key, lookup_ms)
            except VideoError as error:
                error.fingerprint = info.fingerprint
                raise
        return PreparedVideo(
            uri=uri,
            fingerprint=info.fingerprint,
            key=key,
            was_cached=True,
            keyframes_in_file=found.keyframes_in_file,
            frames_used=len(found.pts),
            frame_bytes=found.image_bytes,
            lookup_ms=lookup_ms,
            decode_method=found.method,
            decode_note=found.reason,
        )

    def _extract(self, info: ObjectInfo, key: str, lookup_ms: float) -> PreparedVideo:
        fetcher = Fetcher(
            objects=self.objects,
            cache=self.cache,
            pool=self.pool,
            sampling=self.sampling,
            limits=self.limits,
            parts_from_bytes=self.parts_from_bytes,
            keep_packets=self.stored_as == "packets" and not self.sampling.jpeg_quality,
        )
        fetched = fetcher.fetch(info)
        keyframes = fetched.keyframes
        started = time.perf_counter()
        self.cache.write(key, self._encode(fetched, info))
        return PreparedVideo(
            uri=info.uri,
            fingerprint=info.fingerprint,
            key=key,
            was_cached=False,
            keyframes_in_file=keyframes.keyframes_in_file,
            frames_used=len(keyframes.images),
            frame_bytes=keyframes.images.nbytes,
            lookup_ms=lookup_ms,
            fetch_ms=fetched.fetch_ms,
            decode_ms=keyframes.decode_ms,
            cache_write_ms=(time.perf_counter() - started) * 1e3,
            bytes_fetched=fetched.bytes_fetched,
            decode_method=keyframes.method,
            decode_note=keyframes.reason,
        )

    def _encode(self, fetched: Fetched, info: ObjectInfo) -> bytes:
        encode = partial(
            encode_frame_file,
            fetched.keyframes,
            source_uri=show_uri(info.uri),  # the file must not carry an embedded video or a signed query
            fingerprint=info.fingerprint,
            sampling=self.sampling,
        )
        if fetched.packets:
            return with_packets(encode(lossless="raw"), fetched.packets)
        if self.stored_as == "packets":
            return encode(encoding_note=_NO_PACKETS)
        return encode(lossless=self.stored_as)


def look_at_video(objects: ObjectStore, uri: str, *, allow_roots: tuple[Path, ...] = ()) -> ObjectInfo:
    """Find a video's size and fingerprint.

    Args:
        objects: Where URIs lead.
        uri: The video.
        allow_roots: Folders that a local video must lie in; none allow every folder.

    Raises:
        VideoMissingError: Nothing stands at the URI.
        VideoRefusedError: It may not be read, or the URI cannot be a source.
        VideoTooLargeError: Its server tells no length, and it is too long to be read for that.
        VideoUnavailableError: Its web server does not give it.
    """
    try:
        path = objects.local_path(uri)
        if path is not None:
            require_within(allow_roots, path)
            if os.path.isdir(path):  # noqa: PTH112 - unlike Path's, bears a name that is too long
                raise VideoMissingError(f"{uri} is a folder; name a video in it.")
        with own_fault(uri):
            return objects.stat(uri)
    except ObjectMissingError:
        raise VideoMissingError(f"There is no video at {show_uri(uri)}; check the path or URI.") from None
    except ObjectTooLargeError as error:
        raise VideoTooLargeError(f"{error.message} See web.max_unsized_bytes.") from None
    except (ConfigurationError, ValueError) as error:
        # One row's fault: the store of frame files was tried before the run began.
        raise VideoRefusedError(f"{show_uri(uri)} cannot be read: {error}") from None
