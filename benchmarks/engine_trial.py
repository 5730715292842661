"""One engine of a sweep: `python -m benchmarks.engine_trial` reads its requests pickled, and writes an EngineRow."""

from __future__ import annotations

import os
import pickle
import sys
import time
from itertools import count
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.engine import EngineRow
from benchmarks.engine_ways import Apart, InProcess
from benchmarks.noise import QUESTION, noise_video

if TYPE_CHECKING:
    from benchmarks.engine import Requests, Trial
    from benchmarks.engine_ways import EngineWay


def main() -> None:
    """Answer one request."""
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not mix with the answer
    requests, trial, cores = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own process
    if cores and not trial.is_apart:
        os.sched_setaffinity(0, cores)  # before any thread is started
    row = measure(requests, trial, cores=frozenset(cores))
    with answer:
        pickle.dump(row, answer)


def measure(requests: Requests, trial: Trial, *, cores: frozenset[int]) -> EngineRow:
    """Load an engine, render the requests, and have them answered round by round."""
    from tasks.model.arguments import llm_arguments  # noqa: PLC0415 - bound to its cores by then
    from tasks.model.shape import tune  # noqa: PLC0415

    began = time.perf_counter()
    given = llm_arguments(requests.config) | trial.arguments
    arguments = {name: value for name, value in given.items() if value is not None}
    engine = Apart(arguments, cores) if trial.is_apart else InProcess(arguments)
    start_s = time.perf_counter() - began
    prompts = _render(requests)
    numbers = count()
    _round(engine, prompts, numbers)
    measured = [_round(engine, prompts, numbers) for _ in range(requests.rounds)]
    return EngineRow(
        trial=trial,
        requests_per_s=median(len(prompts) / wall_s for wall_s, _ in measured),
        core_ms=median(core_s / len(prompts) * 1e3 for _, core_s in measured),
        start_s=start_s,
        prompt_tokens=len(prompts[0]["prompt_token_ids"]),
        settings=tune(requests.config).values,
    )


def _render(requests: Requests) -> list[dict[str, Any]]:
    """Make vLLM's input of a question on each of many videos."""
    from tasks.model.inputs import InputRenderer  # noqa: PLC0415

    renderer = InputRenderer(requests.config)
    prompts = []
    for seed in range(requests.count):
        video = noise_video(seed, frames=requests.config.num_frames, side_px=requests.side_px)
        prompts.append(renderer.render(renderer.prompt(QUESTION, video, video_hash=str(seed))))
    return prompts


def _round(engine: EngineWay, prompts: list[dict[str, Any]], numbers: count[int]) -> tuple[float, float]:
    """Have every prompt answered; gives seconds by the clock and of the processor."""
    # A name of its own each time, so that no cache knows the video.
    names = [str(next(numbers)) for _ in prompts]
    named = [(name, {**prompt, "mm_hashes": {"video": [name]}}) for name, prompt in zip(names, prompts, strict=True)]
    began, began_core = time.perf_counter(), engine.core_s()
    engine.ask(named)
    return time.perf_counter() - began, engine.core_s() - began_core


if __name__ == "__main__":
    main()
