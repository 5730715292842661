"""Shows the progress of a run from its row."""

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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from rich.console import Console
    from sqlalchemy import RowMapping

_POLL_S = 0.5
_REPEAT_AFTER_S = 25.0
_RUN_LOGGERS = ("prefect.flow_runs", "prefect.task_runs", "reelabel")


@contextmanager
def show_progress(find: Callable[[], RowMapping | None]) -> Iterator[None]:
    """Show one bar per run that `find` finds, once the run has a row, while the body runs."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress, waiting = Progress(*columns, console=OUT), OUT.status("Waiting for the run to begin")
    bars: dict[UUID, TaskID] = {}
    counts: list[str] = []

    def look() -> None:
        # If the database is briefly unavailable, the run itself reports it.
        with contextlib.suppress(ReelabelError):
            row = find()
            if row is None or not (total := row["jobs_total"] - row["jobs_skipped"]):
                return
            if row["run_id"] not in bars:
                waiting.stop()  # only one of this and the bar can be shown
                if row["state"] == "running" and row["message"]:
                    print_line(row["message"])
                bars[row["run_id"]] = progress.add_task("", total=total)
                progress.start()
            done = row["jobs_labelled"] + row["jobs_failed"]
            counts[:] = [f"{done:,} of {pluralize(total, 'job')}"]
            progress.update(bars[row["run_id"]], description=_stage(row), total=total, completed=done)

    def follow() -> None:
        while not ended.wait(_POLL_S):
            look()

    ended, watcher = threading.Event(), threading.Thread(target=follow, daemon=True)
    waiting.start()
    watcher.start()
    try:
        with _waits_printed(progress.console):
            yield
    except KeyboardInterrupt as stop:
        look()
        stop.args = tuple(counts)  # for the command line to print
        raise
    finally:
        ended.set()
        watcher.join()
        look()
        waiting.stop()
        if progress.tasks:
            progress.stop()


@contextmanager
def _waits_printed(console: Console) -> Iterator[None]:
    """Print above the bar what a run in this process is waiting for, because Prefect's log lines are hidden."""
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
    """Prints reasons for waiting; a message repeated by many shards is printed once."""

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


def _stage(row: RowMapping) -> str:
    if row["state"] == "running" and not row["shards_done"]:
        return f"loading the model; {pluralize(row['shards_total'], 'shard')} to do"
    return f"shard {row['shards_done']:,} of {row['shards_total']:,}"
