"""What the probability of all choices together costs: an engine is asked with and without it, round by round.

`python -m benchmarks.engine.choice_mass` is the engine's process: it reads pickled requests from standard input, and
writes the seconds of each round as JSON.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from itertools import count
from statistics import median
from typing import TYPE_CHECKING, Any

from reelabel_engine.environment import engine_environment, find_python
from reelabel_engine.errors import ModelError

if TYPE_CHECKING:
    from benchmarks.engine.sweep import Requests

WITH, CHOICES_ONLY, TOKEN_ONLY = "with choice_mass", "choices only", "token only, no probabilities"
_TIMEOUT_S = 1800
_WARM_UP_ROUNDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringRow:
    """One way to score an answer.

    Attributes:
        request_ms: Median milliseconds per request.
        core_ms: Median processor milliseconds per request.
    """

    name: str
    request_ms: float
    core_ms: float


def measure_choice_mass(requests: Requests) -> list[ScoringRow]:
    """Ask one engine in three ways, interleaved.

    Raises:
        ModelError: The engine does not load.
    """
    ended = subprocess.run(  # noqa: S603 - our own module
        [find_python().path, "-P", "-m", "benchmarks.engine.choice_mass"],
        input=pickle.dumps(requests),
        capture_output=True,
        env=engine_environment(requests.config),
        timeout=_TIMEOUT_S,
        check=False,
    )
    if ended.returncode:
        raise ModelError((ended.stderr.decode(errors="replace").strip().splitlines() or ["the engine died"])[-1])
    return [
        ScoringRow(
            name=name,
            request_ms=median(wall_s for wall_s, _ in rounds) / requests.count * 1e3,
            core_ms=median(core_s for _, core_s in rounds) / requests.count * 1e3,
        )
        for name, rounds in json.loads(ended.stdout).items()
    ]


def main() -> None:
    """Measure each way in turn."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keep what libraries print out of the output
    requests: Requests = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own process
    from benchmarks.engine.clients import SteppedEngine  # noqa: PLC0415 - vLLM's
    from benchmarks.engine.sweep_process import render_requests, time_round  # noqa: PLC0415
    from reelabel_engine.tuning import vllm_arguments  # noqa: PLC0415

    engine = SteppedEngine(vllm_arguments(requests.config))
    prompts, tokens = render_requests(requests)
    ways, numbers = _ways(tokens), count()
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(_WARM_UP_ROUNDS + requests.rounds):
        for name, parameters in ways.items():
            took = time_round(engine, prompts, numbers, parameters)
            if number >= _WARM_UP_ROUNDS:
                rounds[name].append(took)
    with output:
        json.dump(rounds, output)


def _ways(tokens: Any) -> dict[str, Any]:  # noqa: ANN401 - of vLLM
    from vllm import SamplingParams  # noqa: PLC0415

    from reelabel_engine.scoring import scoring_parameters  # noqa: PLC0415

    allowed = sorted(set().union(*tokens))
    only = {"max_tokens": 1, "temperature": 0, "detokenize": False, "allowed_token_ids": allowed}
    return {
        WITH: scoring_parameters(tokens),
        CHOICES_ONLY: SamplingParams(**only, logprobs=len(allowed)),
        TOKEN_ONLY: SamplingParams(**only),
    }


if __name__ == "__main__":
    main()
