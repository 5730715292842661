"""Two clients of vLLM: an engine stepped in this process, and AsyncLLM with an engine in its own process."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.cores import bind, descendants

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm import SamplingParams

    NamedPrompt = tuple[str, dict[str, Any]]  # a request's id, and vLLM's input

_TIMES = slice(11, 13)  # fields of /proc/PID/stat after the name: ticks in user mode and in the kernel


class EngineClient(Protocol):
    """Answers each request with one token."""

    def ask(self, prompts: Sequence[NamedPrompt], parameters: SamplingParams) -> None:
        """Answer all prompts."""

    def core_s(self) -> float:
        """Return the processor seconds used so far."""


class SteppedEngine:
    """An engine in this process, stepped by hand."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        """Load the engine; takes seconds."""
        from vllm import LLM  # noqa: PLC0415 - after binding the cores

        self._engine = LLM(**arguments).llm_engine

    def ask(self, prompts: Sequence[NamedPrompt], parameters: SamplingParams) -> None:
        """Answer all prompts."""
        for name, prompt in prompts:
            self._engine.add_request(name, prompt, parameters)
        while self._engine.has_unfinished_requests():
            self._engine.step()

    def core_s(self) -> float:
        """Return the processor seconds used so far."""
        return time.process_time()


class AsyncEngine:
    """AsyncLLM, as in vLLM's server: each request is sent to an engine in another process."""

    def __init__(self, arguments: dict[str, Any], cores: frozenset[int]) -> None:
        """Load the engine and bind its process to `cores`; takes seconds."""
        self._loop = asyncio.Runner()
        self._engine = self._loop.run(_load_async(arguments))
        for child in descendants(os.getpid()):
            bind(child, cores)

    def ask(self, prompts: Sequence[NamedPrompt], parameters: SamplingParams) -> None:
        """Answer all prompts."""
        self._loop.run(self._ask(prompts, parameters))

    async def _ask(self, prompts: Sequence[NamedPrompt], parameters: SamplingParams) -> None:
        await asyncio.gather(*(self._ask_one(name, prompt, parameters) for name, prompt in prompts))

    async def _ask_one(self, name: str, prompt: dict[str, Any], parameters: SamplingParams) -> None:
        async for _ in self._engine.generate(prompt, parameters, name):
            pass

    def core_s(self) -> float:
        """Return the processor seconds used so far."""
        return time.process_time() + sum(map(_core_s, descendants(os.getpid())))


async def _load_async(arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - vLLM's
    from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: PLC0415 - as above
    from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415

    return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))


def _core_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[_TIMES])) / os.sysconf("SC_CLK_TCK")
