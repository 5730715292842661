"""Extraction of frame files into the cache."""

from __future__ import annotations

import math
import threading
import time
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from reelabel.coverage import DEFAULT_THRESHOLDS
from reelabel.errors import FallbackRequired, FrameFileError, VideoError, VideoUnreadableError
from reelabel.frames.cache_key import FrameIdentity
from reelabel.frames.fetch import VideoReader
from reelabel.frames.frame_file import write_frames, write_sparse
from reelabel.frames.sparse import SparseVideo
from reelabel.sampling.options import dense_pass, resolve_auto, with_sampler
from reelabel.segment import WHOLE
from reelabel.sources.object_info import redact_uri
from reelabel.sources.opened import stat_video
from reelabel.waiting import LOOK_S, raise_if_abandoned
from tasks.domain.passes import first_pass
from tasks.domain.passes import sampling_of_pass as sampling_of
from tasks.domain.provenance import FrameProvenance

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from reelabel.coverage import CoverageThresholds
    from reelabel.frames.cache import FrameCache
    from reelabel.frames.fetch import FetchedFrames
    from reelabel.frames.pixels import ExactEncoding
    from reelabel.pool.decode_pool import PieceDecoder
    from reelabel.result import Frames
    from reelabel.sampling.options import Sampling
    from reelabel.segment import Segment
    from reelabel.sources.object_store import ObjectInfo
    from tasks.domain.passes import FramePass

_NO_RANGES = "sparse was requested, but ranges of the video do not decode to these pixels by themselves"


