"""Opens decoding pools, stores, the frame cache and extractors by the settings, and looks up fingerprints."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from infra.logs import in_context
from reelabel.coverage import CoverageThresholds
from reelabel.errors import JobError
from reelabel.frames.cache import FrameCache
from reelabel.frames.fetch import VideoReader
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.sources.object_info import redact_uri
from reelabel.sources.object_store import ObjectStore
from reelabel.sources.opened import stat_video
from reelabel.unexpected import failing_alone
from tasks.frame_cache.extractor import FrameExtractor, KeyedLocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infra.settings import Settings
    from reelabel.sampling.options import Sampling

# Frame files kept in memory between extraction and inference: as many as the engine gets at a time.
KEPT_BYTES = 256 * 1024**2
# Failed videos that are remembered, so that a run decodes one in many shards only once.
_KEPT_FAULTS = 1024


def frame_cache(settings: Settings, *, keep_bytes: int = 0, files: ObjectStore | None = None) -> FrameCache:
    """Open the frame cache, which keeps at most `keep_bytes` of its files in memory; None opens the store."""
    store = settings.store
    assert store.uri is not None
    return FrameCache(files or ObjectStore(store), store.uri, seal=store.seal, keep_bytes=keep_bytes)


def decode_pool(settings: Settings, *, processes: int, ahead: bool = False) -> DecodePool:
    """Open a `DecodePool`; `ahead` starts its processes before the first video, which may not be needed."""
    extract = settings.extract
    return DecodePool(
        processes=processes,
        timeout_s=extract.timeout_s,
        memory_mib=extract.memory_mib,
        cpu_s=round(2 * extract.timeout_s),
        videos_per_process=extract.videos_per_process,
        sandbox=extract.sandbox,
        ahead=ahead,
    )


def video_store(settings: Settings, *, files: ObjectStore | None = None) -> ObjectStore:
    """Open the object store of videos, with keys, buckets and folders of their own if they are set.

    Indexes of archives are kept in the frame cache for workers and later runs; `files` is its store.
    """
    return ObjectStore(
        settings.store.for_videos(),
        settings.web,
        buckets=settings.store.read_buckets,
        allow_roots=settings.extract.allow_roots,
        archive_indexes=frame_cache(settings, files=files) if settings.store.uri else None,
    )


def uncached_reader(settings: Settings, pool: DecodePool) -> VideoReader:
    """Return a reader of videos that caches nothing."""
    return VideoReader(
        objects=video_store(settings),
        pool=pool,
        limits=video_limits(settings),
    )


def video_limits(settings: Settings) -> Limits:
    extract = settings.extract
    return Limits(max_video_bytes=extract.max_video_bytes, max_duration_s=extract.max_duration_s)


def open_extractor(
    settings: Settings,
    pool: DecodePool,
    sampling: Sampling,
    *,
    keep_bytes: int,
    keep_faults: int = _KEPT_FAULTS,
    videos: ObjectStore | None = None,
    files: ObjectStore | None = None,
) -> FrameExtractor:
    """Open an extractor, which keeps at most `keep_bytes` of frame files in memory, and remembers failed videos.

    `videos` is the `video_store`, and `files` the store of the cache; None opens them.
    """
    return FrameExtractor(
        objects=videos or video_store(settings, files=files),
        cache=frame_cache(settings, keep_bytes=keep_bytes, files=files),
        pool=pool,
        sampling=sampling,
        limits=video_limits(settings),
        pixel_encoding=settings.store.encoding,
        thresholds=CoverageThresholds.of(sampling),
        locks=KeyedLocks(keep_faults=keep_faults),
    )


_MAX_CONCURRENT_LOOKUPS = 16


def current_fingerprints(objects: ObjectStore, uris: Sequence[str]) -> list[str | None]:
    """Look up the fingerprints of videos, by listings where the store has them; None if missing or refused.

    The URIs are sorted, so that those in one folder are adjacent.

    Raises:
        TransientError: The store is unavailable.
    """
    listed = objects.stat_many(uris)

    def look_up(uri: str) -> str | None:
        try:
            with failing_alone(f"The look at {redact_uri(uri)}"):
                return (listed.get(uri) or stat_video(objects, uri)).fingerprint
        except JobError:
            return None

    with ThreadPoolExecutor(_MAX_CONCURRENT_LOOKUPS) as threads:
        return list(threads.map(in_context(look_up), uris))
