"""The proof that every job of a manifest ended as exactly one label or one failure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from infra.wording import counted
from sql.queries import read_query
from tasks.results.stage import staged_jobs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Engine, Row

    from tasks.domain import Job

_FAULTS = ("missing", "doubled", "stale")
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """Counts over the jobs of one manifest.

    Attributes:
        jobs: Rows of the manifest.
        labels: Jobs with a label for the job as it stands now, and no failure.
        failures: Jobs with a failure, and no label.
        missing: Jobs with neither.
        doubled: Jobs with both.
        stale: Jobs whose row was made for another prompt, video or choices.
        orphaned: Rows of the dataset whose job is not in the manifest; no fault, other manifests made them.
        codes: Failures by code.
        examples: The first few job ids that are missing, doubled or stale.
    """

    jobs: int
    labels: int
    failures: int
    missing: int
    doubled: int
    stale: int
    orphaned: int
    codes: dict[str, int]
    examples: tuple[str, ...]

    @property
    def is_reconciled(self) -> bool:
        """Whether every job ended exactly once."""
        return self.labels + self.failures == self.jobs and not self.doubled + self.missing + self.stale

    def __str__(self) -> str:
        """Say it in one sentence."""
        endings = f"{counted(self.labels, 'label')} + {counted(self.failures, 'failure')}"
        counts = f"{counted(self.jobs, 'job')} = {endings}"
        if self.is_reconciled:
            return f"Reconciled: {counts}."
        faults = f"{self.missing:,} missing, {self.doubled:,} doubled, {self.stale:,} stale"
        return f"Not reconciled: {counts}, but {faults}, such as {', '.join(self.examples)}; run classify again."


def audit_jobs(engine: Engine, *, dataset: str, spec_id: str, jobs: Sequence[Job]) -> AuditReport:
    """Compare a manifest's jobs with the rows of the database, in one snapshot.

    Raises:
        DatabaseUnavailableError: Postgres did not answer.
    """
    with staged_jobs(engine, jobs) as connection:
        key = {"dataset": dataset, "spec_id": spec_id}
        rows = connection.execute(text(read_query("audit")), key).all()
    return _report(len(jobs), rows)


def _report(jobs: int, rows: Iterable[Row[Any]]) -> AuditReport:
    """Add up the rows of `audit.sql`."""
    counts, codes = Counter[str](), Counter[str]()
    first_ids: dict[str, list[str]] = {fault: [] for fault in _FAULTS}
    for row in rows:
        counts[row.ending] += row.jobs
        if row.ending == "failed":
            codes[row.code] += row.jobs
        if row.ending in first_ids:
            first_ids[row.ending] += row.first_ids
    return AuditReport(
        jobs=jobs,
        labels=counts["labelled"],
        failures=counts["failed"],
        missing=counts["missing"],
        doubled=counts["doubled"],
        stale=counts["stale"],
        orphaned=counts["orphaned"],
        codes=dict(codes.most_common()),
        examples=tuple(job_id for ids in first_ids.values() for job_id in sorted(ids)[:_SHOWN]),
    )
