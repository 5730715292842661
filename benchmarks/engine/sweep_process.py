"""Process of one candidate of a sweep: read pickled requests from standard input, write a pickled SweepRow."""

from __future__ import annotations

import os
import pickle
import sys
import time
from itertools import count
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.engine.clients import AsyncEngine, SteppedEngine
from benchmarks.engine.noise import QUESTION, noise_video
from benchmarks.engine.sweep import SweepRow

if TYPE_CHECKING:
    from vllm import SamplingParams

    from benchmarks.engine.clients import EngineClient
    from benchmarks.engine.sweep import Candidate, Requests
    from reelabel_engine.prompts import ChoiceTokens


def main() -> None:
    """Measure one candidate."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keep what libraries print out of the output
    requests, candidate, cores = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own process
    if cores and not candidate.is_async:
        os.sched_setaffinity(0, cores)  # before any thread starts
    row = measure(requests, candidate, cores=frozenset(cores))
    with output:
        pickle.dump(row, output)


def measure(requests: Requests, candidate: Candidate, *, cores: frozenset[int]) -> SweepRow:
    """Load an engine, render the requests, and answer them round by round."""
    from reelabel_engine.scoring import scoring_parameters  # noqa: PLC0415 - after binding the cores
    from reelabel_engine.tuning import tune_engine, vllm_arguments  # noqa: PLC0415

    began = time.perf_counter()
    overridden = vllm_arguments(requests.config) | candidate.arguments
    arguments = {name: value for name, value in overridden.items() if value is not None}
    engine = AsyncEngine(arguments, cores) if candidate.is_async else SteppedEngine(arguments)
    start_s = time.perf_counter() - began
    prompts, tokens = render_requests(requests)
    numbers, parameters = count(), scoring_parameters(tokens)
    time_round(engine, prompts, numbers, parameters)
    measured = [time_round(engine, prompts, numbers, parameters) for _ in range(requests.rounds)]
    return SweepRow(
        candidate=candidate,
        requests_per_s=median(len(prompts) / wall_s for wall_s, _ in measured),
        core_ms=median(core_s / len(prompts) * 1e3 for _, core_s in measured),
        start_s=start_s,
        prompt_tokens=len(prompts[0]["prompt_token_ids"]),
        settings=tune_engine(requests.config).values,
    )


def render_requests(requests: Requests) -> tuple[list[dict[str, Any]], ChoiceTokens]:
    """Render a question about each of many videos as input of vLLM; return the tokens of its choices, too."""
    from reelabel_engine.renderer import HashedMedium, InputRenderer  # noqa: PLC0415

    renderer = InputRenderer(requests.config)
    prompts = []
    for seed in range(requests.count):
        video = noise_video(seed, frames=requests.config.num_frames, side_px=requests.side_px)
        prompts.append(renderer.render(renderer.prompt(QUESTION, [HashedMedium(frames=video, hash=str(seed))])))
    return prompts, renderer.tokens(QUESTION)


def time_round(
    engine: EngineClient,
    prompts: list[dict[str, Any]],
    numbers: count[int],
    parameters: SamplingParams,
) -> tuple[float, float]:
    """Answer every prompt; return wall-clock and processor seconds."""
    # A new name each time, so that no cache holds the video.
    names = [str(next(numbers)) for _ in prompts]
    named = [(name, {**prompt, "mm_hashes": {"video": [name]}}) for name, prompt in zip(names, prompts, strict=True)]
    began, began_core = time.perf_counter(), engine.core_s()
    engine.ask(named, parameters)
    return time.perf_counter() - began, engine.core_s() - began_core


if __name__ == "__main__":
    main()
