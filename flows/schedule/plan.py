"""The plan of a deployment: what differs from what is deployed, and what its operators have set is kept."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal
from zoneinfo import ZoneInfo

from prefect.client.schemas.actions import DeploymentScheduleCreate, DeploymentUpdate
from prefect.client.schemas.schedules import CronSchedule
from prefect.server.schemas.schedules import SCHEDULE_TYPES as CALENDARS
from pydantic import TypeAdapter

from flows.run.names import PREFECT_VARIABLES, TAG
from flows.schedule.form import form_of
from flows.schedule.wanted import Limit
from reelabel.digest import json_digest

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import DeploymentSchedule
    from prefect.client.schemas.responses import DeploymentResponse

    from flows.schedule.wanted import Timetable, Wanted

_ENVIRONMENT = {
    "PYTHONSAFEPATH": "1",  # a tasks.py in the working folder must not shadow our package
    **PREFECT_VARIABLES,
}
_CALENDAR: TypeAdapter[Any] = TypeAdapter(CALENDARS)
_SLUG = f"{TAG}-"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentPlan:
    """What a deploy does to one deployment.

    Attributes:
        name: Name with that of the flow.
        pool: Its work pool.
        is_new: Whether it does not exist yet.
        changes: What changes, each as `name: old → new`.
        kept: What an operator has set in Prefect, and is kept although the settings ask for something else.
        paused: Whether it is paused afterwards, and why; empty if it is not.
        next_run: Its next scheduled run, in the schedule's time zone; None if there is none.
        parameters: Its parameters afterwards.
        payload: Fields of the deployment to write.
        schedule: Our schedule to write; None leaves the schedules alone.
        deployed: The deployment as it is.
        ours: The schedule that an earlier deploy made.
    """

    name: str
    pool: str
    is_new: bool
    changes: list[str]
    kept: list[str]
    paused: str
    next_run: datetime | None
    parameters: dict[str, Any] = field(repr=False)
    payload: dict[str, Any] = field(repr=False)
    schedule: DeploymentScheduleCreate | None = field(repr=False)
    deployed: DeploymentResponse | None = field(repr=False)
    ours: DeploymentSchedule | None = field(repr=False)

    @property
    def state(self) -> Literal["new", "changed", "unchanged"]:
        """What happens to it, in one word."""
        return "new" if self.is_new else "changed" if self.changes else "unchanged"

    def lines(self) -> list[str]:
        """Describe it: a line with its next run, then one for each change and for what is kept."""
        when = f"next run {self.next_run:%Y-%m-%d %H:%M %Z}" if self.next_run else ""
        head = ", ".join(filter(None, (self.state, self.paused, when)))
        return [f"{self.name}: {head}", *(f"  {line}" for line in (*self.changes, *self.kept))]

    def apply(self, client: SyncPrefectClient) -> None:
        """Write what differs; schedules other than ours are left alone."""
        if self.deployed is None:
            flow, _, name = self.name.partition("/")
            client.create_deployment(
                client.create_flow_from_name(flow),
                name,
                schedules=[self.schedule] if self.schedule else [],
                pull_steps=[],
                **self.payload,
            )
            return
        if self.payload:
            client.update_deployment(self.deployed.id, DeploymentUpdate(**self.payload))
        if self.schedule and self.ours:
            client.update_deployment_schedule(
                self.deployed.id,
                self.ours.id,
                active=self.schedule.active,
                schedule=self.schedule.schedule,
                slug=self.schedule.slug,
                parameters=self.ours.parameters,
            )
        elif self.schedule:
            client.create_deployment_schedules(self.deployed.id, [self.schedule])


def plan_deployment(wanted: Wanted, deployed: DeploymentResponse | None, *, unpause: bool) -> DeploymentPlan:
    """Compare what the settings ask for with what is deployed, if anything.

    With `unpause`, the pause and the schedule that an operator has set in Prefect are replaced, too.
    """
    draft = _Draft(wanted, deployed, unpause=unpause)
    return draft.plan()


class _Draft:
    """A plan in the making."""

    def __init__(self, wanted: Wanted, deployed: DeploymentResponse | None, *, unpause: bool) -> None:
        self._wanted, self._deployed, self._unpause = wanted, deployed, unpause
        self._changes: list[str] = []
        self._kept: list[str] = []
        self._payload: dict[str, Any] = {}
        self._schedule: DeploymentScheduleCreate | None = None
        self._ours = our_schedule(deployed) if deployed else None

    def plan(self) -> DeploymentPlan:
        """Compare everything."""
        pool, parameters = self._set_pool(), self._set_parameters()
        self._set_limit()
        self._set_form()
        if self._wanted.timetable:
            self._set_schedule(self._wanted.timetable)
        paused = self._set_paused(parameters)
        return DeploymentPlan(
            name=self._wanted.full_name,
            pool=pool,
            is_new=self._deployed is None,
            changes=self._changes,
            kept=self._kept,
            paused=paused,
            next_run=None if paused else self._next_run(),
            parameters=parameters,
            payload=self._payload,
            schedule=self._schedule,
            deployed=self._deployed,
            ours=self._ours,
        )

    def _change(self, what: str, old: object, new: object) -> None:
        if self._deployed:
            self._changes.append(f"{what}: {_shown(old)} → {_shown(new)}")
        else:
            self._changes.append(f"{what}: {_shown(new)}")

    def _set_pool(self) -> str:
        wanted, before = self._wanted, self._deployed and self._deployed.work_pool_name
        pool = wanted.pool if wanted.is_pool_named or not before else before
        if pool != before:
            self._payload["work_pool_name"] = pool
            self._change("work pool", before, pool)
        return pool

    def _set_parameters(self) -> dict[str, Any]:
        wanted = self._wanted
        before = dict(self._deployed.parameters) if self._deployed else wanted.defaults
        after = before | wanted.parameters
        if wanted.derive:
            earlier = wanted.derive(before)
            derived = {name: value for name, value in wanted.derive(after).items() if name not in wanted.parameters}
            after |= {name: value for name, value in derived.items() if before.get(name) in {None, earlier[name]}}
        if self._deployed is None or after != before:
            self._payload["parameters"] = after
        for name, value in sorted(after.items()):
            if value != before.get(name) or (self._deployed is None and value is not None):
                self._change(name, before.get(name), value)
        return after

    def _set_limit(self) -> None:
        wanted, before = self._wanted, _limit_of(self._deployed)
        if self._deployed and not wanted.is_limit_named:
            return
        if wanted.limit == before:
            return
        self._payload["concurrency_limit"] = wanted.limit and wanted.limit.runs
        if wanted.limit:
            self._payload["concurrency_options"] = {"collision_strategy": wanted.limit.strategy}
        self._change("concurrent runs", _limit_shown(before), _limit_shown(wanted.limit))

    def _set_form(self) -> None:
        """Compare what comes with the installed version: the form, and the environment of runs."""
        flow, deployed = self._wanted.flow, self._deployed
        variables = dict(deployed.job_variables) if deployed else {}
        variables["env"] = {**(variables.get("env") or {}), **_ENVIRONMENT}
        asked = {
            "description": flow.description,
            "entrypoint": f"{flow.__module__}.{flow.fn.__name__}",
            "tags": sorted({TAG, *(deployed.tags if deployed else ())}),
            "job_variables": variables,
            "parameter_openapi_schema": form_of(flow),
        }
        if deployed is None:
            self._payload |= asked | {"enforce_parameter_schema": True}
            return
        before = {name: getattr(deployed, name) for name in asked} | {"tags": sorted(deployed.tags)}
        differing = {name: value for name, value in asked.items() if value != before[name]}
        if differing:
            self._payload |= differing
            self._change("form", "of another version", "of this version")

    def _set_schedule(self, timetable: Timetable) -> None:
        ours = self._ours
        if self._deployed is None or ours is None:
            if self._deployed and not (self._unpause or timetable.insisted):
                self._kept.append(f"kept without the schedule {_cron_shown(timetable.wanted)}, removed in Prefect")
                return
            self._write_schedule(timetable.wanted)
            self._change("schedule", None, _cron_shown(timetable.wanted))
            return
        before, edited = ours.schedule, ours.slug != _slug_of(ours.schedule)
        base = before if isinstance(before, CronSchedule) else timetable.wanted
        named = timetable.named if not edited or self._unpause else timetable.insisted
        update = {name: getattr(timetable.wanted, name) for name in named}
        # Without an update, also a schedule of another kind stays.
        after: Any = base.model_copy(update=update) if update else before
        is_off = not ours.active
        if _slug_of(after) != _slug_of(before) or (is_off and self._unpause):
            self._write_schedule(after)
            state = " (off)" if is_off else ""
            self._change("schedule", f"{_cron_shown(before)}{state}", _cron_shown(after))
            return
        if edited:
            self._kept.append(f"kept the schedule {_cron_shown(before)}, edited in Prefect")
        if is_off:
            self._kept.append("kept the schedule off, as set in Prefect")

    def _write_schedule(self, schedule: CronSchedule) -> None:
        active = self._unpause or self._ours is None or self._ours.active
        self._schedule = DeploymentScheduleCreate(schedule=schedule, active=active, slug=_slug_of(schedule))

    def _set_paused(self, parameters: dict[str, Any]) -> str:
        """Set whether it is paused; return how to say so."""
        deployed, needs = self._deployed, self._wanted.needs
        lacking = needs is not None and not parameters.get(needs)
        until = f"paused until its parameter {needs} is set"
        if deployed is None:
            self._payload["paused"] = lacking
            return until if lacking else ""
        if not deployed.paused:
            return ""
        # A deploy itself pauses only what has nothing to do.
        had_nothing_to_do = needs is not None and not deployed.parameters.get(needs)
        if not lacking and (had_nothing_to_do or self._unpause):
            self._payload["paused"] = False
            self._change("paused", "yes", "no")
            return ""
        return f"kept {until}" if lacking else "kept paused"

    def _next_run(self) -> datetime | None:
        schedules = [each.schedule for each in (self._deployed.schedules if self._deployed else ()) if each.active]
        if self._schedule:
            replaced = self._ours.schedule if self._ours and self._ours.active else None
            schedules = [each for each in schedules if each is not replaced]
            schedules += [self._schedule.schedule] if self._schedule.active else []
        return min(filter(None, map(next_date, schedules)), default=None, key=datetime.timestamp)


def our_schedule(deployed: DeploymentResponse) -> DeploymentSchedule | None:
    """Return the schedule that a deploy has made, among those that were added in Prefect."""
    return next((each for each in deployed.schedules if (each.slug or "").startswith(_SLUG)), None)


def next_date(schedule: Any) -> datetime | None:  # noqa: ANN401 - any of Prefect's schedules
    """Return the first date of a schedule after now, in its time zone; None if there is none."""
    calendar = _CALENDAR.validate_python(schedule.model_dump())
    dates = asyncio.run(calendar.get_dates(n=1, start=datetime.now(UTC)))
    return datetime.fromtimestamp(dates[0].timestamp(), ZoneInfo(schedule.timezone or "UTC")) if dates else None


def _slug_of(schedule: Any) -> str:  # noqa: ANN401 - any of Prefect's schedules
    """Return the slug of a schedule as deployed; one that was edited in Prefect keeps the slug of its first version."""
    return f"{_SLUG}{json_digest(schedule.model_dump(mode='json'))[:12]}"


def _cron_shown(schedule: Any) -> str:  # noqa: ANN401 - any of Prefect's schedules
    if isinstance(schedule, CronSchedule):
        return f"{schedule.cron} {schedule.timezone or 'UTC'}"
    return type(schedule).__name__


def _limit_of(deployed: DeploymentResponse | None) -> Limit | None:
    if deployed is None or deployed.global_concurrency_limit is None:
        return None
    options = deployed.concurrency_options
    strategy = options.collision_strategy.value if options else "ENQUEUE"
    return Limit(runs=deployed.global_concurrency_limit.limit, strategy=strategy)


def _limit_shown(limit: Limit | None) -> str:
    if limit is None:
        return "any number"
    return f"{limit.runs}, others {'wait' if limit.strategy == 'ENQUEUE' else 'are skipped'}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
