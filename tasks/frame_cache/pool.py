"""What reads and decodes videos, and the cache of their frames, from the settings; versions of many videos at once."""

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

# Frames on their way from extraction to inference that are kept in memory: as many as the engine gets at a time.
KEPT_BYTES = 256 * 1024**2
# Videos that fail are remembered, so that one in many shards is fetched and decoded once in a run.
_KEPT_FAULTS = 1024


def frame_cache(settings: Settings, *, keep_bytes: int = 0, files: ObjectStore | None = None) -> FrameCache:
    """Open the frame cache, with at most `keep_bytes` of its files in memory, on a store or one that it opens."""
    store = settings.store
    assert store.uri is not None
    return FrameCache(files or ObjectStore(store), store.uri, seal=store.seal, keep_bytes=keep_bytes)


def decode_pool(settings: Settings, *, processes: int, ahead: bool = False) -> DecodePool:
    """Open a decoding pool; see `DecodePool`. A run may find all frames in the cache, so it starts nothing ahead."""
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
    """Return the object store that reads videos: with keys and buckets of their own, if set.

    Indexes of archives are kept in the frame cache, where workers and later runs find them; `files` is its store.
    """
    return ObjectStore(
        settings.store.for_videos(),
        settings.web,
        buckets=settings.store.read_buckets,
        archive_indexes=frame_cache(settings, files=files) if settings.store.uri else None,
    )


def uncached_reader(settings: Settings, pool: DecodePool) -> VideoReader:
    """Return what reads videos for a look at them, and keeps nothing."""
    return VideoReader(
        objects=video_store(settings),
        pool=pool,
        limits=video_limits(settings),
        allow_roots=settings.extract.allow_roots,
    )


def video_limits(settings: Settings) -> Limits:
    """Return the limits on one video."""
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
    """Return the extractor of videos by a sampling, which keeps at most `keep_bytes` of frame files in memory.

    At most `keep_faults` failed videos are remembered, and not tried again. `videos` reads videos, as `video_store`
    returns it, and `files` the cache's files; None opens them.
    """
    return FrameExtractor(
        objects=videos or video_store(settings, files=files),
        cache=frame_cache(settings, keep_bytes=keep_bytes, files=files),
        pool=pool,
        sampling=sampling,
        limits=video_limits(settings),
        pixel_encoding=settings.store.encoding,
        allow_roots=settings.extract.allow_roots,
        thresholds=coverage_thresholds(settings, sampling),
        locks=KeyedLocks(keep_faults=keep_faults),
    )


def coverage_thresholds(settings: Settings, sampling: Sampling) -> CoverageThresholds:
    """Return the limits of sufficient keyframe coverage: those of the sampling if it decides by them."""
    return CoverageThresholds.of(sampling if sampling.sampler == "auto" else settings.sampling)


_MAX_CONCURRENT_LOOKUPS = 16


def current_fingerprints(objects: ObjectStore, uris: Sequence[str]) -> list[str | None]:
    """Look up the fingerprints of videos, many per request if their store can list them; None if missing or refused.

    The videos are sorted, so that those in the same folder are adjacent.

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
