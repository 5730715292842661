"""Contenders with vLLM in a separate process: the bare engine, which is the ceiling, and `LLM.chat`."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from itertools import count, cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cores import Cores, bind, descendants
from benchmarks.pipeline.contender import Timing
from reelabel.extract import extract_local
from reelabel.integrations.vllm.video_input import video_input
from reelabel.options import Limits
from reelabel_engine.prompts import choice_tokens, score_choices
from tasks.model.prompts.prompt import build_question

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.pipeline.workload import Workload
    from reelabel_engine.protocol import Question
    from reelabel_engine.renderer import InputRenderer
    from tasks.domain import Job

    _Request = tuple[str, Any, Any]  # the video, vLLM's input, vLLM's sampling parameters


@dataclass(slots=True, kw_only=True)
class BareEngine:
    """vLLM's engine, fed with preprocessed requests from memory.

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
        from vllm import LLM  # noqa: PLC0415 - imported in the contender's own process

        from reelabel_engine.arguments import vllm_arguments  # noqa: PLC0415
        from reelabel_engine.renderer import InputRenderer  # noqa: PLC0415

        self._llm = LLM(**{**vllm_arguments(self.workload.engine), "mm_processor_cache_gb": 0, **self.arguments})
        renderer = InputRenderer(self.workload.engine)
        self._answer(0, list(self._render(self.workload.warm_up, renderer)))
        self._requests = list(self._render(self.workload.jobs[: self.max_in_memory], renderer))

    def run(self, number: int) -> Timing:
        """Add all requests to the engine, and step it until they are answered."""
        return self._answer(number, list(islice(cycle(self._requests), len(self.workload.jobs))))

    def close(self) -> None:
        self._llm = None

    def _render(self, jobs: Sequence[Job], renderer: InputRenderer) -> Iterator[_Request]:
        from reelabel_engine.renderer import HashedMedium  # noqa: PLC0415 - imported in the contender's own process
        from reelabel_engine.vllm_api import scoring_parameters  # noqa: PLC0415

        sampling = self.workload.spec.sampling
        videos = {
            path: video_input(extract_local(Path(path), sampling=sampling, limits=Limits()))
            for path in dict.fromkeys(job.video_uri for job in jobs)
        }
        for job in jobs:
            question = build_question(job, self.workload.spec)
            medium = HashedMedium(frames=videos[job.video_uri], hash=job.video_uri)
            prompt = renderer.render(renderer.prompt(question, [medium]))
            yield job.video_uri, prompt, scoring_parameters(renderer.tokens(question))

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


@dataclass(slots=True, kw_only=True)
class LlmChat:
    """vLLM's `LLM.chat` with the URLs of the videos, as a user would write it; its engine is a separate process.

    Attributes:
        loader: vLLM's name of the video loader.
        urls: URLs of the clips, by path; other clips are read from their paths.
        max_jobs: Ask only this many of the jobs; None asks all.
    """

    workload: Workload
    loader: str
    urls: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_jobs: int | None = None
    cores: Cores = field(default_factory=Cores)
    _llm: Any = field(default=None, init=False)

    def load(self) -> None:
        """Load the model, and bind the engine's process to its cores."""
        from vllm import LLM  # noqa: PLC0415 - imported in the contender's own process

        from reelabel.integrations.vllm.plugin import register  # noqa: PLC0415
        from reelabel_engine.arguments import vllm_arguments  # noqa: PLC0415

        register()  # vLLM registers installed plugins only
        sampling = self.workload.spec.sampling
        loading = {"video_backend": self.loader, "num_frames": sampling.num_frames}
        if self.loader == "pyav_keyframes":
            loading |= {"size_multiple_px": sampling.size_multiple_px, "max_pixels": sampling.max_pixels}
        self._llm = LLM(
            **vllm_arguments(self.workload.engine),
            allowed_local_media_path=str(Path(self.workload.videos[0]).parent),
            media_io_kwargs={"video": loading},
        )
        for child in descendants(os.getpid()):
            bind(child, self.cores.engine)
        self._ask(self.workload.warm_up)

    def run(self, number: int) -> Timing:  # noqa: ARG002 - caches are reset instead
        return self._ask(self.workload.jobs[: self.max_jobs])

    def close(self) -> None:
        self._llm = None

    def _ask(self, jobs: Sequence[Job]) -> Timing:
        from reelabel_engine.vllm_api import scoring_parameters  # noqa: PLC0415 - imported in the contender's own process

        # Otherwise the next pass would find its videos preprocessed or its prompts cached.
        self._llm.reset_mm_cache()
        self._llm.reset_prefix_cache()
        self._llm.llm_engine.reset_encoder_cache()
        began_s = time.time()
        questions = [build_question(job, self.workload.spec) for job in jobs]
        tokens = [self._tokens(question) for question in questions]
        messages = [self._messages(question) for question in questions]
        outputs = self._llm.chat(messages, [scoring_parameters(each) for each in tokens], use_tqdm=False)
        return Timing(
            jobs=len(outputs),
            labels=tuple(_label(output, each) for output, each in zip(outputs, tokens, strict=True)),
            began_s=began_s,
            ended_s=time.time(),
            prompt_tokens=sum(len(output.prompt_token_ids) for output in outputs),
        )

    def _messages(self, question: Question) -> list[dict[str, Any]]:
        path = question.video_id
        video = {"type": "video_url", "video_url": {"url": self.urls.get(path) or Path(path).as_uri()}}
        return [{"role": "user", "content": [video, {"type": "text", "text": question.text}]}]

    def _tokens(self, question: Question) -> tuple[frozenset[int], ...]:
        tokenizer = self._llm.get_tokenizer()
        return choice_tokens(
            question.choices,
            scoring=question.scoring,
            encode=lambda text: tokenizer.encode(text, add_special_tokens=False),
        )


def _label(output: Any, tokens: tuple[frozenset[int], ...]) -> int:  # noqa: ANN401 - vLLM's RequestOutput
    logprobs = {token: entry.logprob for token, entry in output.outputs[0].logprobs[0].items()}
    probabilities = score_choices(tokens, logprobs).probabilities
    return max(range(len(probabilities)), key=probabilities.__getitem__)
