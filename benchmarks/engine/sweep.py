"""Measures the engine alone: its settings, the cost of `choice_mass`, and several questions about one video.

Requests are rendered in advance, so that the fastest settings are the ceiling of any pipeline that ends in such an
engine.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.engine.noise import noise_file, question_of
from benchmarks.harness import Column, Table, about, progress
from benchmarks.models import engine_config
from reelabel_engine.devices import visible_gpus
from reelabel_engine.environment import engine_environment, find_python
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import Batch
from tasks.domain import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from benchmarks.harness import Row
    from reelabel_engine.protocol import EngineConfig
    from tasks.model.backend import Reply

CHOSEN, OWN = "as chosen", "vLLM's own"
_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 * 1024**2), "MALLOC_TRIM_THRESHOLD_": str(4 * 1024**3)}
_TIMEOUT_S, _START_TIMEOUT_S = 1800, 900
_USUAL_REQUESTS = {"tiny": 128, "100m": 24}  # a few seconds' worth
_COUNTS = (1, 2, 4, 8)
_WARM_UP_ROUNDS = 2
SETTINGS = (
    Column("settings", "name"),
    Column("requests/s", "requests_per_s", ",.2f"),
    Column("of chosen", "rate_of_first", ".2fx"),
    Column("core ms/request", "core_ms", ",.1f"),
    Column("of chosen", "core_of_first", ".2fx"),
    Column("start, s", "start_s", ",.1f"),
)
SCORING = (
    Column("scoring", "name"),
    Column("ms per request", "request_ms", ".2f"),
    Column("of the first", "wall_of_first", ".2fx"),
    Column("core ms per request", "core_ms", ".2f"),
    Column("of the first", "core_of_first", ".2fx"),
)
QUESTIONS = (
    Column("questions", "questions"),
    Column("ms", "answer_ms", ",.1f"),
    Column("times one", "times_one", ".2fx"),
    Column("prompt tokens", "prompt_tokens", ","),
    Column("of them cached", "cached_tokens", ","),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Requests about square frames of noise that every candidate answers, after a round that is not measured."""

    config: EngineConfig
    count: int
    side_px: int
    frames: int = 16
    rounds: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Settings to measure.

    Attributes:
        arguments: Arguments of vLLM that override the chosen ones.
        environment: Environment variables of the process.
        is_async: Whether to use AsyncLLM, whose engine is a separate process on the same cores; the client has the
            others.
    """

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    is_async: bool = False


class Sweep(NamedTuple):
    """Rows of the candidates that ran, at least one, the one with the most requests per second, and other's errors."""

    rows: list[dict[str, Any]]
    best: Candidate
    failures: Mapping[str, str]


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


def settings(
    models: Sequence[str], folder: Path, *, requests: int | None, rounds: int
) -> tuple[list[Table], dict[str, str]]:
    """Sweep the engine's settings for each model; return tables, and the chosen settings and failures."""
    tables: list[Table] = []
    facts: dict[str, str] = {}
    with progress() as show:
        for name in models:
            asked = requests_of(name, folder, requests, rounds)
            swept = sweep(asked, on_candidate=about(name, show))
            first = swept.rows[0]
            for row in swept.rows:
                row["rate_of_first"] = row["requests_per_s"] / first["requests_per_s"]
                row["core_of_first"] = row["core_ms"] / first["core_ms"]
            tables.append(Table(f"{name}, prompts of {first['prompt_tokens']} tokens", swept.rows, SETTINGS))
            facts |= {f"{name}, best": swept.best.name, f"{name}, chosen settings": first["settings"]}
            facts |= {f"{name}, failed": failure for failure in swept.failures.values()}
    return tables, facts


def scoring(model: str, folder: Path, *, requests: int | None, rounds: int) -> list[Table]:
    """Measure the cost of `choice_mass`."""
    asked = requests_of(model, folder, requests, rounds)
    rows: list[dict[str, Any]] = _ask("scoring", asked, environment=engine_environment(asked.config))
    for row in rows:
        row["wall_of_first"] = row["request_ms"] / rows[0]["request_ms"]
        row["core_of_first"] = row["core_ms"] / rows[0]["core_ms"]
    return [Table(f"{model}, {asked.count} requests, {rounds} rounds", rows, SCORING)]


