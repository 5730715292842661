"""Contenders without a flow: extraction alone, and extraction with an engine, without store and database."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from benchmarks.cores import Cores, engine_binding
from benchmarks.pipeline.contender import Timing
from benchmarks.pipeline.workload import warm_up_batch
from reelabel.cores import usable_cores
from reelabel.frames.cache import FrameCache
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.sources.object_store import ObjectStore
from reelabel_engine.protocol import Batch
from tasks.domain import Answer
from tasks.frame_cache.extractor import FrameExtractor
from tasks.model.prompts.prompt import build_question

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.pipeline.workload import Workload
    from infra.settings import StoreSettings
    from reelabel.sampling.options import Sampling
    from reelabel_engine.protocol import Question
    from tasks.model.backend import Reply
    from tasks.model.engine.process import EngineProcess

_BATCH_VIDEOS = 8
_MAX_CONCURRENT_BATCHES = 6
_START_TIMEOUT_S = 1800.0


@dataclass(slots=True, kw_only=True)
class Extractor:
    """Contender that writes the frame files of videos; each video counts as a job.

    Attributes:
        store: Settings of the store, where videos or frame files are on S3.
        root_uri: Parent of the folders of frame files, one per pass.
        processes: Decoding processes; None is one per core, as in a run.
    """

    videos: Sequence[str] = field(repr=False)
    sampling: Sampling
    store: StoreSettings
    root_uri: str
    processes: int | None = None
    _pool: Any = field(default=None, init=False)

    @property
    def width(self) -> int:
        """Videos extracted at once."""
        return self.processes or usable_cores()

    def load(self) -> None:
        self._pool = DecodePool(processes=self.width, timeout_s=60, memory_mib=4096, threads=1)

    def preparer(self, number: int) -> FrameExtractor:
        """Return what extracts the videos of one pass, with an empty cache."""
        objects = ObjectStore(self.store)
        cache = FrameCache(objects, f"{self.root_uri}/{number}")
        return FrameExtractor(objects=objects, cache=cache, pool=self._pool, sampling=self.sampling, limits=Limits())

    def run(self, number: int) -> Timing:
        """Extract every video; sizes and versions are looked up in bulk, as in a run."""
        preparer = self.preparer(number)
        began_s = time.time()
        known = preparer.objects.stat_many(self.videos)
        with ThreadPoolExecutor(self.width) as threads:
            prepared = list(threads.map(lambda video: preparer.prepare(video, known.get(video)), self.videos))
        return Timing(jobs=len(prepared), began_s=began_s, ended_s=time.time())

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()


@dataclass(slots=True, kw_only=True)
class LocalPipeline:
    """Extraction, frame files in a folder, and an engine; several batches are in flight at any time.

    Every pass starts a new engine, so that none answers from its cache.

    Attributes:
        is_warm: Extract all videos before the clock starts, as an earlier run would have.
    """

    workload: Workload
    extractor: Extractor
    log_path: Path
    is_warm: bool = False
    cores: Cores = field(default_factory=Cores)
    _questions: dict[str, list[Question]] = field(default_factory=dict, init=False)

    def load(self) -> None:
        for job in self.workload.jobs:
            self._questions.setdefault(job.video_uri, []).append(build_question(job, self.workload.spec))
        self.extractor.load()

    def run(self, number: int) -> Timing:
        """Ask all questions, and extract all videos before or meanwhile."""
        from tasks.model.engine.process import EngineProcess  # noqa: PLC0415 - not where vLLM itself is

        preparer = self.extractor.preparer(number)
        if self.is_warm:
            with ThreadPoolExecutor(self.extractor.width) as threads:
                list(threads.map(preparer.prepare, self.workload.videos))
        with EngineProcess(self.workload.engine, log_path=self.log_path, start_timeout_s=_START_TIMEOUT_S) as engine:
            assert engine.pid is not None
            with engine_binding(engine.pid, self.cores):
                engine.answer(warm_up_batch(self.workload))
                return self._stream(preparer, engine)

    def close(self) -> None:
        self.extractor.close()

    def _stream(self, preparer: FrameExtractor, engine: EngineProcess) -> Timing:
        videos = self.workload.videos
        groups = [videos[start : start + _BATCH_VIDEOS] for start in range(0, len(videos), _BATCH_VIDEOS)]
        began_s = time.time()
        with (
            ThreadPoolExecutor(self.extractor.width) as extractors,
            ThreadPoolExecutor(_MAX_CONCURRENT_BATCHES) as askers,
        ):
            answered = askers.map(lambda group: engine.answer(self._batch(group, preparer, extractors)), groups)
            answers = [_required(reply) for reply in chain.from_iterable(answered)]
        return Timing(
            jobs=len(answers),
            began_s=began_s,
            ended_s=time.time(),
            labels=tuple(answer.choice_index for answer in answers),
            prompt_tokens=sum(answer.prompt_tokens for answer in answers),
        )

    def _batch(self, videos: Sequence[str], preparer: FrameExtractor, extractors: ThreadPoolExecutor) -> Batch:
        asked = [video.identity for video in extractors.map(preparer.prepare, videos)]
        files = {identity.source_uri: preparer.cache.read(identity) for identity in asked}
        questions = tuple(chain.from_iterable(self._questions[video] for video in videos))
        return Batch(frame_files=files, questions=questions)


def _required(reply: Reply) -> Answer:
    assert isinstance(reply, Answer), f"a question was rejected: {reply.message}"
    return reply
