"""The plan of a run: a new one, or the open plan of a run with the same manifest and spec."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING
from uuid import uuid4

import polars as pl
from prefect import get_run_logger

from infra.errors import PlanForeignError, PlanLostError
from reelabel.errors import ReelabelError, TransientError
from reelabel.frames.cache_key import decoder_versions
from reelabel.text import pluralize
from tasks.domain import RunSpec
from tasks.frame_cache.pool import current_fingerprints, video_store
from tasks.manifest.plan_file import PlanWriter, read_shard, split_into_shards
from tasks.model.prompts.ambiguity import find_ambiguous_jobs, load_tokenizer
from tasks.plans.plan import (
    Plan,
    close_plan,
    done_shards,
    find_shared_plan,
    open_plan,
    open_plans,
    plan_state,
    planning_lock,
)
from tasks.results.pending import pending_jobs
from tasks.results.read import count_rows_of_run
from tasks.results.runs import open_run, update_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from flows.run.run import Run
    from reelabel.sources.object_store import ObjectStore
    from tasks.manifest.table import JobTable
    from tasks.results.choose import ChosenJobs

# Jobs of a shard if they are cut into chunks: a film alone may have hundreds, and an interrupted shard starts over.
_CUT_JOBS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedJobs:
    """The jobs that a run answers.

    Attributes:
        jobs: These jobs, at most as many as the selection's limit.
        pending: Their number without that limit.
        chosen: The jobs that the selection of a backfill matches, finished or not; None for other runs.
    """

    jobs: JobTable
    pending: int
    chosen: ChosenJobs | None


def select_jobs(run: Run) -> SelectedJobs:
    """Select the jobs that a run has to answer now.

    Raises:
        ConfigurationError: Postgres rejects the user's SQL, or an id is not in the manifest.
    """
    selector = run.selector
    chosen = selector.choose(run.jobs, run.spec) if selector else None
    pending = chosen.jobs if chosen else run.jobs
    if not run.request.force:
        pending = pending_jobs(
            run.database,
            run.key,
            jobs=pending,
            fingerprints_of=partial(current_fingerprints, video_store(run.settings)),
            retry_failures=selector is not None,
            run_id=run.key.run_id,
        )
    limit = selector.selection.limit if selector else None
    if limit is not None and not run.request.force:  # a restarted run has answered some
        limit = max(0, limit - count_rows_of_run(run.database, run.key.run_id))
    return SelectedJobs(jobs=pending.first(limit), pending=len(pending), chosen=chosen)


@dataclass(slots=True)
class Planner:
    """Makes or joins the plans of a run.

    Attributes:
        audited_jobs: The jobs that the run's audit covers. A backfill covers its selected jobs only, since the
            others may have no result with a new spec.
        done_before: Indexes of the plan's shards that had ended before the run joined it.
        chosen: Number of jobs that the selection of a backfill chose; None for other runs.
        notes: The specs that a backfill selects from and writes to, and other specs that have matching jobs.
    """

    run: Run
    audited_jobs: JobTable = field(init=False)
    done_before: list[int] = field(default_factory=list)
    chosen: int | None = None
    notes: tuple[str, ...] = ()
    _is_open: bool = False
    _jobs: int = 0
    _shards: int = 0

    def __post_init__(self) -> None:
        self.audited_jobs = self.run.jobs

    def plan(self) -> Plan | None:
        """Join the open plan of the same manifest and spec, or make one; open the run's row the first time.

        It may be called again if a service was unavailable.

        Returns:
            The plan; None if there is nothing to do.
        """
        run, counted = self.run, (self._jobs, self._shards)
        try:
            with planning_lock(run.database, run.key):
                if run.is_shared:
                    version = run.manifest_fingerprint
                    joined = find_shared_plan(run.database, run.key, manifest_fingerprint=version)
                    if joined and self._can_read(joined):
                        return self._join(joined)
                return self._make()
        except TransientError:
            self._jobs, self._shards = counted
            raise

    def _can_read(self, plan: Plan) -> bool:
        try:
            read_shard(self.run.objects, plan.plan_uri, 0, seal=self.run.settings.store.seal)
        except (PlanLostError, PlanForeignError) as error:
            if isinstance(error, PlanForeignError) and plan_state(self.run.database, plan.plan_id).leased:
                raise
            get_run_logger().warning("%s Dropping it and replanning its unfinished jobs.", error.message)
            finish_plan(self.run.database, self.run.objects, plan, state="dropped")
            return False
        return True

    def _join(self, plan: Plan) -> Plan:
        left = plan_state(self.run.database, plan.plan_id)
        self.done_before = done_shards(self.run.database, plan.plan_id)
        self._open_run(jobs=left.jobs_left)
        self._record_size(jobs=left.jobs_left, shards=left.planned + left.extracted)
        get_run_logger().info(
            "%s: resuming the open plan of run %s (same manifest and spec).", plan.dataset, plan.run_id
        )
        return plan

    def _make(self) -> Plan | None:
        self._drop_earlier()
        self.done_before = []
        selected = self._select_jobs()
        if self.run.selector:
            self.audited_jobs = selected
        notes = (*self.notes, self._warn_of_ambiguous(selected), self._describe_duplicates(selected))
        self._open_run(jobs=len(selected), message=" ".join(filter(None, notes)))
        plan, shard_jobs = self._write(selected)
        self._record_size(jobs=plan.jobs, shards=plan.shards)
        if not plan.shards:
            return None
        open_plan(self.run.database, plan, shard_jobs)
        return plan

    def _warn_of_ambiguous(self, selected: JobTable) -> str:
        spec = self.run.spec
        if not isinstance(spec, RunSpec) or not len(selected):
            return ""
        encode = load_tokenizer(self.run.prepared.model_info)
        found = find_ambiguous_jobs(selected.parts(), scoring=spec.choice_scoring, encode=encode) if encode else None
        if found:
            get_run_logger().warning("%s", found)
        return str(found or "")

    def _describe_duplicates(self, selected: JobTable) -> str:
        duplicates = self.run.prepared.duplicates
        if not duplicates or not len(selected):
            return ""
        summary = duplicates.describe(selected)
        get_run_logger().info("%s", summary)
        return f"{summary} {duplicates.warning}." if duplicates.warning else summary

    def _drop_earlier(self) -> None:
        """Drop plans made before this run was restarted, so that workers do not answer jobs twice."""
        for plan in open_plans(self.run.database, run_id=self.run.key.run_id):
            if not plan.shared:  # else other runs may have joined it
                finish_plan(self.run.database, self.run.objects, plan, state="dropped")

    def _select_jobs(self) -> JobTable:
        selector, selected = self.run.selector, select_jobs(self.run)
        if selector and selected.chosen and self.chosen is None:  # a later plan of this run finds its own answers
            self.chosen = len(selected.chosen.jobs)
            self.notes = (selector.earlier.name_specs(self.run.spec), *selected.chosen.elsewhere)
            for note in self.notes:
                get_run_logger().info("%s", note)
        return selected.jobs

    def _write(self, selected: JobTable) -> tuple[Plan, list[int]]:
        run, plan_id = self.run, uuid4()
        plan_uri = f"{(run.settings.store.uri or '').rstrip('/')}/plans/{plan_id}"
        with PlanWriter(run.objects, plan_uri, seal=run.settings.store.seal) as writer:
            for shards in split_into_shards(self._parts(selected), target_jobs=self._target_jobs):
                writer.add(shards.rows, shards.sizes)
        plan = Plan(
            plan_id=plan_id,
            run_id=run.key.run_id,
            dataset=run.key.dataset,
            spec_id=run.key.spec_id,
            manifest_uri=run.request.manifest,
            manifest_fingerprint=run.manifest_fingerprint,
            kind=run.request.kind,
            shared=run.is_shared,
            plan_uri=plan_uri,
            shards=len(writer.jobs),
            jobs=sum(writer.jobs),
        )
        return plan, writer.jobs

    def _parts(self, selected: JobTable) -> Iterator[pl.DataFrame]:
        chunk_s, duplicates = self.run.spec.chunk_s, self.run.prepared.duplicates
        if duplicates:
            return duplicates.grouped(selected)
        parts = selected.parts()
        if chunk_s is None:
            return parts
        columns = {"chunk_s": pl.lit(chunk_s), "asks_again": pl.lit(self.run.request.force)}
        return (part.with_columns(**columns) for part in parts)

    @property
    def _target_jobs(self) -> int:
        target_jobs = self.run.settings.shard.target_jobs
        return target_jobs if self.run.spec.chunk_s is None else min(target_jobs, _CUT_JOBS)

    def _open_run(self, *, jobs: int, message: str = "") -> None:
        if self._is_open:  # keep what an earlier plan of this run has recorded
            return
        self._is_open = True
        run, model_info, total = self.run, self.run.prepared.model_info, self.run.jobs.jobs_in_manifest
        facts = {
            "dataset": run.key.dataset,
            "manifest_uri": run.request.manifest,
            "kind": run.request.kind,
            "native_sampler": model_info.native_sampler if run.has_questions and not model_info.native_doubt else "",
            "jobs_total": total,
            "jobs_rejected": len(run.jobs.rejects),
            "jobs_skipped": total - jobs,
            "shards_total": 0,
            "host": run.key.host,
            "versions": decoder_versions() | {"reelabel": version("reelabel")},
            "message": message,
        }
        setup_ms = sum(run.profile.spent_ms.values())
        open_run(run.database, run_id=run.key.run_id, spec=run.spec, facts=facts, setup_ms=setup_ms)

    def _record_size(self, *, jobs: int, shards: int) -> None:
        key, total, model = self.run.key, self.run.jobs.jobs_in_manifest, self.run.prepared.model_info.identity.name
        self._jobs += jobs
        self._shards += shards
        skipped = max(0, total - self._jobs)  # some may be in two plans
        update_run(self.run.database, key.run_id, shards_total=self._shards, jobs_skipped=skipped)
        get_run_logger().info("%s", size_line(key.dataset, total=total, jobs=jobs, shards=shards, model=model))


def size_line(dataset: str, *, total: int, jobs: int, shards: int, model: str) -> str:
    """Return a sentence on the jobs that a run has to do."""
    return f"{dataset}: {pluralize(total, 'job')}, {jobs:,} to do in {pluralize(shards, 'shard')}, with {model}."


def finish_plan(database: Engine, objects: ObjectStore, plan: Plan, *, state: str) -> None:
    """Close a plan and remove its files, unless another run has done so."""
    if close_plan(database, plan.plan_id, state=state):
        try:
            for info in objects.list(plan.plan_uri):
                objects.remove(info.uri)
        except ReelabelError as error:  # an outage, or no right to remove files; `reelabel maintain` tries again
            get_run_logger().warning("Files of the plan were not removed: %s", error.message)
