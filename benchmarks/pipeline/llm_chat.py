"""Contender: vLLM's `LLM.chat` with the URLs of the videos, as a user would write it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cores import Cores, bind, descendants
from benchmarks.pipeline.contender import Timing
from reelabel_engine.prompts import choice_tokens, score_choices
from tasks.model.prompts.prompt import build_question

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.pipeline.workload import Workload
    from reelabel_engine.protocol import Question
    from tasks.domain import Job


@dataclass(slots=True, kw_only=True)
class LlmChat:
    """vLLM with its engine in a separate process, which is its default.

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
        from reelabel_engine.tuning import vllm_arguments  # noqa: PLC0415

        register()  # vLLM registers installed plugins only
        self._llm = LLM(
            **vllm_arguments(self.workload.engine),
            allowed_local_media_path=str(Path(self.workload.videos[0]).parent),
            media_io_kwargs={"video": self._loading()},
        )
        for child in descendants(os.getpid()):
            bind(child, self.cores.engine)
        self._ask(self.workload.warm_up)

    def run(self, number: int) -> Timing:  # noqa: ARG002 - caches are reset instead
        """Ask all questions in one call."""
        return self._ask(self.workload.jobs[: self.max_jobs])

    def close(self) -> None:
        """Stop the engine."""
        self._llm = None

    def _loading(self) -> dict[str, Any]:
        sampling = self.workload.spec.sampling
        options = {"video_backend": self.loader, "num_frames": sampling.num_frames}
        if self.loader != "pyav_keyframes":
            return options
        return options | {"size_multiple_px": sampling.size_multiple_px, "max_pixels": sampling.max_pixels}

    def _ask(self, jobs: Sequence[Job]) -> Timing:
        from reelabel_engine.scoring import scoring_parameters  # noqa: PLC0415 - imported in the contender's own process

        # Otherwise the next pass would find its videos preprocessed or its prompts cached.
        self._llm.reset_mm_cache()
        self._llm.reset_prefix_cache()
        self._llm.llm_engine.reset_encoder_cache()
        began_s = time.time()
        questions = [build_question(job, self.workload.spec) for job in jobs]
        tokens = [self._tokens(question) for question in questions]
        outputs = self._llm.chat(
            [self._messages(question) for question in questions],
            [scoring_parameters(each) for each in tokens],
            use_tqdm=False,
        )
        labels = tuple(_label(output, each) for output, each in zip(outputs, tokens, strict=True))
        return Timing(
            jobs=len(labels),
            began_s=began_s,
            ended_s=time.time(),
            labels=labels,
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
