"""Runs one script of a peer, and measures time, memory and processor time of all its processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cores import descendants
from benchmarks.harness import proportional_bytes
from benchmarks.peers.scripts.job import adopt_orphans

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchmarks.peers.decoded import DecodedFrames

_ROOT = Path(__file__).parents[2]
_LOOK_S = 0.2
_SHOWN_CHARACTERS = 300
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run of a script took, and the rows that it reported.

    Attributes:
        wall_s: From the start of its process to its end.
        start_s: Of that, until its libraries were imported and started.
        cpu_s: Processor time of all its processes.
        peak_bytes: Most physical memory of all its processes at one moment; what they share counts once.
        rows: Its rows, in the order in which it reported them.
        decoded: Frames that its processes decoded; None if they were not counted.
        received_bytes: What came from the S3 server, if the run was measured by a `Bench`.
        requests: Requests to that server.
        error: How it ended, if not well: its last words, or that it ran into the limit.
    """

    wall_s: float
    start_s: float
    cpu_s: float
    peak_bytes: int
    rows: tuple[Mapping[str, Any], ...] = field(repr=False)
    decoded: int | None = None
    received_bytes: int = 0
    requests: int = 0
    error: str = ""

    def figures(self) -> dict[str, float | None]:
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in {"rows", "error"}}


def run_script(
    python: Path | str,
    script: str,
    asked: str,
    *,
    limit_s: float,
    log_path: Path,
    kill_at_rows: int = 0,
    variables: Mapping[str, str] | None = None,
    counter: DecodedFrames | None = None,
) -> Run:
    """Run `benchmarks.peers.scripts.SCRIPT`, and end all its processes.

    Args:
        python: Interpreter of the peer.
        script: Name of the module.
        asked: One line for its standard input.
        limit_s: Seconds after which it is killed.
        log_path: File for its standard error.
        kill_at_rows: Kill it once it reports this many answered rows; 0 lets it finish.
        variables: Environment variables beside those of all scripts.
        counter: Counts the frames that its processes decode.
    """
    adopt_orphans()
    counting = counter.restart() if counter else {}
    started = time.perf_counter()
    with log_path.open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - our own module
            [python, "-P", "-m", f"benchmarks.peers.scripts.{script}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=_environment(variables or {}) | counting,
            start_new_session=True,
        )
    watch = _Watch(process.pid, started + limit_s, kill_at_rows)
    with watch:
        assert process.stdin
        assert process.stdout
        with suppress(BrokenPipeError):
            process.stdin.write(asked + "\n")
            process.stdin.close()
        began_at_s, rows = _listen(process.stdout, watch)
        process.wait()
    wall_s = time.perf_counter() - started
    began_s = began_at_s - started if began_at_s else 0.0
    return Run(
        wall_s=wall_s,
        start_s=began_s,
        cpu_s=watch.cpu_s,
        peak_bytes=watch.peak_bytes,
        rows=tuple(rows),
        decoded=counter.frames if counter else None,
        error=_error(process.returncode, watch, limit_s, log_path),
    )


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of all scripts, with some variables: nothing that was set for us or the user's own S3."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "REELABEL_", "VLLM_"))}
    telling_nobody = {"DO_NOT_TRACK": "1", "RAY_USAGE_STATS_ENABLED": "0", "HF_HUB_OFFLINE": "1"}
    path = os.pathsep.join(filter(None, [str(_ROOT), variables.get("PYTHONPATH")]))
    return kept | telling_nobody | dict(variables) | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


def _listen(lines: Iterable[str], watch: _Watch) -> tuple[float, list[Mapping[str, Any]]]:
    began_at_s = 0.0
    rows: list[Mapping[str, Any]] = []
    for line in lines:
        event = _parse(line)
        if event.get("event") == "began":
            began_at_s = time.perf_counter()
        elif event.get("event") == "progress":
            watch.follow(event["rows"])
        elif event.get("event") == "row":
            rows.append(event)
    return began_at_s, rows


def _parse(line: str) -> dict[str, Any]:
    """Return the event of a line; libraries print other things as well."""
    with suppress(ValueError):
        event = json.loads(line)
        if isinstance(event, dict):
            return event
    return {}


def _error(code: int, watch: _Watch, limit_s: float, log_path: Path) -> str:
    if watch.has_timed_out:
        return f"ended after the limit of {limit_s:g} s"
    return last_words(log_path) or f"exit code {code}" if code else ""


def last_words(log_path: Path) -> str:
    """Return the last line of a log that is not empty, or that names an error."""
    filled = [line.strip() for line in log_path.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in filled if "Error" in line or "error" in line]
    return " ".join((errors or filled or [""])[-1].split())[:_SHOWN_CHARACTERS]


class _Watch:
    """Looks at a process and its descendants five times a second, and ends them all when it is left.

    Scripts adopt the orphans below them (`job.read_job`), so that services which leave their parent are seen as well.
    """

    def __init__(self, pid: int, until: float, kill_at_rows: int) -> None:
        self._pid = pid
        self._until = until
        self._kill_at_rows = kill_at_rows
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._seen: dict[tuple[int, str], int] = {}  # clock ticks, by process id and start
        self.peak_bytes = 0
        self.has_timed_out = False

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self.kill()
        self._wait()

    def follow(self, rows: int) -> None:
        if self._kill_at_rows and rows >= self._kill_at_rows:
            self._until = 0.0

    @property
    def cpu_s(self) -> float:
        return sum(self._seen.values()) / _TICKS_PER_S

    def kill(self) -> None:
        """Kill every process that was seen and still runs; a number that was given to another process is not theirs."""
        self._look()
        for pid, started in list(self._seen):
            with suppress(ProcessLookupError):
                if _times_of(pid)[0] == started:
                    os.kill(pid, signal.SIGKILL)

    def _wait(self) -> None:
        """Wait for what was killed, which this process has adopted: to Postgres, a zombie is a server that runs."""
        for pid, _ in self._seen:
            with suppress(ChildProcessError):
                if pid != self._pid:
                    os.waitpid(pid, 0)

    def _follow(self) -> None:
        while not self._is_over.wait(_LOOK_S):
            self._look()
            if time.perf_counter() > self._until:
                self.has_timed_out = True
                self.kill()
                return

    def _look(self) -> None:
        pids = [self._pid, *descendants(self._pid)]
        self.peak_bytes = max(self.peak_bytes, sum(map(proportional_bytes, pids)))
        for pid in pids:
            started, ticks = _times_of(pid)
            if started:
                self._seen[pid, started] = ticks


def _times_of(pid: int) -> tuple[str, int]:
    """Return when a process started, and the clock ticks that it has used; `("", 0)` if there is none."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return words[19], int(words[11]) + int(words[12])
    return "", 0
