"""From a video's URI to its frame file in the cache."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

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
from tasks.domain.passes import lossless_pass, routed, taken
from tasks.domain.passes import shown as sampling_of
from tasks.domain.segment import WHOLE
from tasks.frames.fetch import PARTS_FROM_BYTES, Fetcher, own_fault
from tasks.frames.file import decode_frame_file, make_frame_file
from tasks.frames.key import frame_key
from tasks.frames.packets import with_packets
from tasks.video.verdict import USUAL

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from infra.objects import ObjectInfo, ObjectStore
    from tasks.domain import Sampling, Segment
    from tasks.domain.passes import Pass
    from tasks.frames.cache import FrameCache
    from tasks.frames.fetch import Fetched
    from tasks.frames.file import FrameFile
    from tasks.frames.pixels import Exact
    from tasks.video.limits import Limits
    from tasks.video.pool import DecodePool
    from tasks.video.verdict import Thresholds, Verdict

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
        sampler: What chose them.
        frames_decoded: Frames that came out of a decoder for them, now or when the frame file was made.
        longest_gap_s: Longest time without a keyframe; None where unknown.
        keyframe_cover: Share of the video that is near one, 0 to 1; None where unknown.
        verdict: Codes of why keyframes may not be enough for this video, by commas; empty where they are.
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
    sampler: str = "keyframes"
    frames_decoded: int = 0
    longest_gap_s: float | None = None
    keyframe_cover: float | None = None
    verdict: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparer:
    """Prepares videos; safe to call from many threads.

    Attributes:
        stored_as: How frame files hold their pixels; a `jpeg_quality` of the sampling comes before it.
        thresholds: From where on keyframes are not enough.
    """

    objects: ObjectStore
    cache: FrameCache
    pool: DecodePool
    sampling: Sampling
    limits: Limits
    stored_as: Exact = "zstd"
    allow_roots: tuple[Path, ...] = ()
    parts_from_bytes: int = PARTS_FROM_BYTES
    thresholds: Thresholds = USUAL

    def look_around(self, uris: Iterable[str]) -> dict[str, ObjectInfo]:
        """Find sizes and fingerprints of many videos by few requests, as far as that goes; see `prepare`.

        Raises:
            TransientError: The store did not answer.
        """
        try:
            return self.objects.stat_near(uris)
        except ConfigurationError:
            return {}  # one row's fault, and it will be told

    def reach_stores(self, uris: Iterable[str]) -> None:
        """See that S3 answers for videos and frame files that stand there; see `ObjectStore.reach`.

        Raises:
            StoreUnavailableError: It does not.
        """
        self.objects.reach([*uris, self.cache.uri_of("any")])

    def prepare(
        self, uri: str, info: ObjectInfo | None = None, *, shown: Pass = "first", segment: Segment = WHOLE
    ) -> PreparedVideo:
        """Make sure that a video's frame file stands in the cache.

        Args:
            uri: The video.
            info: What it is known to be; None looks at it.
            shown: Which of its frames.
            segment: The part of it that is shown.

        Raises:
            VideoError: The video cannot be used; see its code.
            TransientError: The store did not answer.
        """
        started = time.perf_counter()
        info = info or look_at_video(self.objects, uri, allow_roots=self.allow_roots)
        sampling, found = self._find(info, sampling_of(self.sampling, shown), segment)
        lookup_ms = (time.perf_counter() - started) * 1e3
        if found is None:
            try:
                return self._extract(info, sampling, lookup_ms, segment)
            except VideoError as error:
                error.fingerprint = info.fingerprint
                raise
        return PreparedVideo(
            uri=uri,
            fingerprint=info.fingerprint,
            key=_key(info, sampling, segment),
            was_cached=True,
            keyframes_in_file=found.keyframes_in_file,
            frames_used=found.shape[0],
            frame_bytes=found.image_bytes,
            lookup_ms=lookup_ms,
            decode_method=found.method,
            decode_note=found.reason,
            sampler=found.sampler,
            frames_decoded=found.frames_decoded,
            **_columns(found.judged(self.thresholds)),
        )

    def _find(self, info: ObjectInfo, sampling: Sampling, segment: Segment) -> tuple[Sampling, FrameFile | None]:
        """Look a frame file up; of `auto`, whichever it would take, as any file of the video tells."""
        if sampling.sampler != "auto":
            return sampling, self.cache.find(_key(info, sampling, segment))
        for each in (taken(sampling, "keyframes"), lossless_pass(sampling)):
            if found := self.cache.find(_key(info, each, segment)):
                wanted = routed(sampling, is_good=found.judged(self.thresholds).is_good)
                return wanted, found if wanted == each else self.cache.find(_key(info, wanted, segment))
        return sampling, None

    def _extract(self, info: ObjectInfo, sampling: Sampling, lookup_ms: float, segment: Segment) -> PreparedVideo:
        fetcher = Fetcher(
            objects=self.objects,
            cache=self.cache,
            pool=self.pool,
            sampling=sampling,
            limits=self.limits,
            parts_from_bytes=self.parts_from_bytes,
            keep_packets=self.stored_as == "packets" and not self.sampling.jpeg_quality,
            segment=segment,
        )
        fetched = fetcher.fetch(info)
        keyframes = fetched.keyframes
        started = time.perf_counter()
        if sampling.sampler == "auto":
            sampling = routed(sampling, is_good=keyframes.sampler == "keyframes")
        key = _key(info, sampling, segment)
        self.cache.write(key, self._encode(fetched, info, sampling))
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
            sampler=keyframes.sampler,
            frames_decoded=keyframes.frames_decoded,
            **_columns(keyframes.judged(self.thresholds)),
        )

    def _encode(self, fetched: Fetched, info: ObjectInfo, sampling: Sampling) -> FrameFile:
        encode = partial(
            make_frame_file,
            fetched.keyframes,
            source_uri=show_uri(info.uri),  # the file must not carry an embedded video or a signed query
            fingerprint=info.fingerprint,
            sampling=sampling,
        )
        if fetched.packets:
            return decode_frame_file(with_packets(encode(lossless="raw"), fetched.packets))
        if self.stored_as == "packets":
            return encode(encoding_note=_NO_PACKETS)
        return encode(lossless=self.stored_as)


def _key(info: ObjectInfo, sampling: Sampling, segment: Segment) -> str:
    return frame_key(source_uri=info.uri, fingerprint=info.fingerprint, sampling=sampling, segment=segment)


def _columns(verdict: Verdict) -> dict[str, Any]:
    return {
        "longest_gap_s": verdict.longest_gap_s,
        "keyframe_cover": verdict.cover,
        "verdict": ",".join(verdict.reasons),
    }


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
        raise VideoTooLargeError(f"{error.message} Its server sends no length, so it was read to measure it.") from None
    except (ConfigurationError, ValueError) as error:
        # One row's fault: the store of frame files was tried before the run began.
        raise VideoRefusedError(f"{show_uri(uri)} cannot be read: {error}") from None
