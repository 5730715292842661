"""The content of a report, gathered from the database, the manifest and the frame cache."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from infra.database.connect import database_errors
from reelabel.errors import ConfigurationError
from reelabel.sources.object_info import redact_uri
from reelabel.text import pluralize
from tasks.database.scope import Scope
from tasks.database.tables import FAILURE, RESULT
from tasks.domain.chunks import split_chunk_id
from tasks.report.choose import MAX_JOBS, choose_jobs
from tasks.report.counts import (
    calibration_error,
    count_choice_masses,
    count_labels,
    count_margins,
    measure_reliability,
    score_tasks,
)
from tasks.report.earlier import count_other_ways, earlier_runs, find_changes
from tasks.report.findings import find_caveats, find_slowest, group_failures
from tasks.report.glance import summarize
from tasks.report.jobs import Sources, read_shown
from tasks.report.timeline import read_timeline
from tasks.report.trade import select_trade_off
from tasks.results.evaluation.evaluations import last_evaluation
from tasks.results.evaluation.routing import read_routing
from tasks.results.runs import short_ids

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from sqlalchemy import Engine, RowMapping

    from reelabel.frames.cache import FrameCache
    from reelabel.sources.object_store import ObjectStore
    from tasks.domain import RunSpec
    from tasks.report.counts import Bin, LabelCount, Reliability, TaskAccuracy
    from tasks.report.earlier import Changes, RunFigures
    from tasks.report.findings import FailureGroup, SlowJob
    from tasks.report.glance import Glance
    from tasks.report.jobs import ShownJobs
    from tasks.report.timeline import Timeline
    from tasks.report.trade import TradeOff
    from tasks.results.evaluation.routing import Routing

_MAX_VIDEOS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A run, and the current labels and failures of its dataset and spec.

    Attributes:
        labels: Number of current labels, from this run and others with the same spec.
        choice_masses: Histogram of the probability of all choices together, in 20 bins.
        failures: Number of current failures.
        sampling: Sampling options by name.
        native_sampler: Name of the sampler that the model was trained with; empty if unknown.
        runs: Latest runs of the manifest, this one first.
        names: The shortest prefixes of their ids that name no other run.
        changes: Comparison with an earlier run with another spec; None if there is none.
        routing: The routes of this run's labels; None if its spec has only one.
        other_ways: Number of other specs and datasets under which the manifest was answered, at any time.
        trade: The latest evaluation of the dataset; None if there is none.
    """

    glance: Glance
    labels: int
    failures: int
    sampling: dict[str, object]
    native_sampler: str
    label_counts: tuple[LabelCount, ...]
    margins: tuple[Bin, ...]
    choice_masses: tuple[Bin, ...]
    reliability: tuple[Reliability, ...]
    tasks: tuple[TaskAccuracy, ...]
    routing: Routing | None
    failure_groups: tuple[FailureGroup, ...]
    caveats: tuple[str, ...]
    slowest: tuple[SlowJob, ...]
    timeline: Timeline | None
    runs: tuple[RunFigures, ...]
    names: Mapping[UUID, str]
    changes: Changes | None
    other_ways: int
    trade: TradeOff | None
    shown: ShownJobs
    made_at: datetime

    @property
    def known(self) -> int:
        """Number of labels whose answer is known."""
        return sum(task.known for task in self.tasks)

    @property
    def accuracy(self) -> float | None:
        """Share of those labels that are correct; None if no answer is known."""
        return sum(task.right for task in self.tasks) / self.known if self.known else None

    @property
    def calibration_error(self) -> float | None:
        """Mean gap between confidence and accuracy; None if no answer is known."""
        return calibration_error(self.reliability)


def gather(
    engine: Engine,
    objects: ObjectStore,
    run: RowMapping,
    spec: RunSpec | None,
    *,
    cache: FrameCache,
    job_ids: Sequence[str] = (),
) -> Report:
    """Gather the content of a report, with the named jobs in any case.

    `spec` is that of the run; None if this version cannot read it. The id of a chunk stands for its job, with the
    frames of that chunk.

    Raises:
        ConfigurationError: A named job has no row, or too many jobs are named.
        TransientError: A service is unavailable.
    """
    named = len(set(job_ids))
    if named > MAX_JOBS:
        raise ConfigurationError(f"A report shows at most {MAX_JOBS} jobs, but {named:,} were named; name fewer.")
    scope = Scope.of(run)
    job_ids, named_chunks = _split(job_ids) if spec and spec.chunk_s is not None else (job_ids, {})
    evaluation = last_evaluation(engine, dataset=scope.dataset)
    routing = read_routing(engine, scope, run_id=run["run_id"])
    with database_errors(), engine.connect() as connection:
        runs = earlier_runs(connection, run)
        names = short_ids(engine, [each.run_id for each in runs])
        changes = find_changes(connection, scope, runs)
        before = dict(changes.job_ids) if changes else {}
        shown = read_shown(
            connection,
            scope,
            Sources(
                manifest_uri=run["manifest_uri"],
                spec=spec,
                native_sampler=run["native_sampler"],
                objects=objects,
                cache=cache,
            ),
            reasons=choose_jobs(connection, scope, named=job_ids, changed=before),
            before=before,
            named_chunks=named_chunks,
            max_videos=_MAX_VIDEOS,
        )
        _require(job_ids, shown, scope)
        return Report(
            glance=summarize(run, model=spec.model.name if spec else ""),
            labels=scope.count(connection, RESULT),
            failures=scope.count(connection, FAILURE),
            sampling=spec.sampling.to_dict() if spec else {},
            native_sampler=run["native_sampler"],
            label_counts=count_labels(connection, scope),
            margins=count_margins(connection, scope),
            choice_masses=count_choice_masses(connection, scope),
            reliability=measure_reliability(connection, scope),
            tasks=score_tasks(connection, scope),
            routing=routing,
            failure_groups=group_failures(connection, scope),
            caveats=find_caveats(connection, scope, run),
            slowest=find_slowest(connection, scope, run["run_id"]),
            timeline=read_timeline(connection, scope, run),
            runs=runs,
            names=names,
            changes=changes,
            other_ways=count_other_ways(connection, run),
            trade=select_trade_off(evaluation, scope.spec_id) if evaluation else None,
            shown=shown,
            made_at=datetime.now(UTC),
        )


def _split(ids: Sequence[str]) -> tuple[Sequence[str], dict[str, set[int]]]:
    """Return the jobs that ids of jobs and chunks name, and the numbers of the chunks, by job."""
    chunks: dict[str, set[int]] = {job_id: set() for job_id, _ in map(split_chunk_id, ids)}
    for job_id, number in map(split_chunk_id, ids):
        if number is not None:
            chunks[job_id].add(number)
    return list(chunks), chunks


def _require(job_ids: Sequence[str], shown: ShownJobs, scope: Scope) -> None:
    missing = sorted(set(job_ids) - {job.job_id for job in shown.jobs})
    if missing:
        raise ConfigurationError(
            f"{pluralize(len(missing), 'job')} without a label or failure in dataset {scope.dataset}, such as "
            f"{redact_uri(missing[0])}; to list them all: `reelabel audit --list FILE`."
        )
