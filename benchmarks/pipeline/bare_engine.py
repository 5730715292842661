"""Contender, and ceiling of the others: an engine fed with preprocessed requests from memory."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import count, cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.pipeline.contender import Timing
from reelabel.extract import extract_local
from reelabel.integrations.vllm.video_input import video_input
from reelabel.limits import Limits
from tasks.model.prompts.prompt import build_question

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.pipeline.workload import Workload
    from reelabel_engine.renderer import InputRenderer
    from tasks.domain import Job

_Request = tuple[str, Any, Any]  # the video, vLLM's input, vLLM's sampling parameters


@dataclass(slots=True, kw_only=True)
class BareEngine:
    """vLLM's engine in this process.

    Attributes:
        arguments: Arguments of vLLM that override ours.
        max_in_memory: Requests to render; further jobs reuse them under other names. None renders all.
    """

    workload: Workload
    arguments: Mapping[str, Any] = field(default_factory=dict)
    max_in_memory: int | None = None
    _llm: Any = field(default=None, init=False)
    _requests: list[_Request] = field(default_factory=list, init=False)
    _ids: Any = field(default_factory=count, init=False)

    def load(self) -> None:
        """Load the model and render the requests."""
        from vllm import LLM  # noqa: PLC0415 - imported in the contender's own process

        from reelabel_engine.renderer import InputRenderer  # noqa: PLC0415
        from reelabel_engine.tuning import vllm_arguments  # noqa: PLC0415

        self._llm = LLM(**{**vllm_arguments(self.workload.engine), "mm_processor_cache_gb": 0, **self.arguments})
        renderer = InputRenderer(self.workload.engine)
        self._answer(0, list(self._render(self.workload.warm_up, renderer)))
        self._requests = list(self._render(self.workload.jobs[: self.max_in_memory], renderer))

    def _render(self, jobs: Sequence[Job], renderer: InputRenderer) -> Iterator[_Request]:
        from reelabel_engine.renderer import HashedMedium  # noqa: PLC0415 - imported in the contender's own process
        from reelabel_engine.scoring import scoring_parameters  # noqa: PLC0415

        videos = {path: self._video(path) for path in dict.fromkeys(job.video_uri for job in jobs)}
        for job in jobs:
            question = build_question(job, self.workload.spec)
            prompt = renderer.render(
                renderer.prompt(question, [HashedMedium(frames=videos[job.video_uri], hash=job.video_uri)])
            )
            yield job.video_uri, prompt, scoring_parameters(renderer.tokens(question))

    def run(self, number: int) -> Timing:
        """Add all requests to the engine, and step it until they are answered."""
        return self._answer(number, list(islice(cycle(self._requests), len(self.workload.jobs))))

    def close(self) -> None:
        """Stop the engine."""
        self._llm = None

    def _video(self, path: str) -> tuple[Any, dict[str, Any]]:
        keyframes = extract_local(Path(path), sampling=self.workload.spec.sampling, limits=Limits())
        return video_input(keyframes)

    def _answer(self, number: int, requests: Sequence[_Request]) -> Timing:
        engine = self._llm.llm_engine
        began_s = time.time()
        for place, (video, prompt, parameters) in enumerate(requests):
            # A new name for each pass and reuse, so that no cache holds the video.
            named = {**prompt, "mm_hashes": {"video": [f"{number} {place // max(1, len(self._requests))} {video}"]}}
            engine.add_request(str(next(self._ids)), named, parameters)
        tokens = jobs = 0
        while engine.has_unfinished_requests():
            for output in engine.step():
                jobs += output.finished
                tokens += len(output.prompt_token_ids)
        return Timing(jobs=jobs, began_s=began_s, ended_s=time.time(), prompt_tokens=tokens)
