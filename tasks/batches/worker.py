"""What one process holds to prepare videos: threads that wait for bytes, children that decode."""

from __future__ import annotations

import atexit
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING

from infra.objects import ObjectStore
from tasks.frames.cache import FrameCache
from tasks.frames.copies import Copies
from tasks.frames.decoding import decode_pool, video_limits
from tasks.frames.fetch import PARTS_FROM_BYTES, Fetcher
from tasks.frames.prepare import look_at_video

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tasks.batches.options import Options
    from tasks.domain import Segment
    from tasks.video.keyframes import Keyframes

# Larger files need many seeks over much that is not read twice: memory is better spent on frames.
_MEMORY_BYTES = 64 * 1024**2
_NEVER = sys.maxsize

_workers: dict[tuple[Options, int], Worker] = {}
_making_workers = Lock()


class Worker:
    """Prepares videos by one set of options; safe to call from many threads."""

    def __init__(self, options: Options) -> None:
        """Start the decoding processes."""
        settings, attempts = options.settings, options.retries + 1
        timeouts = {"connect_timeout_s": options.timeout_s, "read_timeout_s": options.timeout_s}
        self._objects = ObjectStore(
            settings.store.model_copy(update={**timeouts, "max_attempts": attempts}),
            settings.web.model_copy(update={"timeout_s": options.timeout_s, "max_attempts": attempts}),
        )
        self._allow_roots = settings.extract.allow_roots
        self._pool = decode_pool(settings, processes=options.processes)
        self._fetcher = Fetcher(
            objects=self._objects,
            cache=FrameCache(self._objects, options.cache_dir.as_uri()) if options.cache_dir else None,
            pool=self._pool,
            sampling=options.sampling,
            limits=video_limits(settings),
            parts_from_bytes=PARTS_FROM_BYTES if options.cache_mode == "auto" else _NEVER,
            copies=_copies(options),
        )
        self._threads = ThreadPoolExecutor(options.max_concurrency, thread_name_prefix="prepare-video")
        self._flying: dict[tuple[str, Segment], Future[Keyframes]] = {}
        self._starting = Lock()

    def start(self, uri: str, segment: Segment) -> Future[Keyframes]:
        """Begin to prepare a part of a video; who asks for one that is on its way waits for the same."""
        part = uri, segment
        with self._starting:
            if part not in self._flying:
                future = self._flying[part] = self._threads.submit(self._prepare, uri, segment)
                future.add_done_callback(lambda _: self._flying.pop(part, None))
                return future
            return self._flying[part]

    def close(self) -> None:
        """End threads and children."""
        self._pool.close()
        self._threads.shutdown(cancel_futures=True)

    def _prepare(self, uri: str, segment: Segment) -> Keyframes:
        info = look_at_video(self._objects, uri, allow_roots=self._allow_roots)
        return replace(self._fetcher, segment=segment).fetch(info).keyframes


def worker_of(options: Options) -> Worker:
    """Give this process's worker, which ends with the process: equal options share one, also when unpickled anew."""
    with _making_workers:
        key = (options, os.getpid())
        if key not in _workers:
            _workers[key] = Worker(options)
            atexit.register(close_worker, options)
        return _workers[key]


def close_worker(options: Options) -> None:
    """End this process's worker, if there is one."""
    with _making_workers:
        worker = _workers.pop((options, os.getpid()), None)
    if worker is not None:
        worker.close()


def _copies(options: Options) -> Copies:
    if options.cache_mode == "memory":
        return Copies(memory_bytes=_NEVER)
    return Copies(memory_bytes=_MEMORY_BYTES if options.cache_mode == "auto" else 0, folder=options.cache_dir)
