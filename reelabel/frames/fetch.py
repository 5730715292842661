"""Fetch a video's frames from wherever it is: by ranges where that reads less, otherwise whole."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self

from reelabel.errors import (
    ConfigurationError,
    FallbackRequired,
    LoginRefusedError,
    MemberMissingError,
    ObjectChangedError,
    ObjectMissingError,
    ObjectRefusedError,
    ObjectTooLargeError,
    RangesIgnoredError,
    StoreUnavailableError,
    VideoChangedError,
    VideoEmptyError,
    VideoMissingError,
    VideoRefusedError,
    VideoTooLargeError,
    VideoUnavailableError,
)
from reelabel.frames.cache_key import index_key
from reelabel.frames.download_cache import DownloadCache
from reelabel.frames.packets import collect_packets, verify_packets
from reelabel.segment import WHOLE
from reelabel.sources.object_info import INLINE_SCHEME, WEB_SCHEMES, path_advice, redact_uri, scheme_of
from reelabel.sources.video_file import LocalFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from reelabel.frames.cache import FrameCache
    from reelabel.frames.download_cache import Downloads
    from reelabel.frames.packets import StoredPackets
    from reelabel.limits import Limits
    from reelabel.pool.decode_pool import DecodePool, PieceDecoder
    from reelabel.sampled_frames import SampledFrames
    from reelabel.sampling.options import Sampling
    from reelabel.segment import Segment
    from reelabel.sources.archives.members import ArchiveMember
    from reelabel.sources.object_store import ObjectInfo, ObjectStore
    from reelabel.sources.video_file import VideoFile


@dataclass(frozen=True, slots=True)
class RemoteVideo:
    """One version of an object, as a `reelabel.sources.sparse_file.ByteSource`."""

    objects: ObjectStore
    info: ObjectInfo

    @property
    def size_bytes(self) -> int:
        """Total length in bytes."""
        return self.info.size_bytes

    @property
    def max_wait_s(self) -> float:
        """Seconds that all reads together may take."""
        return self.objects.max_wait_s(self.info.uri)

    def read(self, start: int, size: int) -> bytes:
        """Read exactly `size` bytes from `start`.

        Raises:
            ObjectError: The object is missing or has changed, or its server ignores ranges.
            StoreUnavailableError: The store is unavailable.
            VideoRefusedError: Access to the object is denied.
            VideoUnavailableError: It is on a web server, which is unavailable.
        """
        with isolate_web_outage(self.info.uri), isolate_refusal():
            return self.objects.read_range(self.info.uri, start=start, size=size, fingerprint=self.info.fingerprint)


@contextmanager
def isolate_refusal() -> Iterator[None]:
    """Make denied access to one video fail that video only, as the store may serve others.

    Raises:
        VideoRefusedError: Instead of an ObjectRefusedError.
    """
    try:
        yield
    except ObjectRefusedError as error:
        raise VideoRefusedError(error.message) from None


# Below this size, one request for the whole file is faster than several small ones in sequence.
RANGES_MIN_BYTES = 2 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedFrames:
    """Extracted frames, and what fetching them took.

    Attributes:
        keyframes: The frames.
        fetch_ms: Milliseconds spent waiting for the store.
        bytes_fetched: Bytes read from it, including those of failed attempts.
        packets: The keyframes' packets, verified to decode to these pixels; None if not requested or not verified.
        refused_index: Why the index file in the cache could not be used, and was made again; empty if it was not.
    """

    keyframes: SampledFrames
    fetch_ms: float
    bytes_fetched: int
    packets: StoredPackets | None = None
    refused_index: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoReader:
    """Reads videos, wherever they are. Thread-safe.

    Attributes:
        objects: The object store, web and local files, by URI.
        pool: The decoding pool, whose processes alone parse files.
        limits: Limits on one video.
        cache: Where index files are kept for reuse; None keeps none.
        ranges_min_bytes: Size from which remote videos are read by range requests.
        allow_roots: Folders that local videos must lie in; empty allows every folder.
    """

    objects: ObjectStore
    pool: DecodePool
    limits: Limits
    cache: FrameCache | None = None
    ranges_min_bytes: int = RANGES_MIN_BYTES
    allow_roots: tuple[Path, ...] = ()

    @classmethod
    def beside(cls, other: VideoReader, **more: Any) -> Self:  # noqa: ANN401 - fields of the class
        """Return what reads the same videos in the same way as another one; `more` are its own fields."""
        return cls(**{each.name: getattr(other, each.name) for each in fields(VideoReader)}, **more)

    def stat_many(self, uris: Iterable[str]) -> dict[str, ObjectInfo]:
        """Look up sizes and fingerprints of many videos in few requests, where possible.

        Returns:
            What was found, by URI.

        Raises:
            TransientError: The store is unavailable.
        """
        return self.objects.stat_many_near(uris)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameFetcher(VideoReader):
    """Fetches and decodes videos. Thread-safe.

    Attributes:
        sampling: Which frames to decode, and at what size.
        native: Leave frames unscaled and unrotated; reads the whole video.
        every: Return all keyframes instead of picks; reads the whole video.
        copies: Where copies of whole videos are stored.
        keep_packets: Also return the keyframes' packets; reads local and small videos by ranges as well.
        segment: The part of the video to sample from.
        pieces: Decodes the video if the segment is one of several that follow each other.
    """

    sampling: Sampling
    native: bool = False
    every: bool = False
    copies: DownloadCache = field(default_factory=DownloadCache)
    keep_packets: bool = False
    segment: Segment = WHOLE
    pieces: PieceDecoder | None = None

    def fetch(self, info: ObjectInfo) -> FetchedFrames:
        """Extract frames of one version of a video.

        Raises:
            VideoError: The video cannot be used; see its code.
            TransientError: The store is unavailable.
        """
        check_size(info, self.limits)
        with as_video_errors():
            if self.objects.local_path(info.uri) is None:
                return self._fetch(info, RemoteVideo(self.objects, info))
            with isolate_refusal(), self.objects.open_local(info.uri, self.allow_roots) as file:
                file.info.require(fingerprint=info.fingerprint, max_bytes=None)
                fetched = self._fetch(info, file)
                file.require_unchanged()
                return fetched

    def _fetch(self, info: ObjectInfo, video: RemoteVideo | LocalFile | ArchiveMember) -> FetchedFrames:
        wasted_bytes = wasted_frames = 0
        if self._should_use_ranges(info, is_local=isinstance(video, LocalFile)):
            try:
                return self._fetch_ranges(info, video)
            except FallbackRequired as error:
                wasted_bytes, wasted_frames = error.bytes_fetched, error.frames_decoded
            except RangesIgnoredError:
                pass
        if isinstance(video, LocalFile):
            is_read = self.pieces is not None and self.pieces.pieces > 0  # by an earlier piece
            fetched = self._decode(video.as_video(), bytes_fetched=0 if is_read else info.size_bytes)
        else:
            fetched = self._fetch_whole(info, video.objects, wasted_bytes)
        return _with_wasted_frames(fetched, wasted_frames)

    def _should_use_ranges(self, info: ObjectInfo, *, is_local: bool) -> bool:
        if self.native or self.every or scheme_of(info.uri) == INLINE_SCHEME:
            return False
        if self.pieces and self.pieces.is_in_order:
            return False
        may_keep = self.keep_packets and self.sampling.sampler in {"keyframes", "auto"}
        return may_keep or (not is_local and info.size_bytes >= self.ranges_min_bytes)

    def _fetch_ranges(self, info: ObjectInfo, video: RemoteVideo | LocalFile | ArchiveMember) -> FetchedFrames:
        key = index_key(source_uri=info.uri, fingerprint=info.fingerprint)
        known = self.cache.find_index(key) if self.cache else ()
        keyframes, index = self.pool.extract_by_ranges(
            video, sampling=self.sampling, limits=self.limits, known=known, segment=self.segment
        )
        refused = self.cache.write_index(key, index) if self.cache and not known else ""
        return FetchedFrames(
            keyframes=keyframes,
            fetch_ms=keyframes.fetch_ms,
            bytes_fetched=keyframes.bytes_fetched,
            packets=self._verified(keyframes, collect_packets(keyframes, index, video)) if self.keep_packets else None,
            refused_index=refused,
        )

    def _verified(self, keyframes: SampledFrames, stored: StoredPackets | None) -> StoredPackets | None:
        if stored is None:
            return None
        is_exact = verify_packets(stored, keyframes, self.pool, sampling=self.sampling, limits=self.limits)
        return stored if is_exact else None

    def _fetch_whole(self, info: ObjectInfo, objects: Downloads, wasted_bytes: int) -> FetchedFrames:
        started = time.perf_counter()
        copied = self.copies.hold(objects, info, max_bytes=self.limits.max_video_bytes)
        with isolate_web_outage(info.uri), isolate_refusal(), copied as copy:
            fetch_ms = (time.perf_counter() - started) * 1e3
            return self._decode(copy.path, fetch_ms=fetch_ms, bytes_fetched=wasted_bytes + copy.bytes_fetched)

    def _decode(self, video: Path | VideoFile, *, fetch_ms: float = 0.0, bytes_fetched: int) -> FetchedFrames:
        if self.pieces:
            keyframes = self.pieces.extract(video, sampling=self.sampling, limits=self.limits, segment=self.segment)
        else:
            keyframes = self.pool.extract(
                video,
                sampling=self.sampling,
                limits=self.limits,
                native=self.native,
                every=self.every,
                segment=self.segment,
            )
        return FetchedFrames(keyframes=keyframes, fetch_ms=fetch_ms, bytes_fetched=bytes_fetched)


def check_size(info: ObjectInfo, limits: Limits) -> None:
    """Raise if a video is empty, or larger than the limit.

    Raises:
        VideoEmptyError: It is empty.
        VideoTooLargeError: It exceeds `limits.max_video_bytes`.
    """
    if info.size_bytes == 0:
        raise VideoEmptyError(f"{redact_uri(info.uri)} is empty; upload it again.")
    if info.size_bytes > limits.max_video_bytes:
        raise VideoTooLargeError(
            f"The {info.size_bytes:,} bytes of {redact_uri(info.uri)} exceed extract.max_video_bytes "
            f"({limits.max_video_bytes:,})."
        )


def _with_wasted_frames(fetched: FetchedFrames, frames: int) -> FetchedFrames:
    """Add the frames decoded by a failed attempt."""
    keyframes = fetched.keyframes
    return replace(fetched, keyframes=replace(keyframes, frames_decoded=keyframes.frames_decoded + frames))


@contextmanager
def isolate_web_outage(uri: str) -> Iterator[None]:
    """Make an unavailable web server fail its own videos only, not the run, unlike the object store.

    The body only reads from that server: an outage of the store that holds the cache is none of the video's.

    Raises:
        VideoUnavailableError: Instead of a StoreUnavailableError, if `uri` is on the web.
    """
    try:
        yield
    except StoreUnavailableError as error:
        if scheme_of(uri) in WEB_SCHEMES:
            raise VideoUnavailableError(error.message) from None
        raise


@contextmanager
def as_video_errors() -> Iterator[None]:
    """Convert ObjectErrors into the matching VideoErrors."""
    try:
        yield
    except ObjectChangedError as error:
        raise VideoChangedError(error.message) from None
    except ObjectMissingError as error:
        raise VideoMissingError(error.message) from None
    except ObjectTooLargeError as error:
        raise VideoTooLargeError(f"{error.message} See extract.max_video_bytes.") from None


def stat_video(objects: ObjectStore, uri: str, *, allow_roots: tuple[Path, ...] = ()) -> ObjectInfo:
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
        ArchiveUnreadableError: Its archive is damaged, or it cannot be read from there.
        VideoChangedError: Its archive was replaced while its index was being read.
        LoginRefusedError: The store refuses the login, so that no video can be read there.
    """
    try:
        if objects.local_path(uri) is not None:
            with objects.open_local(uri, allow_roots) as file:
                return file.info
        with isolate_web_outage(uri):
            return objects.stat(uri)
    except MemberMissingError as error:
        raise VideoMissingError(error.message) from None
    except ObjectMissingError:
        path = objects.local_path(uri)
        if path is not None and os.path.isdir(path):  # noqa: PTH112 - unlike Path.is_dir, takes names that are too long
            raise VideoMissingError(f"{uri} is a folder, not a video; name a file in it.") from None
        advice = path_advice(uri) or "; check the path or URI"
        raise VideoMissingError(f"There is no video at {redact_uri(uri)}{advice}.") from None
    except ObjectTooLargeError as error:
        raise VideoTooLargeError(f"{error.message} Its server sends no length, so it was read to measure it.") from None
    except ObjectChangedError as error:
        raise VideoChangedError(error.message) from None
    except LoginRefusedError:
        raise
    except (ConfigurationError, ValueError) as error:
        # Caused by this video alone: access to the frame cache was checked before the run.
        message, shown = str(error), redact_uri(uri)
        raise VideoRefusedError(
            message if message.startswith(shown) else f"{shown} cannot be read: {message}"
        ) from None
