"""The engine's process with clocks around its parts: `timed_engine.py FILE CONNECTION_FD LIFELINE_FD`.

After each step it appends a line to FILE: a JSON object of the milliseconds by part since the step before. A part does
not count what is within another one.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reelabel_engine.__main__ import import_vllm, main

if TYPE_CHECKING:
    from collections.abc import Callable

    from reelabel_engine.__main__ import Implementation
    from reelabel_engine.protocol import EngineConfig, QuestionRef, QuestionReply


def _find_parts() -> list[tuple[str, type, str]]:
    """Return names of parts, and the methods that are these."""
    from vllm.model_executor.layers.attention import Attention  # noqa: PLC0415 - once the engine has imported vLLM
    from vllm.v1.core.sched.scheduler import Scheduler  # noqa: PLC0415
    from vllm.v1.engine.llm_engine import LLMEngine  # noqa: PLC0415
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner  # noqa: PLC0415 - that for CPUs is one of it

    from reelabel_engine.live.scheduler import LiveScheduler  # noqa: PLC0415

    return [
        ("prompt", LiveScheduler, "_compose"),
        ("vLLM's input", LLMEngine, "add_request"),
        ("scheduler", Scheduler, "schedule"),
        ("positions", GPUModelRunner, "_init_mrope_positions"),
        ("encoder", GPUModelRunner, "_execute_mm_encoder"),
        ("layers", GPUModelRunner, "_model_forward"),
        ("attention", Attention, "forward"),
    ]


class _Clocks:
    """Milliseconds by part."""

    def __init__(self) -> None:
        self.spent_ms: dict[str, float] = defaultdict(float)
        self._within_ms = 0.0  # of the part that is open: what is spent in parts within it

    def around(self, part: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def timed(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever the method takes and returns
            began_s, before_ms, self._within_ms = time.perf_counter(), self._within_ms, 0.0
            try:
                return method(*arguments, **named)
            finally:
                took_ms = (time.perf_counter() - began_s) * 1e3
                self.spent_ms[part] += took_ms - self._within_ms
                self._within_ms = before_ms + took_ms

        return timed


def _import_timed(path: Path, config: EngineConfig) -> Implementation:
    implementation = import_vllm(config)
    from reelabel_engine.engine import Engine  # noqa: PLC0415

    clocks = _Clocks()
    for part, owner, name in _find_parts():
        setattr(owner, name, clocks.around(part, getattr(owner, name)))
    step = Engine.step

    def note_step(engine: Engine) -> list[tuple[QuestionRef, QuestionReply]]:
        replies = step(engine)
        with path.open("a") as file:
            file.write(json.dumps(clocks.spent_ms) + "\n")
        clocks.spent_ms.clear()
        return replies

    setattr(Engine, "step", note_step)  # noqa: B010 - a method
    return implementation


if __name__ == "__main__":
    main(partial(_import_timed, Path(sys.argv.pop(1))))