class KeyedLocks:
    """One lock per key, so that concurrent requests decode a video once; remembers the latest failures."""

    def __init__(self, *, keep_faults: int = 0) -> None:
        self._keep_faults = keep_faults
        self._faults: dict[Hashable, VideoError] = {}
        self._locks: dict[Hashable, tuple[threading.Lock, int]] = {}
        self._guard = threading.Lock()

    @contextmanager
    def hold(self, key: Hashable, *, among: Hashable = None) -> Iterator[None]:
        """Hold the lock of a key; with `among`, the lock of all keys that may turn out to have the same frames.

        Raises:
            VideoError: The body's, which is remembered, or a remembered one.
        """
        with self._locked(key if among is None else among):
            if fault := self._faults.get(key):
                raise copy(fault)  # the traceback of one that is raised repeatedly would grow
            try:
                yield
            except VideoError as error:
                self._keep(key, copy(error))
                raise

    @contextmanager
    def _locked(self, key: Hashable) -> Iterator[None]:
        with self._guard:
            lock, users = self._locks.get(key, (threading.Lock(), 0))
            self._locks[key] = lock, users + 1
        try:
            while not lock.acquire(timeout=LOOK_S):
                raise_if_abandoned()
            try:
                yield
            finally:
                lock.release()
        finally:
            with self._guard:
                _, users = self._locks.pop(key)
                if users > 1:
                    self._locks[key] = lock, users - 1

    def _keep(self, key: Hashable, fault: VideoError) -> None:
        with self._guard:
            self._faults[key] = fault
            if len(self._faults) > self._keep_faults:
                del self._faults[next(iter(self._faults))]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedVideo:
    """A video whose frame file is in the cache.

    Attributes:
        was_cached: Whether the frame file was in the cache before.
        frame_bytes: Uncompressed size of its pixels.
        lookup_ms: Milliseconds to look up the video and its frame file.
        rewritten: Which cached files could not be used and were rewritten, and why; empty if none.
    """

    identity: FrameIdentity
    was_cached: bool
    frame_bytes: int
    lookup_ms: float
    provenance: FrameProvenance
    rewritten: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameExtractor(VideoReader):
    """Extracts frame files into the cache. Thread-safe.

    Attributes:
        pixel_encoding: Pixel encoding of frame files, unless the sampling has a `jpeg_quality`.
        thresholds: The limits of sufficient keyframe coverage.
        pieces: Decodes one video whose segments are prepared in order of time; None decodes each segment by itself.
    """

    cache: FrameCache
    sampling: Sampling
    pixel_encoding: ExactEncoding = "zstd"
    thresholds: CoverageThresholds = DEFAULT_THRESHOLDS
    locks: KeyedLocks = field(default_factory=KeyedLocks, repr=False, compare=False)
    pieces: PieceDecoder | None = field(default=None, repr=False, compare=False)

    def check_stores(self, uris: Iterable[str]) -> None:
        """Raise StoreUnavailableError if videos or frame files are on an S3 server that does not respond."""
        self.objects.check_reachable(uris)
        self.cache.check_reachable()

    def prepare(
        self,
        uri: str,
        info: ObjectInfo | None = None,
        *,
        shown: FramePass = "first",
        segment: Segment = WHOLE,
        sampling: Sampling | None = None,
    ) -> ExtractedVideo:
        """Extract a video's frame file into the cache, unless it is there.

        Args:
            uri: URI of the video.
            info: Its size and fingerprint; None looks them up.
            shown: The pass that selects its sampler.
            segment: The part of the video to sample from.
            sampling: Replaces that of the pass, for a sampler that also depends on the question.

        Raises:
            VideoError: The video cannot be used.
            TransientError: The store is unavailable.
        """
        started = time.perf_counter()
        info = info or stat_video(self.objects, uri)
        requested = FrameIdentity(
            source_uri=info.uri,
            fingerprint=info.fingerprint,
            sampling=sampling or sampling_of(self.sampling, shown),
            segment=segment,
        )
        stat_ms = (time.perf_counter() - started) * 1e3
        # Only the video decides to which of the other passes `auto` is the same.
        is_auto = self.sampling.sampler == "auto" and shown != "image"
        among = replace(requested, sampling=first_pass(self.sampling)).key if is_auto else None
        with self.locks.hold((requested.key, shown == "image"), among=among):
            started = time.perf_counter()
            identity, found = self._find(requested)
            lookup_ms = stat_ms + (time.perf_counter() - started) * 1e3
            try:
                if found is None:
                    return self._extract(info, identity, lookup_ms, shown=shown)
                if shown == "image":
                    check_image(info.uri, found)
            except VideoError as error:
                error.fingerprint = info.fingerprint
                raise
        return ExtractedVideo(
            identity=identity,
            was_cached=True,
            frame_bytes=math.prod(found.shape),
            lookup_ms=lookup_ms,
            provenance=self._provenance(info, found),
        )

    def _find(self, requested: FrameIdentity) -> tuple[FrameIdentity, Frames | None]:
        sampling = requested.sampling
        if sampling.sampler != "auto":
            return requested, self.cache.find(requested)
        for each in (with_sampler(sampling, "keyframes"), dense_pass(sampling)):
            if found := self.cache.find(replace(requested, sampling=each)):
                resolved_sampling = resolve_auto(sampling, is_good=found.coverage(self.thresholds).is_good)
                resolved = replace(requested, sampling=resolved_sampling)
                return resolved, found if resolved_sampling == each else self.cache.find(resolved)
        return requested, None

    def _extract(
        self, info: ObjectInfo, identity: FrameIdentity, lookup_ms: float, *, shown: FramePass
    ) -> ExtractedVideo:
        sampling = identity.sampling
        is_in_order = self.pieces is not None and self.pieces.is_in_order
        keeps_ranges = self.pixel_encoding == "sparse" and not sampling.jpeg_quality and not is_in_order
        fetched = self.fetch(info, sampling, segment=identity.segment, keep_ranges=keeps_ranges, pieces=self.pieces)
        frames = fetched.frames
        if shown == "image":
            check_image(info.uri, frames)
        started = time.perf_counter()
        if sampling.sampler == "auto":
            sampling = resolve_auto(sampling, is_good=frames.sampler == "keyframes")
            identity = replace(identity, sampling=sampling)
        data = self._encode(fetched, identity, info, encoding_note=_NO_RANGES if keeps_ranges else "")
        refused = {"index": fetched.refused_index, "frame": self.cache.write(identity, data)}
        rewritten = [f"{kind} file rewritten: {why}" for kind, why in refused.items() if why]
        cache_write_ms = (time.perf_counter() - started) * 1e3
        return ExtractedVideo(
            identity=identity,
            was_cached=False,
            frame_bytes=frames.unique.nbytes,
            lookup_ms=lookup_ms,
            provenance=replace(
                self._provenance(info, frames),
                decode_note="; ".join(filter(None, (info.note, frames.note, *rewritten))),
                bytes_fetched=frames.cost.bytes_fetched,
                fetch_ms=frames.cost.fetch_ms,
                decode_ms=frames.cost.decode_ms,
                cache_write_ms=cache_write_ms,
            ),
            rewritten="; ".join(rewritten),
        )

    def _provenance(self, info: ObjectInfo, frames: Frames) -> FrameProvenance:
        coverage = frames.coverage(self.thresholds)
        return FrameProvenance(
            fingerprint=info.fingerprint,
            sampler=frames.sampler,
            decode_method=frames.method,
            decode_note=frames.note,
            keyframes_in_file=frames.selection.keyframes_in_file,
            longest_gap_s=coverage.longest_gap_s,
            keyframe_coverage=coverage.cover,
            coverage=",".join(coverage.reasons),
            frames_used=frames.shape[0],
            frames_decoded=frames.cost.frames_decoded,
        )

    def _encode(
        self, fetched: FetchedFrames, identity: FrameIdentity, info: ObjectInfo, *, encoding_note: str
    ) -> bytes:
        frames = fetched.frames
        if self.pixel_encoding != "sparse":
            return write_frames(frames, identity, encoding=self.pixel_encoding)
        if fetched.ranges and (video := self._sparse(fetched, identity, info)):
            return write_sparse(frames, identity, video)
        return write_frames(frames, identity, encoding_note=encoding_note)

    def _sparse(self, fetched: FetchedFrames, identity: FrameIdentity, info: ObjectInfo) -> SparseVideo | None:
        try:
            video = SparseVideo(info.size_bytes, fetched.ranges)
            images = video.decode(self.pool, sampling=identity.sampling, segment=identity.segment, limits=self.limits)
        except (ValueError, FrameFileError, FallbackRequired, VideoError):
            return None
        return video if np.array_equal(images, fetched.frames.unique) else None


def check_image(uri: str, frames: Frames) -> None:
    """Raise VideoUnreadableError if an image has more than one frame."""
    if frames.selection.total_frames != 1:
        raise VideoUnreadableError(f"{redact_uri(uri)} is a video, not an image; give it as a video.")
