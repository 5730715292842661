"""A run's progress in the terminal, read from its row."""

from __future__ import annotations

import contextlib
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from flows.commands.terminal import OUT, say
from infra.errors import ReelabelError
from infra.wording import counted
from tasks.results.runs import read_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from sqlalchemy import Engine, RowMapping

_POLL_S = 0.5


@contextmanager
def watched(engine: Engine, run_id: UUID) -> Iterator[None]:
    """Show a run's progress until the work inside is done; nothing before the run has a row."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=OUT)
    view = _View(engine, run_id, progress)
    watcher = threading.Thread(target=view.follow, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        view.ended.set()
        watcher.join()
        view.look()
        if progress.tasks:
            progress.stop()


class _View:
    """One bar, which appears with the run's row."""

    def __init__(self, engine: Engine, run_id: UUID, progress: Progress) -> None:
        self.ended = threading.Event()
        self._engine = engine
        self._run_id = run_id
        self._progress = progress
        self._bar: TaskID | None = None

    def follow(self) -> None:
        """Look now and then."""
        while not self.ended.wait(_POLL_S):
            self.look()

    def look(self) -> None:
        """Bring the bar up to date."""
        # Where the database is away for a moment, the run itself will say so.
        with contextlib.suppress(ReelabelError):
            row = read_run(self._engine, self._run_id)
            if row is not None:
                self._move(row)

    def _move(self, row: RowMapping) -> None:
        asked = row["jobs_total"] - row["jobs_skipped"]
        if not asked:
            return
        if self._bar is None:
            if row["state"] == "running" and row["message"]:
                say(row["message"])
            self._bar = self._progress.add_task("", total=asked)
            self._progress.start()
        done = row["jobs_labelled"] + row["jobs_failed"]
        self._progress.update(self._bar, description=_stage(row), total=asked, completed=done)


def _stage(row: RowMapping) -> str:
    if row["state"] == "running" and not row["shards_done"]:
        return f"loading the model; {counted(row['shards_total'], 'shard')} to go"
    return f"shard {row['shards_done']:,} of {row['shards_total']:,}"
