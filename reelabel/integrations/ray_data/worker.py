"""The threads and decoding processes that all `PrepareVideo` with equal options share in a process."""

from __future__ import annotations

import atexit
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from reelabel.frames.cache import FrameCache
from reelabel.frames.download_cache import DownloadCache
from reelabel.frames.fetch import VideoReader
from reelabel.frames.opened import RANGES_MIN_BYTES, stat_video
from reelabel.pool.decode_pool import DecodePool
from reelabel.result import Frames
from reelabel.sources.object_store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from reelabel.integrations.ray_data.prepare import PrepareVideo
    from reelabel.integrations.ray_data.rows import Video
    from reelabel.segment import Segment

    _Key = tuple[Video, Segment]

# Larger files go to disk, as their bytes are rarely read twice and memory is better used for frames.
_MEMORY_BYTES = 64 * 1024**2
_UNLIMITED_BYTES = sys.maxsize

_workers: dict[tuple[PrepareVideo, int], PrepareWorker] = {}
_workers_lock = Lock()


@dataclass(slots=True)
class _Shared:
    frames: Future[Frames]
    rows: int = 1


class PrepareWorker:
    """Prepares videos with one set of options. Thread-safe."""

    def __init__(self, options: PrepareVideo) -> None:
        attempts = options.retries + 1
        self._objects = ObjectStore(
            replace(
                options.s3,
                connect_timeout_s=options.timeout_s,
                read_timeout_s=options.timeout_s,
                max_attempts=attempts,
            ),
            replace(options.web, timeout_s=options.timeout_s, max_attempts=attempts),
            buckets=options.read_buckets,
        )
        self._allow_roots = options.allow_roots
        self._pool = DecodePool(
            processes=options.processes, videos_per_process=options.videos_per_process, sandbox=options.sandbox
        )
        self._sampling = options.sampling
        self._reader = VideoReader(
            objects=self._objects,
            cache=FrameCache(self._objects, options.cache_dir.as_uri()) if options.cache_dir else None,
            pool=self._pool,
            limits=options.limits,
            ranges_min_bytes=RANGES_MIN_BYTES if options.cache_mode == "auto" else _UNLIMITED_BYTES,
            copies=_copies(options),
            allow_roots=options.allow_roots,
        )
        self._threads = ThreadPoolExecutor(options.max_concurrency, thread_name_prefix="prepare-video")
        self._in_progress: dict[_Key, _Shared] = {}
        self._lock = Lock()

    def start(self, video: Video, segment: Segment) -> Callable[[], Frames]:
        """Start preparing a segment of a video, unless this is in progress; return what waits for the frames.

        The pixels that it returns are nobody else's.
        """
        key = video, segment
        with self._lock:
            if shared := self._in_progress.get(key):
                shared.rows += 1
                return partial(self._take, key, shared)
            shared = _Shared(self._threads.submit(self._prepare, video, segment))
            self._in_progress[key] = shared
        shared.frames.add_done_callback(lambda _: self._forget(key, shared))
        return partial(self._take, key, shared)

    def _take(self, key: _Key, shared: _Shared) -> Frames:
        frames = shared.frames.result()
        self._forget(key, shared)  # no other row joins now
        return frames if shared.rows == 1 else Frames.of(frames.unique.copy(), frames.selection)

    def _forget(self, key: _Key, shared: _Shared) -> None:
        with self._lock:
            if self._in_progress.get(key) is shared:
                del self._in_progress[key]

    def close(self) -> None:
        """Stop threads and decoding processes."""
        self._pool.close()
        self._threads.shutdown(cancel_futures=True)

    def _prepare(self, video: Video, segment: Segment) -> Frames:
        if isinstance(video, bytes):
            return self._pool.extract(video, sampling=self._sampling, limits=self._reader.limits, segment=segment)
        info = stat_video(self._objects, video, allow_roots=self._allow_roots)
        return self._reader.fetch(info, self._sampling, segment=segment).frames


def _renew_lock() -> None:
    global _workers_lock  # noqa: PLW0603 - a lock of the parent's threads, which do not exist here
    _workers_lock = Lock()


os.register_at_fork(after_in_child=_renew_lock)


def get_worker(options: PrepareVideo) -> PrepareWorker:
    """Return this process's worker for some options. Equal options share one, also if unpickled separately."""
    with _workers_lock:
        key = (options, os.getpid())
        if key not in _workers:
            _workers[key] = PrepareWorker(options)
            atexit.register(close_worker, options)
        return _workers[key]


def close_worker(options: PrepareVideo) -> None:
    """Stop this process's worker for some options, if there is one."""
    with _workers_lock:
        worker = _workers.pop((options, os.getpid()), None)
    if worker is not None:
        worker.close()


def _copies(options: PrepareVideo) -> DownloadCache:
    if options.cache_mode == "memory":
        return DownloadCache(memory_bytes=_UNLIMITED_BYTES)
    return DownloadCache(memory_bytes=_MEMORY_BYTES if options.cache_mode == "auto" else 0, folder=options.cache_dir)
