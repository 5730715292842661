"""Artifacts of a run in the Prefect UI."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

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

from flows.shard.metrics import set_jobs_left
from infra.program import as_started
from reelabel.wording import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from tasks.results.audit import AuditReport


class ProgressArtifact:
    """A progress bar of jobs."""

    def __init__(self, *, total: int) -> None:
        """Create the bar at 0%."""
        self._total = max(1, total)
        set_jobs_left(total)
        self._id: UUID | None = None
        with artifact_errors_logged():
            self._id = create_progress_artifact(progress=0.0, description=f"{total:,} jobs to answer")  # type: ignore[assignment]

    def update(self, done: int) -> None:
        """Update the bar."""
        set_jobs_left(max(0, self._total - done))
        share = min(100.0, 100.0 * done / self._total)
        with artifact_errors_logged():
            if self._id is not None:
                update_progress_artifact(artifact_id=self._id, progress=share)


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
    figures = "".join(f"\n- {name}: {value}" for name, value in cost)
    figures += "".join(f"\n- **{warning}**" for warning in warnings)
    table += [{"outcome": f"failure: {code}", "jobs": count} for code, count in report.codes.items()]
    what = f"Dataset **{_plain(dataset)}**. {_plain(str(report))}"
    opened = f", or [open it here]({page})" if page else ""
    with artifact_errors_logged():
        create_table_artifact(key="reelabel-results", table=table, description=_plain(str(report)))
        create_markdown_artifact(
            key="reelabel-how-to-read",
            markdown=f"{what}\n{figures}\n\n"
            + as_started(f"Results: `reelabel results {run_id}`\n\nReport: `reelabel report {run_id}`{opened}"),
            description="What the run cost, and how to read its results and its report",
        )
        if failures:
            rows = [{name: printable(value) for name, value in failure.items()} for failure in failures]
            failed = report.failures
            first = (
                f"The first {len(failures):,} of {failed:,} failed jobs" if failed > len(failures) else "Failed jobs"
            )
            create_table_artifact(
                key="reelabel-failures", table=rows, description=_plain(f"{first} of dataset {dataset}")
            )
        if page:
            create_link_artifact(key="reelabel-page", link=page, link_text=page, description="Report of the run")


_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#!|~&])")


def _plain(text: str) -> str:
    """Return a text that Markdown shows as it is: no link, image or HTML."""
    return _MARKDOWN.sub(r"\\\1", printable(text))


@contextmanager
def artifact_errors_logged() -> Iterator[None]:
    """Log errors of Prefect instead of raising them: artifacts must not fail a run."""
    try:
        yield
    except (httpx.HTTPError, PrefectException) as error:
        get_run_logger().warning("Artifact not published: %s", error)
