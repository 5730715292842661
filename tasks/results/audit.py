"""The proof that every job of a manifest ended as exactly one label or one failure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import select

from infra.database import database_errors
from tasks.results.tables import FAILURE, RESULT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine, Table

    from tasks.domain import Job

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
        counts = f"{self.jobs:,} jobs = {self.labels:,} labels + {self.failures:,} failures"
        if self.is_reconciled:
            return f"Reconciled: {counts}."
        faults = f"{self.missing:,} missing, {self.doubled:,} doubled, {self.stale:,} stale"
        return f"Not reconciled: {counts}, but {faults}, such as {', '.join(self.examples)}; run classify again."


def audit_jobs(engine: Engine, *, dataset: str, spec_id: str, jobs: Sequence[Job]) -> AuditReport:
    """Compare a manifest's jobs with the rows of the database."""
    labels = _digests(engine, RESULT, dataset, spec_id)
    failures = _digests(engine, FAILURE, dataset, spec_id)
    faults: dict[str, list[str]] = {"missing": [], "doubled": [], "stale": []}
    labelled, failed = 0, Counter[str]()
    for job in jobs:
        label, failure = labels.get(job.job_id), failures.get(job.job_id)
        if label and failure:
            faults["doubled"].append(job.job_id)
        elif row := label or failure:
            if row[0] != job.digest:
                faults["stale"].append(job.job_id)
            elif label:
                labelled += 1
            else:
                failed[row[1]] += 1
        else:
            faults["missing"].append(job.job_id)
    known = {job.job_id for job in jobs}
    return AuditReport(
        jobs=len(jobs),
        labels=labelled,
        failures=failed.total(),
        missing=len(faults["missing"]),
        doubled=len(faults["doubled"]),
        stale=len(faults["stale"]),
        orphaned=len((labels.keys() | failures.keys()) - known),
        codes=dict(failed.most_common()),
        examples=tuple(job_id for ids in faults.values() for job_id in ids[:_SHOWN]),
    )


def _digests(engine: Engine, table: Table, dataset: str, spec_id: str) -> dict[str, tuple[str, str]]:
    what = table.c.code if "code" in table.c else table.c.label
    query = select(table.c.job_id, table.c.job_digest, what)
    query = query.where(table.c.dataset == dataset, table.c.spec_id == spec_id)
    with database_errors(), engine.connect() as connection:
        return {row[0]: (row[1], row[2]) for row in connection.execute(query)}
