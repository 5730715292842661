"""What a run shows in the Prefect UI."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
from prefect import get_run_logger
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.exceptions import PrefectException

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from tasks.results.audit import AuditReport


class ProgressArtifact:
    """A bar of jobs done."""

    def __init__(self, *, total: int) -> None:
        """Show an empty bar."""
        self._total = max(1, total)
        self._id: UUID | None = None
        with _shown_at_most():
            self._id = create_progress_artifact(progress=0.0, description=f"{total:,} jobs to answer")  # type: ignore[assignment]

    def update(self, done: int) -> None:
        """Move the bar."""
        share = min(100.0, 100.0 * done / self._total)
        with _shown_at_most():
            if self._id is not None:
                update_progress_artifact(artifact_id=self._id, progress=share)


def publish_results(run_id: UUID, *, dataset: str, report: AuditReport, cost: list[tuple[str, str]]) -> None:
    """Show how a run ended, what it cost, and how to read its rows."""
    counts = {"jobs": report.jobs, "labels": report.labels, "failures": report.failures, "missing": report.missing}
    table = [{"outcome": name, "jobs": count} for name, count in counts.items()]
    figures = "".join(f"\n- {name}: {value}" for name, value in cost)
    table += [{"outcome": f"failure: {code}", "jobs": count} for code, count in report.codes.items()]
    with _shown_at_most():
        create_table_artifact(key="reelabel-results", table=table, description=str(report))
        create_markdown_artifact(
            key="reelabel-how-to-read",
            markdown=f"Dataset **{dataset}**. {report}\n{figures}\n\nRead the rows: `reelabel results {run_id}`",
        )


@contextmanager
def _shown_at_most() -> Iterator[None]:
    """Prefect shows a run, and must not end it: an artifact that it refuses is logged and left out."""
    try:
        yield
    except (httpx.HTTPError, PrefectException) as error:
        get_run_logger().warning("Prefect took no artifact: %s", error)
