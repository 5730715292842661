"""Measures an engine alone: reads a pickled task from standard input, and writes its result pickled.

Requests are rendered before the clock starts, each with its own video.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import time
from itertools import count
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.cores import bind, descendants, used_cpu_s
from benchmarks.engine.noise import QUESTION, noise_video

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.engine.sweep import Candidate, Requests
    from reelabel_engine.prompts import ChoiceTokens

    NamedPrompt = tuple[str, dict[str, Any]]  # a request's id, and vLLM's input

WITH, CHOICES_ONLY, TOKEN_ONLY = "with choice_mass", "choices only", "token only, no probabilities"
_WARM_UP_ROUNDS = 2
_CHOSEN = ("max_num_batched_tokens", "max_num_seqs", "kv_cache_memory_bytes", "gpu_memory_utilization")


class Client(Protocol):
    """A client of vLLM: answers requests, and reports the processor seconds used so far."""

    def ask(self, prompts: Sequence[NamedPrompt], parameters: Any) -> None:  # noqa: ANN401 - vLLM's SamplingParams
        """Answer all prompts."""

    def core_s(self) -> float:
        """Return the processor seconds used so far."""


class SteppedEngine:
    """An engine in this process, stepped by hand."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        """Load the engine; takes seconds."""
        from vllm import LLM  # noqa: PLC0415 - after binding the cores

        self._engine = LLM(**arguments).llm_engine

    def ask(self, prompts: Sequence[NamedPrompt], parameters: Any) -> None:  # noqa: ANN401
        """Answer all prompts."""
        for name, prompt in prompts:
            self._engine.add_request(name, prompt, parameters)
        while self._engine.has_unfinished_requests():
            self._engine.step()

    def core_s(self) -> float:
        """Return the processor seconds used so far."""
        return time.process_time()


class AsyncEngine:
    """AsyncLLM, as in vLLM's server: each request is sent to an engine in another process, which is bound to cores."""

    def __init__(self, arguments: dict[str, Any], cores: frozenset[int]) -> None:
        """Load the engine; takes seconds."""
        self._loop = asyncio.Runner()
        self._engine = self._loop.run(self._load(arguments))
        for child in descendants(os.getpid()):
            bind(child, cores)

    def ask(self, prompts: Sequence[NamedPrompt], parameters: Any) -> None:  # noqa: ANN401
        """Answer all prompts."""
        self._loop.run(self._ask_all(prompts, parameters))

    async def _ask_all(self, prompts: Sequence[NamedPrompt], parameters: Any) -> None:  # noqa: ANN401
        async def ask_one(name: str, prompt: dict[str, Any]) -> None:
            async for _ in self._engine.generate(prompt, parameters, name):
                pass

        await asyncio.gather(*(ask_one(name, prompt) for name, prompt in prompts))

    def core_s(self) -> float:
        """Return the processor seconds used so far."""
        return time.process_time() + used_cpu_s(descendants(os.getpid()))

    async def _load(self, arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - vLLM's
        from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: PLC0415 - as above
        from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415

        return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))


def measure_candidate(requests: Requests, candidate: Candidate, cores: frozenset[int]) -> dict[str, Any]:
    """Load an engine, render the requests, and answer them round by round."""
    if cores and not candidate.is_async:
        os.sched_setaffinity(0, cores)  # before any thread starts
    from reelabel_engine.arguments import vllm_arguments  # noqa: PLC0415 - after binding the cores
    from reelabel_engine.vllm_api import scoring_parameters  # noqa: PLC0415

    began = time.perf_counter()
    overridden = vllm_arguments(requests.config) | candidate.arguments
    arguments = {name: value for name, value in overridden.items() if value is not None}
    engine = AsyncEngine(arguments, cores) if candidate.is_async else SteppedEngine(arguments)
    start_s = time.perf_counter() - began
    prompts, tokens = _render(requests)
    numbers, parameters = count(), scoring_parameters(tokens)
    _time_round(engine, prompts, numbers, parameters)
    measured = [_time_round(engine, prompts, numbers, parameters) for _ in range(requests.rounds)]
    return {
        "name": candidate.name,
        "requests_per_s": median(len(prompts) / wall_s for wall_s, _ in measured),
        "core_ms": median(core_s / len(prompts) * 1e3 for _, core_s in measured),
        "start_s": start_s,
        "prompt_tokens": len(prompts[0]["prompt_token_ids"]),
        "settings": ", ".join(f"{name} {arguments[name]}" for name in _CHOSEN if name in arguments),
    }


def measure_scoring(requests: Requests) -> list[dict[str, Any]]:
    """Ask one engine with the probability of all choices together, without it, and for a token alone, in turns."""
    from vllm import SamplingParams  # noqa: PLC0415 - slow to import

    from reelabel_engine.arguments import vllm_arguments  # noqa: PLC0415
    from reelabel_engine.vllm_api import scoring_parameters  # noqa: PLC0415

    engine = SteppedEngine(vllm_arguments(requests.config))
    prompts, tokens = _render(requests)
    allowed = sorted(set().union(*tokens))
    only = {"max_tokens": 1, "temperature": 0, "detokenize": False, "allowed_token_ids": allowed}
    ways = {
        WITH: scoring_parameters(tokens),
        CHOICES_ONLY: SamplingParams(**only, logprobs=len(allowed)),
        TOKEN_ONLY: SamplingParams(**only),
    }
    numbers = count()
    turns = [
        {name: _time_round(engine, prompts, numbers, parameters) for name, parameters in ways.items()}
        for _ in range(_WARM_UP_ROUNDS + requests.rounds)
    ][_WARM_UP_ROUNDS:]
    return [
        {
            "name": name,
            "request_ms": median(turn[name][0] for turn in turns) / requests.count * 1e3,
            "core_ms": median(turn[name][1] for turn in turns) / requests.count * 1e3,
        }
        for name in ways
    ]


def _render(requests: Requests) -> tuple[list[dict[str, Any]], ChoiceTokens]:
    """Render a question about each of many videos as input of vLLM; return the tokens of its choices, too."""
    from reelabel_engine.renderer import HashedMedium, InputRenderer  # noqa: PLC0415

    renderer = InputRenderer(requests.config)
    prompts = []
    for seed in range(requests.count):
        video = noise_video(seed, frames=requests.frames, side_px=requests.side_px)
        prompts.append(renderer.render(renderer.prompt(QUESTION, [HashedMedium(frames=video, hash=str(seed))])))
    return prompts, renderer.tokens(QUESTION)


def _time_round(
    engine: Client,
    prompts: list[dict[str, Any]],
    numbers: count[int],
    parameters: Any,  # noqa: ANN401 - vLLM's SamplingParams
) -> tuple[float, float]:
    """Answer every prompt; return wall-clock and processor seconds."""
    # A new name each time, so that no cache holds the video.
    names = [str(next(numbers)) for _ in prompts]
    named = [(name, {**prompt, "mm_hashes": {"video": [name]}}) for name, prompt in zip(names, prompts, strict=True)]
    began, began_core = time.perf_counter(), engine.core_s()
    engine.ask(named, parameters)
    return time.perf_counter() - began, engine.core_s() - began_core


if __name__ == "__main__":
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keep what libraries print out of the output
    task, *arguments = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own process
    measure: Any = {"candidate": measure_candidate, "scoring": measure_scoring}[task]
    result = measure(*arguments)
    with output:
        pickle.dump(result, output)
