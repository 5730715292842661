"""The engine's process, which notes something in a file: `watched_engine.py WHAT FILE CONNECTION_FD LIFELINE_FD`.

`collections`: after each collection of garbage of some length, a line: when it began and ended, in seconds by the
monotonic clock; its child processes do the same. `parts`: after each step, a JSON object of the milliseconds by part
since the step before; a part does not count what is within another one.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections import defaultdict
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reelabel_engine.__main__ import import_vllm, main

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reelabel_engine.__main__ import Implementation
    from reelabel_engine.protocol import EngineConfig, QuestionReply, RequestRef

_LEAST_S = 0.001


def note_collections(path: Path, *, least_s: float = _LEAST_S) -> None:
    """Append the collections of this process to a file, from now on."""
    began_s = 0.0

    def note(phase: str, _info: Mapping[str, Any]) -> None:
        nonlocal began_s
        now_s = time.monotonic()
        if phase == "start":
            began_s = now_s
        elif now_s - began_s >= least_s:
            with path.open("a") as file:
                file.write(f"{began_s} {now_s}\n")

    gc.callbacks.append(note)


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

    def note_step(engine: Engine) -> list[tuple[RequestRef, QuestionReply]]:
        replies = step(engine)
        with path.open("a") as file:
            file.write(json.dumps(clocks.spent_ms) + "\n")
        clocks.spent_ms.clear()
        return replies

    setattr(Engine, "step", note_step)  # noqa: B010 - a method
    return implementation


if __name__ == "__main__":
    what, file = sys.argv.pop(1), Path(sys.argv.pop(1))
    if what == "collections":
        note_collections(file)
        main()
    else:
        main(partial(_import_timed, file))