def questions(model: str, folder: Path, *, frames: int, rounds: int) -> list[Table]:
    """Measure several questions about one video."""
    from tasks.model.engine.process import EngineProcess  # noqa: PLC0415 - not in the engine's own environment

    config, side_px = engine_config(model, folder)
    with tempfile.TemporaryDirectory(prefix="reelabel-") as logs:
        log_path = Path(logs) / "engine.log"
        with EngineProcess(config, log_path=log_path, start_timeout_s=_START_TIMEOUT_S) as engine:
            engine.wait_ready()
            rows = measure_questions(engine.answer, frames=frames, side_px=side_px, rounds=rounds)
    return [Table(f"{model}, {frames} frames", rows, QUESTIONS)]


def requests_of(name: str, folder: Path, count: int | None, rounds: int) -> Requests:
    """Return the requests that are usual for a model, or as many as are asked for."""
    config, side_px = engine_config(name, folder)
    return Requests(config=config, count=count or _USUAL_REQUESTS[name], side_px=side_px, rounds=rounds)


def sweep(
    requests: Requests,
    tried: Iterable[Candidate] | None = None,
    *,
    cores: tuple[int, ...] | None = None,
    on_candidate: Callable[[str], None] = lambda _: None,
) -> Sweep:
    """Measure candidates one after the other, each in a fresh process.

    Args:
        requests: Requests that each of them answers.
        tried: Candidates; None takes those that may matter on this machine.
        cores: Cores of the engine; None leaves a GPU's host unbound, and takes half of the cores without a GPU.
        on_candidate: Called with the name of each candidate before it.

    Raises:
        ModelError: No engine loaded.
    """
    is_cuda = bool(visible_gpus())
    if cores is None:
        own = sorted(os.sched_getaffinity(0))
        cores = () if is_cuda else tuple(own[: max(1, len(own) // 2)])  # the other half is the host of a GPU
    found, failures = [], {}
    for candidate in candidates(is_cuda=is_cuda) if tried is None else tried:
        on_candidate(candidate.name)
        environment = engine_environment(requests.config) | candidate.environment
        if cores:
            environment["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, cores))
        try:
            row = _ask("candidate", requests, candidate, frozenset(cores), environment=environment)
            found.append((candidate, row))
        except ModelError as error:
            failures[candidate.name] = f"{candidate.name}: {error.message}"
    if not found:
        raise ModelError(f"No engine loaded: {'; '.join(failures.values())}")
    best, _ = max(found, key=lambda each: each[1]["requests_per_s"])
    return Sweep([row for _, row in found], best, failures)


def _ask(task: str, *arguments: object, environment: Mapping[str, str]) -> Any:  # noqa: ANN401 - of the task
    with tempfile.TemporaryFile() as log:
        ended = subprocess.run(  # noqa: S603 - our own module
            [find_python().path, "-P", "-m", "benchmarks.engine.process"],
            input=pickle.dumps((task, *arguments)),
            stdout=subprocess.PIPE,
            stderr=log,
            env=dict(environment),
            timeout=_TIMEOUT_S,
            check=False,
        )
        log.seek(0)
        lines = log.read().decode(errors="replace").strip().splitlines()
    if ended.returncode or not ended.stdout:
        raise ModelError((lines or ["the engine's process died"])[-1])
    return pickle.loads(ended.stdout)  # noqa: S301 - from our own process


def measure_questions(
    answer: Callable[[Batch], list[Reply]],
    *,
    frames: int,
    side_px: int,
    rounds: int,
    counts: Sequence[int] = _COUNTS,
) -> list[Row]:
    """Ask numbers of questions about a fresh video each time, interleaving the numbers.

    Raises:
        ModelError: The engine rejects the questions.
    """
    took_ms: dict[int, list[float]] = defaultdict(list)
    tokens: dict[int, tuple[int, int]] = {}
    for number in range(_WARM_UP_ROUNDS + rounds):
        for place, count in enumerate(counts):
            file = noise_file(number * len(counts) + place, frames=frames, side_px=side_px)
            asked = tuple(question_of(f"What colour is shape {number}?") for number in range(count))
            began_s = time.perf_counter()
            replies = answer(Batch(frame_files={"v": file}, questions=asked))
            if number >= _WARM_UP_ROUNDS:
                took_ms[count].append((time.perf_counter() - began_s) * 1e3)
            answers = [reply for reply in replies if isinstance(reply, Answer)]
            if len(answers) < count:
                raise ModelError("The engine rejects the questions; lower --frames.")
            tokens[count] = sum(one.prompt_tokens for one in answers), sum(one.cached_tokens for one in answers)
    one_ms = median(took_ms[counts[0]])
    return [
        {
            "questions": count,
            "answer_ms": median(took_ms[count]),
            "times_one": median(took_ms[count]) / one_ms,
            "prompt_tokens": tokens[count][0],
            "cached_tokens": tokens[count][1],
        }
        for count in counts
    ]
