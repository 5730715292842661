"""What a run shows in the Prefect UI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)

if TYPE_CHECKING:
    from uuid import UUID

    from tasks.results.audit import AuditReport


class ProgressArtifact:
    """A bar of jobs done."""

    def __init__(self, *, total: int) -> None:
        """Show an empty bar."""
        self._total = max(1, total)
        self._id = create_progress_artifact(progress=0.0, description=f"{total:,} jobs to answer")

    def update(self, done: int) -> None:
        """Move the bar."""
        share = min(100.0, 100.0 * done / self._total)
        update_progress_artifact(artifact_id=self._id, progress=share)  # type: ignore[arg-type]


def publish_results(run_id: UUID, *, dataset: str, report: AuditReport) -> None:
    """Show how a run ended, and how to read its rows."""
    counts = {"jobs": report.jobs, "labels": report.labels, "failures": report.failures, "missing": report.missing}
    table = [{"outcome": name, "jobs": count} for name, count in counts.items()]
    table += [{"outcome": f"failure: {code}", "jobs": count} for code, count in report.codes.items()]
    create_table_artifact(key="reelabel-results", table=table, description=str(report))
    create_markdown_artifact(
        key="reelabel-how-to-read",
        markdown=f"Dataset **{dataset}**. {report}\n\nRead the rows: `reelabel results {run_id}`",
    )
