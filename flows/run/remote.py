"""The remote executor: start extract and infer flows on other machines, and watch the plan."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import httpx
from prefect import get_run_logger
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import WorkPoolStatus
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound, PrefectException

from flows.run.artifacts import ProgressArtifact
from flows.run.plan import finish_plan
from flows.run.run_flow import is_stopped_by_user
from flows.shard.retry import retry_outage
from infra.logs import IS_OUTAGE
from reelabel.errors import ConfigurationError, TransientError
from reelabel.text import pluralize
from tasks.domain import RunPhase
from tasks.plans.plan import no_worker_message, plan_state, sum_shard_reports
from tasks.results.runs import list_running, update_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from uuid import UUID

    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun, State

    from flows.run.progress import Progress
    from flows.run.run import Run
    from tasks.plans.lease import Work
    from tasks.plans.plan import Plan, PlanState

_POLL_S = 2.0
# Longer than a worker takes to start, which imports Prefect, and well within half a minute.
PATIENCE_S = 20.0
# By then Prefect has restarted a flow run that crashed for the first time: see `flows.schedule.automations`.
_RESTART_DELAY = timedelta(seconds=30)


def execute_remotely(
    run: Run, plan: Plan, progress: Progress, done_before: Sequence[int], *, model: str | None
) -> None:
    """Start the configured numbers of extract and infer flows, and watch until their plan is drained.

    Workers started by hand or by other runs help; they have settings of their own. `progress` is updated from the
    plan's shards, of which those in `done_before` do not count towards this run. `model` is the model that workers are
    to load; None is the one in their settings.

    Raises:
        ConfigurationError: A deployment does not exist, or all flows of a stage have failed.
    """
    run_id, database, counts = run.key.run_id, run.database, run.settings.run
    key, parameters = f"{run_id}/{plan.plan_id}", {"plan": str(plan.plan_id)}
    extract_flows = _Flows(deployment="extract/cpu", count=counts.extract_flows, parameters=parameters, key=key)
    infer_flows = _Flows(
        deployment="infer/gpu", count=counts.infer_flows, parameters=parameters | {"model": model}, key=key
    )
    alarm = IdleAlarm(model=model, waiting={"extract": extract_flows.waiting, "infer": infer_flows.waiting})
    earlier, left = progress.tally, retry_outage(plan_state, database, plan.plan_id).jobs_left
    artifact = ProgressArtifact(total=progress.jobs_ended + left)

    def show() -> None:
        sums = retry_outage(sum_shard_reports, database, plan.plan_id, excluded=done_before)
        progress.take_over(sums, earlier=earlier)
        retry_outage(update_run, database, run_id, **progress.columns())
        artifact.update(progress.jobs_ended)

    with progress.profile.doing(RunPhase.ELSEWHERE), _dropped_if_stopped(run, plan), artifact:
        extract_flows.start_if_ended()
        infer_flows.start_if_ended()  # at the same time, since the model takes a while to load
        while not (state := retry_outage(plan_state, database, plan.plan_id)).is_drained:
            # Flows may have reached their idle timeout before there was work for them.
            for flows, shards in ((extract_flows, state.planned), (infer_flows, state.extracted)):
                if shards:
                    flows.start_if_ended()
            alarm.check(state)
            show()
            if progress.is_over_budget() and plan.run_id == run_id:  # else its workers go on
                retry_outage(finish_plan, database, run.objects, plan, state="dropped")
            progress.require_budget()
            time.sleep(_POLL_S)
        show()


@dataclass(slots=True, kw_only=True)
class IdleAlarm:
    """Warns when a stage of a plan has had shards, and no worker with a lease, for a while.

    Attributes:
        model: The model to name in commands; None is that of the settings.
        waiting: By stage, a function that describes the flow runs that wait to start; it returns an empty text if there
            are none, and None if one is running, which may be loading its model.
        patience_s: Seconds before the warning, and before it is repeated.
    """

    model: str | None
    waiting: Mapping[str, Callable[[], str | None]]
    patience_s: float = PATIENCE_S
    _since_s: dict[Work, float] = field(default_factory=dict)

    def check(self, state: PlanState) -> None:
        now_s = time.monotonic()
        self._since_s = {stage: self._since_s.get(stage, now_s) for stage in state.idle_stages}
        for stage, since_s in self._since_s.items():
            if now_s - since_s >= self.patience_s:
                self._since_s[stage] = now_s
                if (waiting := self.waiting[stage]()) is not None:
                    parts = (no_worker_message(stage, model=self.model), waiting)
                    get_run_logger().warning("%s.", "; ".join(filter(None, parts)), extra={IS_OUTAGE: True})


@contextmanager
def _dropped_if_stopped(run: Run, plan: Plan) -> Iterator[None]:
    """Drop the plan if the user stops its run, so that no worker continues it; a run whose node was lost resumes it.

    A plan of another run in progress stays, as that run makes no second one.
    """
    try:
        yield
    except BaseException as error:
        if is_stopped_by_user(error):
            with suppress(TransientError):
                others = {each["run_id"] for each in list_running(run.database)} - {run.key.run_id}
                if plan.run_id not in others:
                    finish_plan(run.database, run.objects, plan, state="dropped")
        raise


@dataclass(slots=True, kw_only=True)
class _Flows:
    """The flow runs of one stage.

    Attributes:
        count: Number of concurrent flow runs; 0 leaves the stage to other workers.
        key: Prefix of the idempotency keys by which a retried run finds the flow runs that it has started.
    """

    deployment: str
    count: int
    parameters: dict[str, Any]
    key: str
    _ids: list[UUID] = field(default_factory=list)

    def start(self) -> None:
        """Start flow runs up to `count`, replacing those that have ended."""
        self._ids = [self._start_one(f"{self.key}/{self.deployment}/{number}") for number in range(self.count)]
        if self._ids:
            get_run_logger().info("Started %s flow runs of %s.", self.count, self.deployment)

    def start_if_ended(self) -> None:
        """Start flow runs if there are none, or all have ended; if Prefect does not answer, the next call does.

        Raises:
            PrefectHTTPStatusError: Prefect refuses the first ones.
        """
        try:
            if self.have_ended():
                self.start()
        except httpx.HTTPError as error:  # workers need Prefect only to start
            if not self._ids and isinstance(error, httpx.HTTPStatusError) and error.response.is_client_error:
                raise
            get_run_logger().warning(
                "Prefect did not answer (%s); the plan goes on.", type(error).__name__, extra={IS_OUTAGE: True}
            )

    def have_ended(self) -> bool:
        """Return whether none is running or about to be restarted; deleted ones have ended."""
        with get_client(sync_client=True) as client:
            runs = [_find(client, flow_run_id) for flow_run_id in self._ids]
        states = [run.state for run in runs if run]
        if not all(state and _has_ended(state) for state in states):
            return False
        failed = [state for state in states if state and not state.is_completed()]
        if failed and len(failed) == len(runs):
            raise ConfigurationError(
                f"All flow runs of {self.deployment} ended as {failed[0].name}: {failed[0].message} "
                "See their logs in Prefect; run the same command again to continue."
            )
        return True

    def waiting(self) -> str | None:
        """Describe the flow runs that wait, and for what; empty if there are none, None if one runs."""
        with suppress(httpx.HTTPError, PrefectException), get_client(sync_client=True) as client:
            runs = [client.read_flow_run(flow_run_id) for flow_run_id in self._ids]
            states = [run.state for run in runs if run.state]
            if any(state.is_running() for state in states):
                return None
            waiting = [state for state in states if not state.is_final()]
            if not waiting or not runs[0].work_pool_name:
                return ""
            pool = client.read_work_pool(runs[0].work_pool_name)
            what = f"{pluralize(len(waiting), 'flow run')} of {self.deployment}"
            if pool.is_paused:
                return f"{what} in work pool {pool.name}, which is paused"
            if pool.status == WorkPoolStatus.NOT_READY:
                return f"{what} waiting for a Prefect worker of work pool {pool.name} ({pool.type})"
            return f"{what} in state {waiting[0].name}"
        return ""

    def _start_one(self, key: str) -> UUID:
        for attempt in count(1):
            flow_run = self._find_or_start(f"{key}/{attempt}")
            if not flow_run.state.is_final():  # else an earlier attempt of this run started it, and it has ended
                break
        found: UUID = flow_run.id
        return found

    def _find_or_start(self, key: str) -> Any:  # noqa: ANN401 - Prefect's is typed as a coroutine, too
        try:
            return run_deployment(
                self.deployment, parameters=self.parameters, timeout=0, as_subflow=False, idempotency_key=key
            )
        except ObjectNotFound:
            raise ConfigurationError(
                f"Deployment {self.deployment} does not exist; create it with `reelabel deploy`, "
                "or set run.executor to local."
            ) from None


def _find(client: SyncPrefectClient, flow_run_id: UUID) -> FlowRun | None:
    try:
        return client.read_flow_run(flow_run_id)
    except ObjectNotFound:  # deleted in Prefect
        return None


def _has_ended(state: State) -> bool:
    is_recent = datetime.now(UTC) - state.timestamp < _RESTART_DELAY
    return state.is_final() and not (state.is_crashed() and is_recent)
