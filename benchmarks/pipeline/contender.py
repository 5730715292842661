"""Contenders: pipelines that answer the same jobs, measured in turn, in separate processes if they contain vLLM.

vLLM reads its environment when it is imported, and libraries size their thread pools by the cores of their process, so
each of these contenders gets a fresh process: `python -m benchmarks.pipeline.contender CONNECTION_FD`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from contextlib import ExitStack
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from benchmarks.cores import bind
from benchmarks.harness import Column, Table, Target
from reelabel_engine.environment import find_python
from reelabel_engine.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from benchmarks.cores import CpuUtilization, GpuUtilization

CEILING, EXTRACTION = "ceiling", "extraction alone"
COLD, WARM = "ours, cold cache", "ours, warm cache"
UNIFORM, KEYFRAMES = "LLM.chat, opencv", "LLM.chat, keyframes"
DEFINITION = (
    "Jobs per second: all jobs over the seconds from the loaded model, when the first question could be asked, "
    "to the last answer, for every contender after a warm-up of eight other jobs. Extraction alone counts videos."
)
_COLUMNS = (
    Column("contender", "contender"),
    Column("jobs/s", "jobs_per_s", ",.2f"),
    Column("/ ceiling", "of_ceiling", ".2fx"),
    Column("rounds", lambda row: f"{min(row['rounds']):,.2f}-{max(row['rounds']):,.2f}"),
    Column("tokens per job", "tokens_per_job", ",.1f"),
    Column("engine busy", "engine_busy", ".0%"),
    Column("host busy", "host_busy", ".0%"),
)
_COLD_SHARE = 0.9
_END_TIMEOUT_S = 30


class Timing(NamedTuple):
    """One pass of a contender over all jobs, after its model is loaded.

    Attributes:
        jobs: Jobs answered.
        began_s: When the first question could be asked, in seconds of the system's clock.
        ended_s: When the last answer arrived.
        labels: Index of each job's choice, in the workload's order; empty where nothing is answered.
        prompt_tokens: Tokens of all prompts.
    """

    jobs: int
    began_s: float
    ended_s: float
    labels: Sequence[int | None] = ()
    prompt_tokens: int = 0

    @property
    def jobs_per_s(self) -> float:
        return self.jobs / (self.ended_s - self.began_s)


class Contender(Protocol):
    """A pipeline to measure. `load` comes first, then any number of passes, then `close`."""

    def load(self) -> None:
        """Do what is not measured: start processes, load the model, warm up."""

    def run(self, number: int) -> Timing:
        """Answer all jobs; `number`, from 1, distinguishes passes, so that none profits from the cache of another."""

    def close(self) -> None:
        """Stop what was started."""


class Result(NamedTuple):
    """All passes of one contender, and the median shares of the time in which both sides computed, if known."""

    contender: str
    timings: Sequence[Timing]
    engine_busy: float | None
    host_busy: float | None

    @property
    def jobs_per_s(self) -> float:
        """Median of the rounds."""
        return median(timing.jobs_per_s for timing in self.timings)


def measure(
    contenders: Mapping[str, Contender],
    *,
    rounds: int,
    utilization: CpuUtilization | GpuUtilization,
    on_progress: Callable[[str], None],
) -> dict[str, Result]:
    """Run every contender once per round, with all models loaded: a slow moment of the machine affects all of them."""
    timings: dict[str, list[Timing]] = {name: [] for name in contenders}
    with ExitStack() as stack:
        for name, contender in contenders.items():
            on_progress(f"{name}: loading")
            stack.callback(contender.close)
            contender.load()
        for number in range(1, rounds + 1):
            for name, contender in contenders.items():
                on_progress(f"{name}: round {number} of {rounds}")
                timings[name].append(contender.run(number))
    busy = (utilization.engine, utilization.host)
    return {
        name: Result(name, passes, *(_median([of(each.began_s, each.ended_s) for each in passes]) for of in busy))
        for name, passes in timings.items()
    }


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def results_table(title: str, results: Mapping[str, Result]) -> Table:
    """Tabulate contenders, compared with the ceiling if it is one of them."""
    ceiling = results[CEILING].jobs_per_s if CEILING in results else None
    rows = [
        {
            "contender": name,
            "jobs": each.timings[0].jobs,
            "jobs_per_s": each.jobs_per_s,
            "of_ceiling": each.jobs_per_s / ceiling if ceiling and name != EXTRACTION else None,
            "rounds": [timing.jobs_per_s for timing in each.timings],
            "tokens_per_job": each.timings[0].prompt_tokens / each.timings[0].jobs or None,
            "prompt_tokens": each.timings[0].prompt_tokens,
            "engine_busy": each.engine_busy,
            "host_busy": each.host_busy,
        }
        for name, each in results.items()
    ]
    return Table(title, rows, _COLUMNS)


def check_targets(results: Mapping[str, Result], *, warm_share: float, gain: float = 1.0) -> list[Target]:
    """Compare the contenders that there are.

    Args:
        results: Results by the names above.
        warm_share: Share of the ceiling that a warm cache should reach.
        gain: How many times the jobs per second of vLLM's uniform loader ours should reach.
    """
    rate = {name: result.jobs_per_s for name, result in results.items()}
    targets: list[Target] = []

    def compare(contender: str, other: str, least: float) -> None:
        targets.append(Target(f"{contender} / {other}", rate[contender] / rate[other], least=least))

    if {WARM, CEILING} <= rate.keys():
        compare(WARM, CEILING, warm_share)
    if {COLD, CEILING, EXTRACTION} <= rate.keys():
        slower = min(CEILING, EXTRACTION, key=rate.__getitem__)
        compare(COLD, slower, _COLD_SHARE)
    for contender in (WARM, COLD):
        for other, least in ((UNIFORM, gain), (KEYFRAMES, 1.0)):
            if {contender, other} <= rate.keys():
                compare(contender, other, least)
    if {WARM, COLD} <= rate.keys():
        expected = results[COLD].timings[0].labels
        equal = [
            one == other
            for name in (WARM, COLD)
            for timing in results[name].timings
            for one, other in zip(timing.labels, expected, strict=True)
        ]
        targets.append(Target("equal labels, warm and cold", sum(equal) / len(equal), least=1.0))
    return targets


class Isolated:
    """A contender that runs another one, which is pickled, in a subprocess.

    `cores` are its cores, or empty for any; `python` is its interpreter, by default the engine's.
    """

    def __init__(
        self,
        contender: Contender,
        *,
        environment: Mapping[str, str],
        cores: frozenset[int],
        logs: Path,
        python: str | None = None,
    ) -> None:
        self._contender, self._environment, self._cores = contender, dict(environment), cores
        self._python = python
        self._log_path = logs / f"{type(contender).__name__.lower()}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def load(self) -> None:
        """Start the process and load the contender in it."""
        self._connection, theirs = Pipe()
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [self._python or find_python().path, "-P", "-m", "benchmarks.pipeline.contender", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                pass_fds=(theirs.fileno(),),
            )
        theirs.close()
        self._ask((self._contender, self._cores))

    def run(self, number: int) -> Timing:
        """Run one pass."""
        return Timing(*self._ask(number))

    def close(self) -> None:
        if self._process is None or self._connection is None:
            return
        self._connection.close()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = self._connection = None

    def _ask(self, message: object) -> Any:  # noqa: ANN401 - None, or the fields of a timing
        assert self._connection is not None
        try:
            self._connection.send(message)
            answer = self._connection.recv()
        except (EOFError, OSError):
            answer = ModelError("its process died")
        if isinstance(answer, ModelError):
            raise ModelError(f"{type(self._contender).__name__} failed: {answer}; see {self._log_path}.")
        return answer


def main() -> None:
    connection = Connection(int(sys.argv[1]))
    contender, cores = connection.recv()
    bind(os.getpid(), cores)
    try:
        contender.load()
        connection.send(None)
        while True:
            connection.send(tuple(contender.run(connection.recv())))
    except EOFError:
        contender.close()
    except BaseException as error:
        traceback.print_exc()
        connection.send(ModelError(f"{type(error).__name__}: {error}"))
        raise


if __name__ == "__main__":
    main()
