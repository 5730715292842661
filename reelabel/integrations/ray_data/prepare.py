"""Video preparation as a callable on batches, for Ray Data's `map_batches` and other columnar libraries."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from reelabel.errors import SamplingRefusedError, VideoRefusedError
from reelabel.integrations.ray_data.cells import (
    OutputFormat,
    failure_metadata,
    frame_metadata,
    no_video_metadata,
    object_column,
    pass_through_cells,
)
from reelabel.integrations.ray_data.frames_present import sample_frames
from reelabel.integrations.ray_data.options import PrepareOptions
from reelabel.integrations.ray_data.rows import VIDEO, VIDEO_META, has_frames, segment_of, to_rows, videos_of
from reelabel.integrations.ray_data.worker import close_worker, get_worker
from reelabel.limits import Limits
from reelabel.sources.object_info import redact_uri
from reelabel.sources.options import S3Options, WebOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from reelabel.integrations.ray_data.rows import Video
    from reelabel.integrations.ray_data.worker import PrepareWorker
    from reelabel.sampled_frames import SampledFrames
    from reelabel.sampling.options import Sampling
    from reelabel.sandbox import SandboxMode

    _Cells = tuple[Any, Any]


class PrepareVideo:
    """Adds the sampled frames of each row's video to a batch.

    A row names its video in `video_uri`, `video_url` or OpenAI chat `messages`, by a path or a URI; or several videos
    in `messages` or in a list, `video_uris` or `video_urls`. In place of a URI, a column may hold the bytes of a video,
    also as `{"bytes": ..., "path": ...}`, like Hugging Face's datasets. `start_s` and `end_s` may name a segment.

    Two columns are added: `video`, the frames; and `video_meta`, with `video_size` (width, height), `video_num_frames`,
    `frame_timestamps` (seconds from the start of the whole video), `deviation_s` (each frame's time minus the instant
    that it was chosen for; empty for samplers that aim at no instants), `decode_note`, `source` (the URI; empty for
    bytes), `failed`, `error_type` and `error`. A bad video fails only its own row, which then has no frames, and the
    error in `video_meta`. Of several videos, both cells are lists in their order, and a bad one fails only its own
    item. A row that names no video passes through: with the frames that it may hold, and not as failed.

    Instances can be pickled and hold no resources. Within a process, instances with equal options share one set of
    decoding processes, which end with it.
    """

    def __init__(  # noqa: PLR0913 - the names that users of Ray Data's video example know
        self,
        *,
        sampling: Sampling | Mapping[str, Any] | None = None,
        cache_dir: Path | str | None = None,
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
        allow_roots: Sequence[Path | str] = (),
        read_buckets: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> None:
        """Validate the options. No process is started yet.

        Args:
            sampling: `{"fps": 3}`, `{"num_frames": 8}`, or options of `reelabel.Sampling` with their `sampler`, except
                those that depend on jobs or answers (`escalate_below`, `motion_tasks`, `still_tasks`); None samples
                3 frames per second.
            cache_dir: Folder in which downloaded videos are kept; None keeps none.
            cache_mode: Where a remote video is stored during decoding: `disk`, `memory`, or `auto`, which stores
                nothing if range requests suffice, else uses memory, or disk for large videos.
            output_format: `pil`, a list of images; or `numpy`, one uint8 array of shape (M, H, W, 3).
            channels_first: Arrays have shape (M, 3, H, W) instead.
            timeout_s: Connect and read timeout of requests, in seconds.
            max_concurrency: Maximum number of videos in progress.
            retries: How often a failed request is retried.
            bypass_if_frames_present: Pass through rows whose `video` already holds frames.
            sample_frames_present: Sample the frames that a row's `video` already holds, by a dense sampler, instead of
                its video; they keep their format.
            pack_for_model: Set `video` to (frames, metadata), one item of vLLM's `multi_modal_data["video"]`,
                regardless of `output_format`.
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
            ConfigurationError: An option is invalid.
        """
        self._options = PrepareOptions(
            sampling=sampling,
            cache_dir=cache_dir,
            cache_mode=cache_mode,
            output_format=output_format,
            channels_first=channels_first,
            timeout_s=timeout_s,
            max_concurrency=max_concurrency,
            retries=retries,
            bypass_if_frames_present=bypass_if_frames_present,
            sample_frames_present=sample_frames_present,
            pack_for_model=pack_for_model,
            processes=processes,
            videos_per_process=videos_per_process,
            sandbox=sandbox,
            s3=s3 or S3Options(),
            web=web or WebOptions(),
            allow_roots=allow_roots,
            read_buckets=read_buckets,
            limits=limits or Limits(),
        )

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Prepare the videos of a batch concurrently, each distinct one once.

        Args:
            batch: Columns of equal length by name, as with `batch_format="numpy"`: lists, or arrays of NumPy or Arrow.

        Returns:
            The same columns, plus `video` and `video_meta`.

        Raises:
            ConfigurationError: The batch is not a dictionary of columns of equal length, or no column can name a video.
        """
        worker = get_worker(self._options)
        waits = [self._start(row, worker) for row in to_rows(batch)]
        videos, metas = [], []
        for wait in waits:
            video, meta = wait()
            videos.append(video)
            metas.append(meta)
        return {**batch, VIDEO: object_column(videos), VIDEO_META: object_column(metas)}

    def __enter__(self) -> Self:
        """Return the instance itself."""
        return self

    def __exit__(self, *_raised: object) -> None:
        """Stop the decoding processes."""
        self.close()

    def close(self) -> None:
        """Stop the decoding processes, which otherwise end with this process; another call starts new ones."""
        close_worker(self._options)

    def _start(self, row: Mapping[str, Any], worker: PrepareWorker) -> Callable[[], _Cells]:
        """Start preparing a row; return a function that waits for its cells."""
        if self._options.bypass_if_frames_present and has_frames(row):
            return partial(pass_through_cells, row)
        if self._options.sample_frames_present and has_frames(row):
            return partial(self._sample_again, row)
        try:
            videos, segment = videos_of(row), segment_of(row)
        except VideoRefusedError as error:
            return partial(self._failed_cells, error, source="")
        if videos is None:
            return partial(pass_through_cells, row) if has_frames(row) else self._cells_without_video
        if isinstance(videos, list):
            return partial(self._wait_for_all, [(worker.start(each, segment), each) for each in videos])
        return partial(self._wait, worker.start(videos, segment), videos)

    def _wait_for_all(self, several: Sequence[tuple[Callable[[], SampledFrames], Video]]) -> _Cells:
        videos, metas = zip(*(self._wait(*each) for each in several), strict=True)
        return list(videos), list(metas)

    def _sample_again(self, row: Mapping[str, Any]) -> _Cells:
        videos, metas = row[VIDEO], row.get(VIDEO_META)
        if isinstance(metas, list | np.ndarray):  # of a row with several videos
            each = [
                self._sample_again({VIDEO: video, VIDEO_META: meta}) for video, meta in zip(videos, metas, strict=True)
            ]
            return [video for video, _ in each], [meta for _, meta in each]
        if metas is not None and metas["failed"]:
            return videos, metas
        try:
            return sample_frames(row, self._options.sampling)
        except SamplingRefusedError as error:
            return self._failed_cells(error, source="")

    def _wait(self, prepared: Callable[[], SampledFrames], video: Video) -> _Cells:
        source = "" if isinstance(video, bytes) else redact_uri(video)
        try:
            frames = prepared()
            return self._form.video(frames), frame_metadata(frames, source)
        except Exception as error:  # noqa: BLE001 - any error of one video is reported on its row
            return self._failed_cells(error, source=source)

    def _cells_without_video(self) -> _Cells:
        return self._form.no_video(), no_video_metadata()

    def _failed_cells(self, error: Exception, *, source: str) -> _Cells:
        return self._form.no_video(), failure_metadata(error, source)

    @property
    def _form(self) -> OutputFormat:
        if self._options.pack_for_model:
            return OutputFormat(kind="packed")
        return OutputFormat(kind=self._options.output_format, channels_first=self._options.channels_first)
