"""Extraction into the cache: from a video's URI to its frame file."""

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

_NO_PACKETS = (
    "packets were requested, but no keyframe table lists them, or they do not decode to these pixels by themselves"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedVideo:
    """A video whose frame file is in the cache. Times but `lookup_ms` are 0 for a cache hit.

    Attributes:
        uri: URI of the video.
        fingerprint: Version of the video.
        key: Key of the frame file.
        was_cached: Whether the frame file was in the cache already.
        keyframes_in_file: Number of keyframes in the video.
        frames_used: Number of unique frames shown to the model.
        frame_bytes: Size of their pixels, uncompressed.
        lookup_ms: Milliseconds to look up the video and its frame file.
        fetch_ms: Milliseconds spent waiting for the store.
        decode_ms: Milliseconds to decode, without `fetch_ms`.
        cache_write_ms: Milliseconds to encode and write the frame file.
        bytes_fetched: Bytes read from the store.
        decode_method: How the frames were located: `index`, `seek` or `linear`.
        decode_note: Why a faster method was unavailable, and whether the video is cut short; empty if there is nothing
            to report.
        sampler: The sampler that chose the frames.
        frames_decoded: Frames output by decoders, when the frame file was made.
        longest_gap_s: Longest gap without a keyframe; None if unknown.
        keyframe_cover: Share of the video that is near a keyframe, 0 to 1; None if unknown.
        verdict: Why keyframes may not cover the video, as comma-separated codes; empty if they do.
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
    """Extracts frame files into the cache. Thread-safe.

    Attributes:
        objects: The object store, web and local files, by URI.
        cache: The frame cache.
        pool: The decoding pool.
        sampling: Which frames to extract, and at what size.
        limits: Limits on one video.
        stored_as: Pixel encoding of frame files, unless the sampling has a `jpeg_quality`.
        allow_roots: Folders that local videos must lie in; empty allows every folder.
        parts_from_bytes: Size from which remote videos are read by range requests.
        thresholds: The limits of sufficient keyframe coverage.
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
        """Look up sizes and fingerprints of many videos in few requests, where possible; for use with `prepare`.

        Returns:
            What was found, by URI.

        Raises:
            TransientError: The store is unavailable.
        """
        try:
            return self.objects.stat_near(uris)
        except ConfigurationError:
            return {}  # caused by a single video, for which `prepare` will raise

    def reach_stores(self, uris: Iterable[str]) -> None:
        """Check that S3 is available, if videos or frame files are stored there; see `ObjectStore.reach`.

        Raises:
            StoreUnavailableError: S3 is unavailable.
        """
        self.objects.reach([*uris, self.cache.uri_of("any")])

    def prepare(
        self, uri: str, info: ObjectInfo | None = None, *, shown: Pass = "first", segment: Segment = WHOLE
    ) -> PreparedVideo:
        """Extract a video's frame file into the cache, unless it is there already.

        Args:
            uri: URI of the video.
            info: Its size and fingerprint, if known; None looks them up.
            shown: The pass that selects its sampler.
            segment: The part of the video to sample from.

        Raises:
            VideoError: The video cannot be used; see its code.
            TransientError: The store is unavailable.
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
            **_coverage_columns(found.judged(self.thresholds)),
        )

    def _find(self, info: ObjectInfo, sampling: Sampling, segment: Segment) -> tuple[Sampling, FrameFile | None]:
        """Look up a frame file; for `auto`, resolve the sampler from any cached frame file of the video."""
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
            **_coverage_columns(keyframes.judged(self.thresholds)),
        )

    def _encode(self, fetched: Fetched, info: ObjectInfo, sampling: Sampling) -> FrameFile:
        encode = partial(
            make_frame_file,
            fetched.keyframes,
            source_uri=show_uri(info.uri),  # frame files must not contain an embedded video or a signed query
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


def _coverage_columns(coverage: Verdict) -> dict[str, Any]:
    return {
        "longest_gap_s": coverage.longest_gap_s,
        "keyframe_cover": coverage.cover,
        "verdict": ",".join(coverage.reasons),
    }


def look_at_video(objects: ObjectStore, uri: str, *, allow_roots: tuple[Path, ...] = ()) -> ObjectInfo:
    """Look up a video's size and fingerprint.

    Args:
        objects: The object store, web and local files, by URI.
        uri: URI of the video.
        allow_roots: Folders that a local video must lie in; empty allows every folder.

    Raises:
        VideoMissingError: There is no video at the URI.
        VideoRefusedError: The video may not be read, or the URI is not a valid source.
        VideoTooLargeError: The server reports no length, and the video is too large to be read to find out.
        VideoUnavailableError: The web server does not serve it.
    """
    try:
        path = objects.local_path(uri)
        if path is not None:
            require_within(allow_roots, path)
            if os.path.isdir(path):  # noqa: PTH112 - unlike Path.is_dir, does not raise if the name is too long
                raise VideoMissingError(f"{uri} is a folder, not a video; name a file in it.")
        with own_fault(uri):
            return objects.stat(uri)
    except ObjectMissingError:
        raise VideoMissingError(f"There is no video at {show_uri(uri)}; check the path or URI.") from None
    except ObjectTooLargeError as error:
        raise VideoTooLargeError(f"{error.message} Its server sends no length, so it was read to measure it.") from None
    except (ConfigurationError, ValueError) as error:
        # Caused by this video alone: access to the frame cache was checked before the run.
        raise VideoRefusedError(f"{show_uri(uri)} cannot be read: {error}") from None
