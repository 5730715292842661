"""Artifacts of a run in the Prefect UI."""

from __future__ import annotations

import contextvars
import re
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

import httpx
from prefect import get_run_logger
from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.exceptions import PrefectException

from flows.shard.report import set_jobs_left
from infra.program import with_program_name
from reelabel.text import escape_controls

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from uuid import UUID

    from tasks.results.audit import AuditReport


_LAST_UPDATE_S = 5.0


class ProgressArtifact:
    """A progress bar of jobs, updated in a thread of its own, so that the run never waits for Prefect."""

    def __init__(self, *, total: int) -> None:
        self._total = total
        self._done = 0
        self._has_ended = False
        self._changed = threading.Event()
        set_jobs_left(total)
        # Prefect's client finds its server and its flow run through the context.
        target = contextvars.copy_context().run
        self._thread = threading.Thread(target=target, args=(self._move,), name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Show the final count, unless the run has failed or Prefect does not respond."""
        self._has_ended = True
        self._changed.set()
        if kind is None:
            self._thread.join(_LAST_UPDATE_S)

    def update(self, done: int) -> None:
        set_jobs_left(max(0, self._total - done))
        self._done = done
        self._changed.set()

    def _move(self) -> None:
        artifact_id: UUID | None = None
        is_last = False
        while not is_last:
            is_last = self._has_ended
            with suppress(RuntimeError), artifact_errors_logged():  # the flow's client may have been closed
                artifact_id = artifact_id or create_progress_artifact(  # type: ignore[assignment]
                    progress=0.0, description=f"{self._total:,} jobs to answer"
                )
                share = min(100.0, 100.0 * self._done / max(1, self._total))
                update_progress_artifact(artifact_id=artifact_id, progress=share)  # type: ignore[arg-type]
            if not is_last:
                self._changed.wait()
                self._changed.clear()


def publish_results(
    run_id: UUID,
    *,
    dataset: str,
    report: AuditReport,
    cost: list[tuple[str, str]],
    warnings: list[str],
    page: str | None,
    failures: list[dict[str, str]],
) -> None:
    """Publish the audit of a run, its cost and warnings (without a final period), and links to its results."""
    counts = {"jobs": report.jobs, "labels": report.labels, "failures": report.failures, "missing": report.missing}
    table = [{"outcome": name, "jobs": count} for name, count in counts.items()]
    table += [{"outcome": f"failure: {code}", "jobs": count} for code, count in report.codes.items()]
    what = f"Dataset **{_plain(dataset)}**. {_plain(str(report))}"
    figures = list_figures(cost, warnings)
    opened = f", or [open it here]({page})" if page else ""
    with artifact_errors_logged():
        create_table_artifact(key="reelabel-results", table=table, description=_plain(str(report)))
        create_markdown_artifact(
            key="reelabel-how-to-read",
            markdown=f"{what}\n{figures}\n\n"
            + with_program_name(f"Results: `reelabel results {run_id}`\n\nReport: `reelabel report {run_id}`{opened}"),
            description="What the run cost, and how to read its results and its report",
        )
        if failures:
            rows = [{name: escape_controls(value) for name, value in failure.items()} for failure in failures]
            is_all = report.failures <= len(failures)
            which = "Failed jobs" if is_all else f"The first {len(failures):,} of {report.failures:,} failed jobs"
            about = _plain(f"{which} of dataset {dataset}")
            create_table_artifact(key="reelabel-failures", table=rows, description=about)
        if page:
            create_link_artifact(key="reelabel-page", link=page, link_text=page, description="Report of the run")


def list_figures(cost: list[tuple[str, str]], warnings: list[str]) -> str:
    """Return a run's cost and warnings as a list in Markdown; warnings may quote a manifest."""
    lines = [*(f"{name}: {value}" for name, value in cost), *(f"**{_plain(warning)}**" for warning in warnings)]
    return "".join(f"\n- {line}" for line in lines)


_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#!|~&])")


def _plain(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", escape_controls(text))


@contextmanager
def artifact_errors_logged() -> Iterator[None]:
    """Log errors of Prefect instead of raising them: artifacts must not fail a run."""
    try:
        yield
    except (httpx.HTTPError, PrefectException) as error:
        get_run_logger().warning("Artifact not published: %s", error)
