"""Video preparation as a callable on batches, for Ray Data's `map_batches` and other libraries."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Literal, Self

from reelabel.errors import VideoRefusedError
from reelabel.frames.cache import FrameCache
from reelabel.frames.fetch import VideoReader
from reelabel.integrations.chat_messages import mark_videos, read_messages
from reelabel.integrations.ray_data.cells import (
    OutputFormat,
    failure_metadata,
    frame_metadata,
    held_cells,
    held_videos,
    object_column,
    sample_frames,
)
from reelabel.integrations.ray_data.rows import MESSAGES, VIDEO, VIDEO_META, names_video, segment_of, to_rows, videos_of
from reelabel.options import Limits, S3Options, WebOptions, check_options, conflict, option, read_options
from reelabel.pool.decode_pool import DecodePool
from reelabel.result import Frames
from reelabel.sampling.options import Sampling, check_no_job_options
from reelabel.sampling.registry import find_sampler
from reelabel.sandbox import SandboxMode  # noqa: TC001 - `check_options` reads the annotations
from reelabel.sources.download_cache import DownloadCache
from reelabel.sources.object_info import redact_uri
from reelabel.sources.object_store import ObjectStore
from reelabel.sources.opened import RANGES_MIN_BYTES, stat_video
from reelabel.waiting import look, raise_if_abandoned, working_until

if TYPE_CHECKING:
    from reelabel.integrations.ray_data.cells import PreparedRow, VideoMeta
    from reelabel.integrations.ray_data.rows import Video
    from reelabel.segment import Segment

    _Cell = tuple[Any, VideoMeta]
    _Key = tuple[Video, Segment]


_FPS = 3.0
# The size of Qwen's video processing: 768 of its patches.
_SIZE: dict[str, Any] = {"max_pixels": 602_112, "size_multiple_px": 28}


def parse_sampling(given: Sampling | Mapping[str, Any] | None) -> Sampling:
    """Parse `{"fps": 3}`, `{"num_frames": 8}`, or the options of any sampler together with its `sampler` name.

    Frames have the size of Qwen's video processing, unless it is given.
    """
    if isinstance(given, Sampling):
        size = _SIZE | ({"size_multiple_px": given.size_multiple_px} if given.size_multiple_px > 1 else {})
        return given if given.max_pixels else replace(given, **size)
    if not isinstance(given, Mapping | None):
        raise ValueError(f"must be a dictionary or a Sampling, not {type(given).__name__}")  # noqa: TRY004 - a clause
    sampler = "num_frames" if "num_frames" in (given or {}) else "fps"
    options = {"sampler": sampler} | _SIZE | dict(given or {})
    return read_options(Sampling, {"fps": _FPS} | options if options["sampler"] == "fps" else options)


def _or_default(kind: type[Any]) -> Callable[[Any], Any]:
    return lambda given: kind() if given is None else given


def _folders(given: Any) -> Any:  # noqa: ANN401 - whatever a user gave
    if not isinstance(given, list | tuple):
        return given
    return tuple(Path(each).absolute() if isinstance(each, str | Path) else each for each in given)


@dataclass(kw_only=True, unsafe_hash=True)  # not frozen, nor with slots: Ray sets attributes of its own
class PrepareVideo:
    """Adds the sampled frames of each row's videos to a batch.

    A row names its video in `video_uri` or `video_url`, by a path or a URI; or any number of videos in a list,
    `video_uris` or `video_urls`, or in OpenAI chat `messages`, whose other parts are left alone. In place of a URI, a
    column may hold the bytes of a video, also as `{"bytes": ..., "path": ...}`, like Hugging Face's datasets. `start_s`
    and `end_s` may name a segment.

    Two columns are added, as `reelabel.PreparedRow` documents them: `video` and `video_meta`, each a list with an entry
    for each of the row's videos, also for a single one. A bad video fails only its own entry, which then has no frames,
    and the error in `video_meta`; so does a URI that is empty. A row without a column that names a video, or with
    messages of text alone, passes through: with the frames that its `video` or `video_frames` may hold, or None.

    Instances can be pickled and hold no resources. Within a process, instances with equal options share one set of
    decoding processes, which end with it.

    Attributes:
        sampling: `{"fps": 3}`, `{"num_frames": 8}`, or options of `reelabel.Sampling` with their `sampler`, except
            those that depend on jobs or answers (`escalate_below`, `motion_tasks`, `still_tasks`); None samples
            3 frames per second.
        cache_dir: Folder in which downloaded videos are kept; None keeps none.
        cache_mode: Where a remote video is stored during decoding: `disk`, `memory`, or `auto`, which stores
            nothing if range requests suffice, else uses memory, or disk for large videos.
        output_format: `pil`, a list of Pillow's images; or `numpy`, one uint8 array of shape (M, H, W, 3).
        channels_first: Arrays have shape (M, 3, H, W) instead.
        timeout_s: Read timeout of requests, in seconds; S3 also waits so long for a connection, at most 10.
        max_concurrency: Maximum number of videos in progress.
        retries: How often a failed request is retried.
        bypass_if_frames_present: Pass through rows whose `video` or `video_frames` already holds frames.
        sample_frames_present: Sample the frames that a row's `video` or `video_frames` already holds, by a dense
            sampler, instead of its video; they keep their format.
        pack_for_model: Give each video as (frames, metadata), so that `video` is vLLM's
            `multi_modal_data["video"]`, regardless of `output_format`.
        processes: Number of decoding processes; use one per CPU that Ray reserves by `num_cpus`.
        videos_per_process: Videos after which a decoding process is replaced; with 1, a hostile video cannot change
            the frames of others.
        sandbox: `require` refuses to decode where the kernel cannot confine the processes; `auto` decodes with what
            protection there is; `off` only limits resources.
        s3: How S3 is reached: `S3Options`, or their fields; None uses the AWS credential chain.
        web: Which hosts may be read and how: `WebOptions`, or their fields; None allows every public host.
        allow_roots: Folders that local videos must be in; if empty, any folder is allowed.
        read_buckets: S3 buckets that videos may be read from; if empty, any.
        limits: Limits on one video.

    Raises:
        ConfigurationError: An option is invalid, or `pil` needs Pillow, which is not installed.
    """

    sampling: Sampling = option(None, convert=parse_sampling, check=check_no_job_options)
    cache_dir: Path | None = option(None, check=Path.absolute)
    cache_mode: Literal["auto", "disk", "memory"] = "auto"
    output_format: Literal["pil", "numpy"] = "pil"
    channels_first: bool = False
    timeout_s: float = option(30.0, gt=0, le=300)
    max_concurrency: int = option(8, ge=1, le=256)
    retries: int = option(2, ge=0, le=19)
    bypass_if_frames_present: bool = False
    sample_frames_present: bool = False
    pack_for_model: bool = False
    processes: int = option(1, ge=1, le=256)
    videos_per_process: int = option(1000, ge=1)
    sandbox: SandboxMode = "auto"
    s3: S3Options = option(None, convert=_or_default(S3Options))
    web: WebOptions = option(None, convert=_or_default(WebOptions))
    allow_roots: tuple[Path, ...] = option((), convert=_folders)
    read_buckets: tuple[str, ...] = ()
    limits: Limits = option(None, convert=_or_default(Limits))

    if TYPE_CHECKING:  # what is given may have other types than the fields, to which it is converted

        def __init__(  # noqa: PLR0913
            self,
            *,
            sampling: Sampling | Mapping[str, Any] | None = None,
            cache_dir: str | Path | None = None,
            cache_mode: Literal["auto", "disk", "memory"] = "auto",
            output_format: Literal["pil", "numpy"] = "pil",
            channels_first: bool = False,
            timeout_s: float = 30.0,
            max_concurrency: int = 8,
            retries: int = 2,
            bypass_if_frames_present: bool = False,
            sample_frames_present: bool = False,
            pack_for_model: bool = False,
            processes: int = 1,
            videos_per_process: int = 1000,
            sandbox: SandboxMode = "auto",
            s3: S3Options | Mapping[str, Any] | None = None,
            web: WebOptions | Mapping[str, Any] | None = None,
            allow_roots: Sequence[str | Path] = (),
            read_buckets: Sequence[str] = (),
            limits: Limits | Mapping[str, Any] | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        check_options(self, PrepareVideo)
        if self.sample_frames_present and self.bypass_if_frames_present:
            raise conflict(self, "sample_frames_present and bypass_if_frames_present exclude each other; leave one out")
        if self.sample_frames_present and find_sampler(self.sampling.sampler).choose is None:
            clause = f"the sampler {self.sampling.sampler} chooses from a file, not from frames; use num_frames"
            raise conflict(self, clause)
        _ = self._form  # which may need a package

    @property
    def _form(self) -> OutputFormat:
        if self.pack_for_model:
            return OutputFormat(kind="packed")
        return OutputFormat(kind=self.output_format, channels_first=self.channels_first)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Prepare the videos of a batch concurrently, each distinct one once.

        Args:
            batch: Columns of equal length by name, as with `batch_format="numpy"`: lists, or arrays of NumPy or Arrow.

        Returns:
            The same columns, plus `video` and `video_meta`.

        Raises:
            ConfigurationError: The batch is not a dictionary of columns of equal length.
        """
        worker, is_over = get_worker(self), Event()
        try:
            with working_until(is_over.is_set):
                waits = [self._start(row, worker) for row in to_rows(batch)]
                rows = [wait() for wait in waits]
        finally:
            is_over.set()  # after an interrupt, the next batch does not wait for the videos of this one
        return {
            **batch,
            VIDEO: object_column([row["video"] for row in rows]),
            VIDEO_META: object_column([row["video_meta"] for row in rows]),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def close(self) -> None:
        """End all reads and the decoding processes, which otherwise end with this process; a call starts new ones."""
        close_worker(self)

    def _start(self, row: Mapping[str, Any], worker: PrepareWorker) -> Callable[[], PreparedRow]:
        try:
            cells = self._start_cells(row, worker)
        except Exception as error:  # noqa: BLE001 - any error of one row is reported on it
            return partial(_row_of, [self._failed(error, source="")])
        return lambda: _row_of(cells())

    def _start_cells(self, row: Mapping[str, Any], worker: PrepareWorker) -> Callable[[], list[_Cell]]:
        holds_frames = bool(held_videos(row))
        if holds_frames and (self.bypass_if_frames_present or self.sample_frames_present or not names_video(row)):
            return self._held(row)
        videos = videos_of(row)
        segment = segment_of(row, len(videos))
        if not videos and holds_frames:  # messages of text alone
            return self._held(row)
        starts = [self._start_video(video, segment, worker) for video in videos]
        return lambda: [wait() for wait in starts]

    def _held(self, row: Mapping[str, Any]) -> Callable[[], list[_Cell]]:
        cells = held_cells(row)
        if self.sample_frames_present:
            cells = [self._sample_again(*cell) for cell in cells]
        return lambda: cells

    def _start_video(
        self, video: Video | VideoRefusedError, segment: Segment, worker: PrepareWorker
    ) -> Callable[[], _Cell]:
        if isinstance(video, VideoRefusedError):
            return partial(self._failed, video, source="")
        return partial(self._wait, worker.start(video, segment), video)

    def _sample_again(self, video: Any, meta: VideoMeta) -> _Cell:  # noqa: ANN401 - images, an array or a pair
        if meta["video_num_frames"] == 0:
            return video, meta
        try:
            return sample_frames(video, meta, self.sampling)
        except Exception as error:  # noqa: BLE001 - such as of metadata that hold anything
            return self._failed(error, source=meta["source"])

    def _wait(self, prepared: Callable[[], Frames], video: Video) -> _Cell:
        source = "" if isinstance(video, bytes) else redact_uri(video)
        try:
            frames = prepared()
            return self._form.video(frames), frame_metadata(frames, source)
        except Exception as error:  # noqa: BLE001 - any error of one video is reported on its row
            return self._failed(error, source=source)

    def _failed(self, error: Exception, *, source: str) -> _Cell:
        return self._form.no_video(), failure_metadata(error, source)


def _row_of(cells: Sequence[_Cell]) -> PreparedRow:
    if not cells:  # Ray merges null with any type, but not an empty list with a list of images
        return {"video": None, "video_meta": None}
    return {"video": [video for video, _ in cells], "video_meta": [meta for _, meta in cells]}


# Larger files go to disk, as their bytes are rarely read twice and memory is better used for frames.
_MEMORY_BYTES = 64 * 1024**2
_UNLIMITED_BYTES = sys.maxsize

_workers: dict[tuple[PrepareVideo, int], PrepareWorker] = {}
_workers_lock = Lock()


@dataclass(slots=True)
class _Shared:
    """A video in progress, and for each row about it, whether its batch was abandoned."""

    rows: list[Callable[[], bool]]
    frames: Future[Frames] = field(default_factory=Future)

    def is_over(self) -> bool:
        return all(is_over() for is_over in self.rows)


class PrepareWorker:
    """Prepares videos with one set of options. Thread-safe."""

    def __init__(self, options: PrepareVideo) -> None:
        attempts = options.retries + 1
        self._objects = ObjectStore(
            replace(options.s3, read_timeout_s=options.timeout_s, max_attempts=attempts),
            replace(options.web, timeout_s=options.timeout_s, max_attempts=attempts),
            buckets=options.read_buckets,
            allow_roots=options.allow_roots,
        )
        self._pool = DecodePool(
            processes=options.processes, videos_per_process=options.videos_per_process, sandbox=options.sandbox
        )
        self._sampling = options.sampling
        self._reader = VideoReader(
            objects=self._objects,
            cache=FrameCache(ObjectStore(), options.cache_dir.as_uri()) if options.cache_dir else None,
            pool=self._pool,
            limits=options.limits,
            ranges_min_bytes=RANGES_MIN_BYTES if options.cache_mode == "auto" else _UNLIMITED_BYTES,
            copies=_copies(options),
        )
        self._threads = ThreadPoolExecutor(options.max_concurrency, thread_name_prefix="prepare-video")
        self._in_progress: dict[_Key, _Shared] = {}
        self._lock = Lock()

    def start(self, video: Video, segment: Segment) -> Callable[[], Frames]:
        """Start preparing a segment of a video, unless this is in progress; return what waits for the frames.

        Each caller gets pixels of its own.
        """
        key = video, segment
        with self._lock:
            if (shared := self._in_progress.get(key)) and not shared.is_over():
                shared.rows.append(look())
                return partial(self._take, key, shared)
            shared = _Shared([look()])
            shared.frames = self._threads.submit(self._prepare, video, segment, shared)
            self._in_progress[key] = shared
        shared.frames.add_done_callback(lambda _: self._forget(key, shared))
        return partial(self._take, key, shared)

    def _take(self, key: _Key, shared: _Shared) -> Frames:
        frames = shared.frames.result()
        self._forget(key, shared)  # no other row joins now
        return frames if len(shared.rows) == 1 else Frames.of(frames.unique.copy(), frames.selection)

    def _forget(self, key: _Key, shared: _Shared) -> None:
        with self._lock:
            if self._in_progress.get(key) is shared:
                del self._in_progress[key]

    def close(self) -> None:
        self._objects.cancel()
        self._pool.close()
        self._threads.shutdown(cancel_futures=True)

    def _prepare(self, video: Video, segment: Segment, shared: _Shared) -> Frames:
        with working_until(shared.is_over):
            raise_if_abandoned()
            if isinstance(video, bytes):
                return self._pool.extract(video, sampling=self._sampling, limits=self._reader.limits, segment=segment)
            info = stat_video(self._objects, video)
            return self._reader.fetch(info, self._sampling, segment=segment).frames


def _renew_lock() -> None:
    global _workers_lock  # noqa: PLW0603 - a thread of the parent may hold it, which does not exist here
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
    with _workers_lock:
        worker = _workers.pop((options, os.getpid()), None)
    if worker is not None:
        worker.close()


def _copies(options: PrepareVideo) -> DownloadCache:
    if options.cache_mode == "memory":
        return DownloadCache(memory_bytes=_UNLIMITED_BYTES)
    return DownloadCache(memory_bytes=_MEMORY_BYTES if options.cache_mode == "auto" else 0, folder=options.cache_dir)


# A row with an error skips the stages of a processor, and its postprocess.
_ERROR = "__inference_error__"


class PrepareRequest:
    """The `preprocess` of `ray.data.llm.build_processor` for requests about videos.

    A request names its videos in `messages` or in a column, as for `PrepareVideo`. Their frames become its
    `multimodal_data`, each video part of `messages` becomes the mark `{"type": "video"}`, and `video_meta` is added. If
    a video fails, so does its request alone: Ray's column `__inference_error__` holds the error.

    >>> build_processor(config, preprocess=PrepareRequest(ask, sampling={"num_frames": 8}))

    Instances can be pickled; tasks of one process share decoding processes.
    """

    def __init__(
        self,
        preprocess: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
        *,
        has_video: bool = True,
        **options: Any,  # noqa: ANN401 - those of PrepareVideo
    ) -> None:
        """Validate the options. No process is started yet.

        Args:
            preprocess: Makes a row's request: `messages`, `sampling_params` and others, which are added to the row;
                None if rows are requests already.
            has_video: Prepare videos; otherwise `preprocess` alone is called.
            options: Those of `PrepareVideo`, except `output_format` and `pack_for_model`, which the engine decides.

        Raises:
            ConfigurationError: An option is invalid.
        """
        self._preprocess = preprocess
        self._prepare = PrepareVideo(**options, pack_for_model=True) if has_video else None

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is added to a row."""
        added = {**self._preprocess({**row})} if self._preprocess else {}
        return added if self._prepare is None else added | self._add_videos({**row, **added}, self._prepare)

    def _add_videos(self, request: Mapping[str, Any], prepare: PrepareVideo) -> dict[str, Any]:
        prepared = prepare({name: [value] for name, value in request.items()})
        [videos], [metas] = prepared["video"], prepared["video_meta"]
        added = {"video_meta": metas}
        if metas is None:
            return added
        if errors := [meta["error"] for meta in metas if meta["failed"]]:
            return added | {_ERROR: " ".join(errors)}
        added["multimodal_data"] = {"video": videos}
        if request.get(MESSAGES) is not None:
            added[MESSAGES] = mark_videos(read_messages(request[MESSAGES]))
        return added
