"""The plan of a run: a new one, or the open plan of a run with the same manifest and spec."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from prefect import get_run_logger

from reelabel.errors import TransientError
from tasks.frame_cache.fingerprints import current_fingerprints
from tasks.manifest.plan_file import PlanWriter
from tasks.manifest.shard import split_into_shards
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
from tasks.results.runs import open_run, update_run

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from flows.run.context import RunContext
    from reelabel.sources.object_store import ObjectStore
    from tasks.manifest.table import JobTable


@dataclass(slots=True)
class Planner:
    """Plans a run.

    Attributes:
        ready: The run.
        audited_jobs: The jobs that the run's audit covers. A backfill covers its selected jobs only, since the
            others may have no result with a new spec.
        done_before: Indexes of the plan's shards that had ended before the run joined it.
    """

    ready: RunContext
    audited_jobs: JobTable
    done_before: list[int] = field(default_factory=list)
    _is_open: bool = False
    _jobs: int = 0
    _shards: int = 0

    @classmethod
    def of(cls, ready: RunContext) -> Planner:
        """Return a planner without a plan."""
        return cls(ready, audited_jobs=ready.jobs)

    def plan(self) -> Plan | None:
        """Join the open plan of the same manifest and spec, or make one; open the run's row the first time.

        Returns:
            The plan; None if there is nothing to do.
        """
        ready = self.ready
        key = {"dataset": ready.run.dataset, "spec_id": ready.run.spec_id}
        with planning_lock(ready.database, **key):
            if ready.request.shared:
                version = ready.manifest_fingerprint
                joined = find_shared_plan(ready.database, manifest_fingerprint=version, **key)
                if joined:
                    return self._join(joined)
            return self._make()

    def _join(self, plan: Plan) -> Plan:
        left = plan_state(self.ready.database, plan.plan_id)
        self.done_before = done_shards(self.ready.database, plan.plan_id)
        self._open_run(jobs=left.jobs_left)
        self._record_size(jobs=left.jobs_left, shards=left.planned + left.extracted)
        get_run_logger().info(
            "%s: joined the plan of run %s, with the same manifest and spec.", plan.dataset, plan.run_id
        )
        return plan

    def _make(self) -> Plan | None:
        self._drop_earlier()
        self.done_before = []
        wanted = self._wanted()
        if self.ready.request.choosing:
            self.audited_jobs = wanted
        self._open_run(jobs=len(wanted), message=self._warn_of_ambiguous(wanted))
        plan, shard_jobs = self._write(wanted)
        self._record_size(jobs=plan.jobs, shards=plan.shards)
        if not plan.shards:
            return None
        open_plan(self.ready.database, plan, shard_jobs)
        return plan

    def _drop_earlier(self) -> None:
        """Drop plans made before this run was restarted, so that workers do not answer jobs twice."""
        for plan in open_plans(self.ready.database, run_id=self.ready.run.run_id):
            if not plan.shared:  # else other runs may have joined it
                finish_plan(self.ready.database, self.ready.objects, plan, state="dropped")

    def _wanted(self) -> JobTable:
        """Return the jobs to answer."""
        ready, request = self.ready, self.ready.request
        wanted = request.choosing.choose(ready.jobs, ready.spec) if request.choosing else ready.jobs
        if not request.force:
            wanted = pending_jobs(
                ready.database,
                dataset=ready.run.dataset,
                spec_id=ready.run.spec_id,
                jobs=wanted,
                fingerprints_of=partial(current_fingerprints, ready.objects),
                retry_failures=request.choosing is not None,
                run_id=ready.run.run_id,
            )
        return wanted.first(request.limit)

    def _warn_of_ambiguous(self, wanted: JobTable) -> str:
        """Warn of jobs whose choices cannot be told apart, before any work; empty if there are none."""
        encode = load_tokenizer(self.ready.card) if len(wanted) else None
        scoring = self.ready.spec.choice_scoring
        found = find_ambiguous_jobs(wanted.parts(), scoring=scoring, encode=encode) if encode else None
        if found:
            get_run_logger().warning("%s", found)
        return str(found or "")

    def _write(self, wanted: JobTable) -> tuple[Plan, list[int]]:
        """Write the shards' files; return the plan, and the number of jobs of each shard."""
        ready, plan_id = self.ready, uuid4()
        plan_uri = f"{(ready.settings.store.uri or '').rstrip('/')}/plans/{plan_id}"
        with PlanWriter(ready.objects, plan_uri) as writer:
            for shards in split_into_shards(wanted.parts(), target_jobs=ready.settings.shard.target_jobs):
                writer.add(shards.rows, shards.sizes)
        plan = Plan(
            plan_id=plan_id,
            run_id=ready.run.run_id,
            dataset=ready.run.dataset,
            spec_id=ready.run.spec_id,
            manifest_uri=ready.request.manifest,
            manifest_fingerprint=ready.manifest_fingerprint,
            kind=ready.request.kind,
            shared=ready.request.shared,
            plan_uri=plan_uri,
            shards=len(writer.jobs),
            jobs=sum(writer.jobs),
        )
        return plan, writer.jobs

    def _open_run(self, *, jobs: int, message: str = "") -> None:
        if self._is_open:  # keeps what an earlier plan of this run recorded
            return
        self._is_open = True
        ready, rows = self.ready, self.ready.jobs.rows
        facts = {
            "dataset": ready.run.dataset,
            "manifest_uri": ready.request.manifest,
            "kind": ready.request.kind,
            "jobs_total": rows,
            "jobs_skipped": rows - jobs,
            "shards_total": 0,
            "host": ready.run.host,
            "versions": ready.run.versions,
            "message": message,
        }
        open_run(ready.database, run_id=ready.run.run_id, spec=ready.spec, facts=facts)

    def _record_size(self, *, jobs: int, shards: int) -> None:
        """Record and log how much there is to do."""
        run, rows = self.ready.run, self.ready.jobs.rows
        self._jobs += jobs
        self._shards += shards
        skipped = max(0, rows - self._jobs)  # some may be in two plans
        update_run(self.ready.database, run.run_id, shards_total=self._shards, jobs_skipped=skipped)
        get_run_logger().info(
            "%s: %s jobs, %s to answer in %s shards, with %s.",
            run.dataset,
            f"{rows:,}",
            f"{jobs:,}",
            f"{shards:,}",
            run.model,
        )


def finish_plan(database: Engine, objects: ObjectStore, plan: Plan, *, state: str) -> None:
    """Close a plan and remove its files, unless another run has done so."""
    if close_plan(database, plan.plan_id, state=state):
        with suppress(TransientError):  # `reelabel maintain` removes what is left
            for info in objects.list(plan.plan_uri):
                objects.remove(info.uri)
