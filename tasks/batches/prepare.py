"""The preparation of videos as a callable on batches, for Ray Data's `map_batches` or anything that moves columns."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from infra.errors import VideoRefusedError
from infra.settings import Settings, load_settings
from infra.uri import show_uri
from tasks.batches.cells import Form, cells_as_they_are, column, meta_of, meta_of_failure
from tasks.batches.options import Options
from tasks.batches.rows import VIDEO, VIDEO_META, has_frames, rows_of, segment_of, source_of
from tasks.batches.worker import close_worker, worker_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future
    from pathlib import Path
    from types import TracebackType

    from tasks.batches.worker import Worker
    from tasks.domain import Sampling
    from tasks.video.keyframes import Keyframes

    _Cells = tuple[Any, dict[str, Any]]


class PrepareVideo:
    """Replaces each row's video by the frames that a model sees.

    A row names its video in `video_uri`, `video_url` or OpenAI chat `messages`; where `start_s` or `end_s` is
    given, it is about that part of it alone. Two columns are added: `video`, the frames; and `video_meta`,
    with `video_size` (width, height), `video_num_frames`, `frame_timestamps` (seconds of the whole video),
    `source`, `failed`, `error_type` and `error`. A bad video fails its own row: no frames, and why.

    It pickles and holds nothing itself: equal ones share one set of decoding processes per process,
    which end with it.
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
        pack_for_model: bool = False,
        processes: int = 1,
        settings: Settings | None = None,
    ) -> None:
        """Check and keep the options; nothing is started yet.

        Args:
            sampling: `{"fps": 3}`, `{"num_frames": 8}`, or options of `tasks.domain.Sampling` with their
                `sampler`, but for those that go by jobs and answers (`escalate_below`, `motion_tasks`, `still_tasks`);
                None is 3 frames a second.
            cache_dir: Folder that keeps videos copied to disk; None keeps none.
            cache_mode: Where a remote video stands while it is decoded: `disk`, `memory`, or by `auto`
                nowhere if parts of it are enough, else in memory, or on disk if it is large.
            output_format: `pil`, a list of images; or `numpy`, one array (M, H, W, 3) of uint8.
            channels_first: That array is (M, 3, H, W).
            timeout_s: Seconds that a server may keep silent.
            max_concurrency: Videos on their way at once.
            retries: Further tries of a request that failed.
            bypass_if_frames_present: Leave rows alone whose `video` holds frames already.
            pack_for_model: `video` is (frames, metadata), one item of vLLM's `multi_modal_data["video"]`,
                whatever `output_format`.
            processes: Decoding processes; one for each CPU that Ray reserves by `num_cpus`.
            settings: The object store, which hosts and folders may be read, and limits; None reads
                `REELABEL_*` variables and `reelabel.toml`.

        Raises:
            ConfigurationError: An option is out of bounds.
        """
        self._options = Options(
            sampling=sampling,
            cache_dir=cache_dir,
            cache_mode=cache_mode,
            output_format=output_format,
            channels_first=channels_first,
            timeout_s=timeout_s,
            max_concurrency=max_concurrency,
            retries=retries,
            bypass_if_frames_present=bypass_if_frames_present,
            pack_for_model=pack_for_model,
            processes=processes,
            settings=settings or load_settings(),
        )

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Prepare the videos of a batch, several at once and each once.

        Args:
            batch: Columns of equal length by name, as `batch_format="numpy"` gives them.

        Returns:
            The same columns, and `video` and `video_meta`.

        Raises:
            ConfigurationError: It is no such batch, or no column of it can name a video.
        """
        worker = worker_of(self._options)
        endings = [self._begin(row, worker) for row in rows_of(batch)]
        videos, metas = [], []
        for end in endings:
            video, meta = end()
            videos.append(video)
            metas.append(meta)
        return {**batch, VIDEO: column(videos), VIDEO_META: column(metas)}

    def __enter__(self) -> Self:
        """Give the object itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End this process's decoding processes."""
        self.close()

    def close(self) -> None:
        """End this process's decoding processes, which would else end with it; another call starts new ones."""
        close_worker(self._options)

    def _begin(self, row: Mapping[str, Any], worker: Worker) -> Callable[[], _Cells]:
        """Begin a row, and give what waits for its end."""
        if self._options.bypass_if_frames_present and has_frames(row):
            return partial(cells_as_they_are, row)
        try:
            uri, segment = source_of(row), segment_of(row)
        except VideoRefusedError as error:
            return partial(self._fail, error, source="")
        return partial(self._end, worker.start(uri, segment), uri)

    def _end(self, frames: Future[Keyframes], uri: str) -> _Cells:
        source = show_uri(uri)
        try:
            return self._form.video(frames.result()), meta_of(frames.result(), source)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one video is told on its row
            return self._fail(error, source=source)

    def _fail(self, error: Exception, *, source: str) -> _Cells:
        return self._form.no_video(), meta_of_failure(error, source)

    @property
    def _form(self) -> Form:
        if self._options.pack_for_model:
            return Form(kind="packed")
        return Form(kind=self._options.output_format, channels_first=self._options.channels_first)
