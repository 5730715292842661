"""The plan of a run: a new one, or the open plan of a run with the same manifest and spec."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from prefect import get_run_logger

from flows.run.selection import Choice
from infra.errors import PlanForeignError, PlanLostError
from reelabel.errors import TransientError
from reelabel.text import pluralize
from tasks.frame_cache.fingerprints import current_fingerprints
from tasks.frame_cache.pool import video_store
from tasks.manifest.chunks import with_chunks
from tasks.manifest.plan_file import PlanWriter, read_shard
from tasks.manifest.shard import split_into_shards
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
from tasks.results.runs import open_run, update_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl
    from sqlalchemy import Engine

    from flows.run.context import RunContext
    from reelabel.sources.object_store import ObjectStore
    from tasks.manifest.table import JobTable

# Jobs of a shard if they are cut into chunks: one film alone may have hundreds, and a shard that is interrupted is
# asked about again from its start.
_CUT_JOBS = 8


@dataclass(slots=True)
class Planner:
    """Makes or joins the plans of a run.

    Attributes:
        context: The run.
        audited_jobs: The jobs that the run's audit covers. A backfill covers its selected jobs only, since the
            others may have no result with a new spec.
        done_before: Indexes of the plan's shards that had ended before the run joined it.
        chosen: Number of jobs that the selection of a backfill chose; None for other runs.
        notes: What a backfill selected from and wrote to, and where else there is what it looked for.
    """

    context: RunContext
    audited_jobs: JobTable
    done_before: list[int] = field(default_factory=list)
    chosen: int | None = None
    notes: tuple[str, ...] = ()
    _only_chunks: dict[str, list[int]] = field(default_factory=dict)
    _is_open: bool = False
    _jobs: int = 0
    _shards: int = 0

    @classmethod
    def of(cls, context: RunContext) -> Planner:
        """Return a planner without a plan."""
        return cls(context, audited_jobs=context.jobs)

    def plan(self) -> Plan | None:
        """Join the open plan of the same manifest and spec, or make one; open the run's row the first time.

        Returns:
            The plan; None if there is nothing to do.
        """
        context = self.context
        with planning_lock(context.database, context.run):
            if context.request.shared:
                version = context.manifest_fingerprint
                joined = find_shared_plan(context.database, context.run, manifest_fingerprint=version)
                if joined and self._is_intact(joined):
                    return self._join(joined)
            return self._make()

    def _is_intact(self, plan: Plan) -> bool:
        """Return whether the files of an open plan can be used; otherwise drop the plan.

        Raises:
            PlanForeignError: It was sealed with another key, and is being worked on.
        """
        try:
            read_shard(self.context.objects, plan.plan_uri, 0, seal=self.context.settings.store.seal)
        except (PlanLostError, PlanForeignError) as error:
            if isinstance(error, PlanForeignError) and plan_state(self.context.database, plan.plan_id).leased:
                raise
            get_run_logger().warning("%s It is dropped, and its unfinished jobs are planned again.", error.message)
            finish_plan(self.context.database, self.context.objects, plan, state="dropped")
            return False
        return True

    def _join(self, plan: Plan) -> Plan:
        left = plan_state(self.context.database, plan.plan_id)
        self.done_before = done_shards(self.context.database, plan.plan_id)
        self._open_run(jobs=left.jobs_left)
        self._record_size(jobs=left.jobs_left, shards=left.planned + left.extracted)
        get_run_logger().info(
            "%s: joined the plan of run %s, with the same manifest and spec.", plan.dataset, plan.run_id
        )
        return plan

    def _make(self) -> Plan | None:
        self._drop_earlier()
        self.done_before = []
        selected = self._select_jobs()
        if self.context.request.selector:
            self.audited_jobs = selected
        warning = self.context.purpose.warn_of_jobs(self.context, selected)
        self._open_run(jobs=len(selected), message=" ".join(filter(None, (*self.notes, warning))))
        plan, shard_jobs = self._write(selected)
        self._record_size(jobs=plan.jobs, shards=plan.shards)
        if not plan.shards:
            return None
        open_plan(self.context.database, plan, shard_jobs)
        return plan

    def _drop_earlier(self) -> None:
        """Drop plans made before this run was restarted, so that workers do not answer jobs twice."""
        for plan in open_plans(self.context.database, run_id=self.context.run.run_id):
            if not plan.shared:  # else other runs may have joined it
                finish_plan(self.context.database, self.context.objects, plan, state="dropped")

    def _select_jobs(self) -> JobTable:
        """Return the jobs to answer."""
        context, request = self.context, self.context.request
        selected = context.jobs
        if request.selector:
            found = request.selector.choose(context.jobs, context.spec)
            selected = found.jobs
            if self.chosen is None:  # a later plan of this run finds its own answers
                self.chosen = len(selected)
                self.notes = (request.selector.earlier.name_specs(context.spec), *found.elsewhere)
                for note in self.notes:
                    get_run_logger().info("%s", note)
        pending = selected if request.force else self._pending(selected)
        choice = Choice(selected=selected, pending=pending, force=request.force)
        self._only_chunks, wanted = choice.by_chunks(
            context.database,
            video_store(context.settings),
            context.run,
            context.spec,
            selector=request.selector,
        )
        return wanted.first(request.limit)

    def _pending(self, selected: JobTable) -> JobTable:
        """Return the jobs that have neither a valid label nor, in other runs than a backfill, a lasting failure."""
        context = self.context
        return pending_jobs(
            context.database,
            context.run,
            jobs=selected,
            fingerprints_of=partial(current_fingerprints, video_store(context.settings)),
            retry_failures=context.request.selector is not None,
            run_id=context.run.run_id,
        )

    def _write(self, selected: JobTable) -> tuple[Plan, list[int]]:
        """Write the shards' files; return the plan, and the number of jobs of each shard."""
        context, plan_id = self.context, uuid4()
        plan_uri = f"{(context.settings.store.uri or '').rstrip('/')}/plans/{plan_id}"
        with PlanWriter(context.objects, plan_uri, seal=context.settings.store.seal) as writer:
            for shards in split_into_shards(self._parts(selected), target_jobs=self._target_jobs):
                writer.add(shards.rows, shards.sizes)
        plan = Plan(
            plan_id=plan_id,
            run_id=context.run.run_id,
            dataset=context.run.dataset,
            spec_id=context.run.spec_id,
            manifest_uri=context.request.manifest,
            manifest_fingerprint=context.manifest_fingerprint,
            kind=context.request.kind,
            shared=context.request.shared,
            plan_uri=plan_uri,
            shards=len(writer.jobs),
            jobs=sum(writer.jobs),
        )
        return plan, writer.jobs

    def _parts(self, selected: JobTable) -> Iterator[pl.DataFrame]:
        chunk_s = self.context.spec.chunk_s
        return selected.parts() if chunk_s is None else with_chunks(selected.parts(), chunk_s, self._only_chunks)

    @property
    def _target_jobs(self) -> int:
        target_jobs = self.context.settings.shard.target_jobs
        return target_jobs if self.context.spec.chunk_s is None else min(target_jobs, _CUT_JOBS)

    def _open_run(self, *, jobs: int, message: str = "") -> None:
        if self._is_open:  # keep what an earlier plan of this run has recorded
            return
        self._is_open = True
        context, total = self.context, self.context.jobs.jobs_in_manifest
        facts = {
            "dataset": context.run.dataset,
            "manifest_uri": context.request.manifest,
            "kind": context.request.kind,
            "native_sampler": context.card.native_sampler if _is_native_known(context) else "",
            "jobs_total": total,
            "jobs_rejected": len(context.jobs.rejects),
            "jobs_skipped": total - jobs,
            "shards_total": 0,
            "host": context.run.host,
            "versions": context.run.versions,
            "message": message,
        }
        setup_ms = sum(context.ledger.spent_ms.values())
        open_run(context.database, run_id=context.run.run_id, spec=context.spec, facts=facts, setup_ms=setup_ms)

    def _record_size(self, *, jobs: int, shards: int) -> None:
        """Record and log how much there is to do."""
        run, total = self.context.run, self.context.jobs.jobs_in_manifest
        self._jobs += jobs
        self._shards += shards
        skipped = max(0, total - self._jobs)  # some may be in two plans
        update_run(self.context.database, run.run_id, shards_total=self._shards, jobs_skipped=skipped)
        get_run_logger().info("%s", size_line(run.dataset, total=total, jobs=jobs, shards=shards, model=run.model))


def size_line(dataset: str, *, total: int, jobs: int, shards: int, model: str) -> str:
    """Say how much a run has to do: of how many jobs of a manifest, in how many shards."""
    return f"{dataset}: {pluralize(total, 'job')}, {jobs:,} to do in {pluralize(shards, 'shard')}, with {model}."


def _is_native_known(context: RunContext) -> bool:
    return context.purpose.has_questions and not context.card.native_doubt


def finish_plan(database: Engine, objects: ObjectStore, plan: Plan, *, state: str) -> None:
    """Close a plan and remove its files, unless another run has done so."""
    if close_plan(database, plan.plan_id, state=state):
        with suppress(TransientError):  # `reelabel maintain` removes what is left
            for info in objects.list(plan.plan_uri):
                objects.remove(info.uri)
