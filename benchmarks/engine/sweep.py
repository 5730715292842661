"""Requests per second of the engine alone, by its settings.

Requests are rendered in advance, each with its own video, so that the fastest settings are the ceiling of any pipeline
that ends in such an engine.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reelabel_engine.devices import visible_gpus
from reelabel_engine.environment import engine_environment, find_python
from reelabel_engine.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from reelabel_engine.protocol import EngineConfig

CHOSEN, OWN = "as chosen", "vLLM's own"
_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 * 1024**2), "MALLOC_TRIM_THRESHOLD_": str(4 * 1024**3)}
_TIMEOUT_S = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Requests that every candidate answers.

    Attributes:
        config: The model, its number of frames, and settings that all candidates share.
        count: Requests per round.
        side_px: Side of the square frames.
        rounds: Measured rounds; one warm-up round precedes them.
    """

    config: EngineConfig
    count: int
    side_px: int
    rounds: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Settings to measure.

    Attributes:
        name: Label in the report.
        arguments: Arguments of vLLM that override the chosen ones.
        environment: Environment variables of the process.
        is_async: Whether to use AsyncLLM, whose engine is a separate process on the same cores; the client has the
            others.
    """

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    is_async: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """Result of one candidate.

    Attributes:
        requests_per_s: Median of the rounds.
        core_ms: Median processor milliseconds per request, which other load on the machine hardly affects.
        start_s: Seconds from the start of the process to the loaded model.
        prompt_tokens: Tokens of one request.
        settings: Summary of the chosen settings.
    """

    candidate: Candidate
    requests_per_s: float
    core_ms: float
    start_s: float
    prompt_tokens: int
    settings: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Results of all candidates.

    Attributes:
        rows: Candidates that ran; at least one.
        failures: Error messages of the others, by name.
    """

    rows: tuple[SweepRow, ...]
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def best(self) -> SweepRow:
        """The candidate with the most requests per second."""
        return max(self.rows, key=lambda row: row.requests_per_s)


def candidates(*, is_cuda: bool) -> tuple[Candidate, ...]:
    """Return the settings that may matter.

    The chosen settings come first and last: smaller differences than between those two are noise.
    """
    again = Candidate(name="as chosen, at the end")
    common = (
        Candidate(name=CHOSEN),
        Candidate(name=OWN, arguments={"max_num_seqs": None, "max_num_batched_tokens": None, "block_size": None}),
        Candidate(name="no prefix cache", arguments={"enable_prefix_caching": False}),
        Candidate(
            name="AsyncLLM, engine in its own process",
            environment={"VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
            is_async=True,
        ),
    )
    if is_cuda:
        steps = (_step(tokens, 1024) for tokens in (4096, 8192, 16_384, 32_768))
        eager = Candidate(name="no graphs, no compilation", arguments={"enforce_eager": True})
        graphs = Candidate(name="graphs for decoding, too", arguments={"compilation_config": {}})
        return (*common, *steps, eager, graphs, again)
    return (
        *common,
        _step(128, 1),
        *(_step(8192, prompts) for prompts in (1, 4, 16, 64)),
        _step(512, 64),
        Candidate(name="blocks of 128 tokens", arguments={"block_size": 128}),
        Candidate(name="freed memory is kept", environment=_KEEP_MEMORY),
        Candidate(name="compiled", arguments={"enforce_eager": False}),
        again,
    )


def _step(tokens: int, prompts: int) -> Candidate:
    return Candidate(
        name=f"steps of {tokens:,} tokens, {prompts:,} prompt{'s' if prompts > 1 else ''}",
        arguments={"max_num_batched_tokens": tokens, "max_num_seqs": prompts},
    )


def sweep(
    requests: Requests,
    tried: Iterable[Candidate] | None = None,
    *,
    cores: tuple[int, ...] | None = None,
    on_candidate: Callable[[Candidate], None] = lambda _: None,
) -> Sweep:
    """Measure candidates one after the other, each in a fresh process.

    Args:
        requests: Requests that each of them answers.
        tried: Candidates; None takes those that may matter on this machine.
        cores: Cores of the engine; None leaves a GPU's host unbound, and takes half of the cores without a GPU.
        on_candidate: Called before each candidate.

    Raises:
        ModelError: No engine loaded.
    """
    is_cuda = bool(visible_gpus())
    bound = cores if cores is not None else () if is_cuda else engine_cores()
    rows, failures = [], {}
    for candidate in candidates(is_cuda=is_cuda) if tried is None else tried:
        on_candidate(candidate)
        try:
            rows.append(_measure(requests, candidate, bound))
        except ModelError as error:
            failures[candidate.name] = error.message
    if not rows:
        raise ModelError(f"No engine loaded: {'; '.join(failures.values())}")
    return Sweep(rows=tuple(rows), failures=failures)


def engine_cores() -> tuple[int, ...]:
    """Return the first half of the cores; the other half stands for the host of a GPU."""
    own = sorted(os.sched_getaffinity(0))
    return tuple(own[: max(1, len(own) // 2)])


def _measure(requests: Requests, candidate: Candidate, cores: tuple[int, ...]) -> SweepRow:
    environment = engine_environment(requests.config) | candidate.environment
    if cores:
        environment["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, cores))
    with tempfile.TemporaryFile() as log:
        ended = subprocess.run(  # noqa: S603 - our own module
            [find_python().path, "-P", "-m", "benchmarks.engine.sweep_process"],
            input=pickle.dumps((requests, candidate, cores)),
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            timeout=_TIMEOUT_S,
            check=False,
        )
        log.seek(0)
        lines = log.read().decode(errors="replace").strip().splitlines()
    if ended.returncode or not ended.stdout:
        raise ModelError(f"{candidate.name}: {(lines or ['the engine process died'])[-1]}")
    row: SweepRow = pickle.loads(ended.stdout)  # noqa: S301 - from our own process
    return row
