"""Contender: our pipeline without scheduler, store and database."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from benchmarks.cores import Cores, engine_binding
from benchmarks.pipeline.contender import Timing
from benchmarks.pipeline.workload import warm_up_batch
from reelabel_engine.protocol import Batch
from tasks.domain import Answer
from tasks.model.engine.process import EngineProcess
from tasks.model.prompts.prompt import build_question

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.pipeline.extraction import Extractor
    from benchmarks.pipeline.workload import Workload
    from reelabel.frames.extractor import FrameExtractor
    from reelabel_engine.protocol import Question
    from tasks.model.backend import Reply

_BATCH_VIDEOS = 8
_MAX_CONCURRENT_BATCHES = 6
_START_TIMEOUT_S = 1800.0


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
    _stack: ExitStack = field(default_factory=ExitStack, init=False)
    _questions: dict[str, list[Question]] = field(default_factory=dict, init=False)

    def load(self) -> None:
        """Start the decoding processes."""
        for job in self.workload.jobs:
            self._questions.setdefault(job.video_uri, []).append(build_question(job, self.workload.spec))
        self._stack.callback(self.extractor.close)
        self.extractor.load()

    def run(self, number: int) -> Timing:
        """Ask all questions, and extract all videos before or meanwhile."""
        preparer = self.extractor.preparer(number)
        if self.is_warm:
            with ThreadPoolExecutor(self.extractor.width) as threads:
                list(threads.map(preparer.prepare, self.workload.videos))
        engine = EngineProcess(self.workload.engine, log_path=self.log_path, start_timeout_s=_START_TIMEOUT_S)
        with engine:
            assert engine.pid is not None
            with engine_binding(engine.pid, self.cores):
                engine.answer(warm_up_batch(self.workload))
                return self._stream(preparer, self.workload.videos, engine)

    def close(self) -> None:
        """Stop the decoding processes."""
        self._stack.close()

    def _stream(self, preparer: FrameExtractor, videos: Sequence[str], engine: EngineProcess) -> Timing:
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
        files = {identity.source_uri: preparer.cache.read(identity).data for identity in asked}
        questions = tuple(chain.from_iterable(self._questions[video] for video in videos))
        return Batch(frame_files=files, questions=questions)


def _required(reply: Reply) -> Answer:
    assert isinstance(reply, Answer), f"a question was rejected: {reply.message}"
    return reply
