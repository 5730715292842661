"""`reelabel bench engine`: an engine's requests a second by its settings, with nothing before it or behind it.

Requests lie in memory, rendered, each with a video of its own; so the best of the settings is the
ceiling of any pipeline that has an engine like this at its end.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from infra.errors import ModelError
from tasks.model.devices import visible_gpus
from tasks.model.process import engine_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tasks.model.questions import EngineConfig

CHOSEN, OWN = "as chosen", "vLLM's own"
_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 * 1024**2), "MALLOC_TRIM_THRESHOLD_": str(4 * 1024**3)}
_TIMEOUT_S = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """What every engine of a sweep is asked.

    Attributes:
        config: The model, and settings that all trials share.
        count: Requests of one round.
        side_px: Of the square frames; the config tells how many frames.
        rounds: Rounds that count; one more goes before them.
    """

    config: EngineConfig
    count: int
    side_px: int
    rounds: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One setting.

    Attributes:
        name: For people.
        arguments: vLLM's, laid over those that are chosen.
        environment: Variables of its process.
        is_apart: By AsyncLLM, whose engine is a process of its own on the same cores; what sends to it has the others.
    """

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    is_apart: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRow:
    """What came of one setting.

    Attributes:
        requests_per_s: Median of the rounds.
        core_ms: Milliseconds of a processor per request, median; which others' work hardly moves.
        start_s: Seconds from the process's first line to the loaded model.
        prompt_tokens: Of one request.
        settings: What was chosen, in a line.
    """

    trial: Trial
    requests_per_s: float
    core_ms: float
    start_s: float
    prompt_tokens: int
    settings: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """A sweep, and its best.

    Attributes:
        rows: Settings that an engine ran with; at least one.
        failures: Why it did not with others, by their name.
    """

    rows: tuple[EngineRow, ...]
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def best(self) -> EngineRow:
        """The setting with the most requests a second."""
        return max(self.rows, key=lambda row: row.requests_per_s)


def trials(*, is_cuda: bool) -> tuple[Trial, ...]:
    """Give settings that may matter, between what is chosen, twice: two that differ by less are not told apart."""
    again = Trial(name="as chosen, at the end")
    common = (
        Trial(name=CHOSEN),
        Trial(name=OWN, arguments={"max_num_seqs": None, "max_num_batched_tokens": None, "block_size": None}),
        Trial(name="no prefix cache", arguments={"enable_prefix_caching": False}),
        Trial(name="AsyncLLM, engine apart", environment={"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}, is_apart=True),
    )
    if is_cuda:
        steps = (_step(tokens, 1024) for tokens in (4096, 8192, 16_384, 32_768))
        eager = Trial(name="no graphs, no compilation", arguments={"enforce_eager": True})
        graphs = Trial(name="graphs for decoding, too", arguments={"compilation_config": {}})
        return (*common, *steps, eager, graphs, again)
    return (
        *common,
        _step(128, 1),
        *(_step(8192, prompts) for prompts in (1, 4, 16, 64)),
        _step(512, 64),
        Trial(name="blocks of 128 tokens", arguments={"block_size": 128}),
        Trial(name="freed memory is kept", environment=_KEEP_MEMORY),
        Trial(name="compiled", arguments={"enforce_eager": False}),
        again,
    )


def _step(tokens: int, prompts: int) -> Trial:
    return Trial(
        name=f"steps of {tokens:,} tokens, {prompts:,} prompt{'s' if prompts > 1 else ''}",
        arguments={"max_num_batched_tokens": tokens, "max_num_seqs": prompts},
    )


def ceiling(
    requests: Requests,
    tried: Iterable[Trial] | None = None,
    *,
    cores: tuple[int, ...] | None = None,
    on_trial: Callable[[Trial], None] = lambda _: None,
) -> Ceiling:
    """Try settings one after the other, each in a fresh process.

    Args:
        requests: What is asked.
        tried: Settings; None tries those that may matter on this machine.
        cores: Where the engine runs; None leaves a GPU's host alone, and takes half of a CPU's cores.
        on_trial: Called before each.

    Raises:
        ModelError: No engine loaded.
    """
    is_cuda = bool(visible_gpus())
    bound = cores if cores is not None else () if is_cuda else engine_cores()
    rows, failures = [], {}
    for trial in trials(is_cuda=is_cuda) if tried is None else tried:
        on_trial(trial)
        try:
            rows.append(_measure(requests, trial, bound))
        except ModelError as error:
            failures[trial.name] = error.message
    if not rows:
        raise ModelError(f"No engine loaded: {'; '.join(failures.values())}")
    return Ceiling(rows=tuple(rows), failures=failures)


def engine_cores() -> tuple[int, ...]:
    """Give the first half of the cores, as a GPU's work would take none of its host's."""
    own = sorted(os.sched_getaffinity(0))
    return tuple(own[: max(1, len(own) // 2)])


def _measure(requests: Requests, trial: Trial, cores: tuple[int, ...]) -> EngineRow:
    environment = engine_environment(requests.config) | trial.environment
    if cores:
        environment["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, cores))
    with tempfile.TemporaryFile() as log:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "benchmarks.engine_trial"],
            input=pickle.dumps((requests, trial, cores)),
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            timeout=_TIMEOUT_S,
            check=False,
        )
        log.seek(0)
        said = log.read().decode(errors="replace").strip().splitlines()
    if ended.returncode or not ended.stdout:
        raise ModelError(f"{trial.name}: {(said or ['its process died'])[-1]}")
    row: EngineRow = pickle.loads(ended.stdout)  # noqa: S301 - from our own process
    return row
