"""A progress bar of a run, read from its row."""

from __future__ import annotations

import contextlib
import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from flows.cli.console import OUT, print_line
from infra.logs import IS_OUTAGE
from reelabel.errors import ReelabelError
from reelabel.text import escape_controls, on_one_line, pluralize
from tasks.results.runs import newest_run, read_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from rich.console import Console
    from rich.status import Status
    from sqlalchemy import Engine, RowMapping

_POLL_S = 0.5
_REPEAT_AFTER_S = 25.0
_RUN_LOGGERS = ("prefect.flow_runs", "prefect.task_runs", "reelabel")


@contextmanager
def show_progress(engine: Engine, run_id: UUID) -> Iterator[None]:
    with _shown(lambda: read_run(engine, run_id)):
        yield


@contextmanager
def show_progress_of_manifest(engine: Engine, manifest: str) -> Iterator[None]:
    """Show the progress of a manifest's runs, one after another, while the body runs."""
    with _shown(lambda: newest_run(engine, manifest_uri=manifest, dataset=None)):
        yield


@contextmanager
def _shown(find: Callable[[], RowMapping | None]) -> Iterator[None]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=OUT)
    waiting = OUT.status("Waiting for the run to begin")
    view = _View(find, progress, waiting)
    watcher = threading.Thread(target=view.follow, daemon=True)
    waiting.start()
    watcher.start()
    try:
        with _waits_printed(progress.console):
            yield
    except KeyboardInterrupt as stop:
        view.look()
        stop.args = view.counts  # for the command line to print
        raise
    finally:
        view.ended.set()
        watcher.join()
        view.look()
        waiting.stop()
        if progress.tasks:
            progress.stop()


@contextmanager
def _waits_printed(console: Console) -> Iterator[None]:
    """Print above the bar what a run in this process is waiting for, since Prefect's log lines are hidden."""
    handler = _WaitHandler(console)
    loggers = [logging.getLogger(name) for name in _RUN_LOGGERS]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


class _WaitHandler(logging.Handler):
    """Prints what is being waited for; a message repeated by many shards is printed once."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.INFO)
        self.addFilter(lambda record: hasattr(record, IS_OUTAGE))
        self._console = console
        self._printed_s: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.created - self._printed_s.get(message, 0.0) > _REPEAT_AFTER_S:
            self._printed_s[message] = record.created
            style = "yellow" if record.levelno >= logging.WARNING else ""
            self._console.print(Text(escape_controls(on_one_line(message)), style=style), soft_wrap=True)


class _View:
    """One bar per run, shown once the run has a row; `counts` is then how many of its jobs are done."""

    def __init__(self, find: Callable[[], RowMapping | None], progress: Progress, waiting: Status) -> None:
        self.ended = threading.Event()
        self.counts: tuple[str, ...] = ()
        self._waiting = waiting
        self._find = find
        self._progress = progress
        self._bars: dict[UUID, TaskID] = {}

    def follow(self) -> None:
        while not self.ended.wait(_POLL_S):
            self.look()

    def look(self) -> None:
        # If the database is briefly unavailable, the run itself reports it.
        with contextlib.suppress(ReelabelError):
            row = self._find()
            if row is not None:
                self._move(row)

    def _move(self, row: RowMapping) -> None:
        asked = row["jobs_total"] - row["jobs_skipped"]
        if not asked:
            return
        if row["run_id"] not in self._bars:
            self._waiting.stop()  # there can be only one of it and the bar
            if row["state"] == "running" and row["message"]:
                print_line(row["message"])
            self._bars[row["run_id"]] = self._progress.add_task("", total=asked)
            self._progress.start()
        done = row["jobs_labelled"] + row["jobs_failed"]
        self.counts = (f"{done:,} of {pluralize(asked, 'job')}",)
        bar = self._bars[row["run_id"]]
        self._progress.update(bar, description=_stage(row), total=asked, completed=done)


def _stage(row: RowMapping) -> str:
    if row["state"] == "running" and not row["shards_done"]:
        return f"loading the model; {pluralize(row['shards_total'], 'shard')} to do"
    return f"shard {row['shards_done']:,} of {row['shards_total']:,}"
