"""Deployments as data: what the settings specify is compared with what is deployed, and differences are written."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from prefect.client.schemas.actions import DeploymentScheduleCreate, DeploymentUpdate
from prefect.client.schemas.schedules import CronSchedule
from prefect.utilities.callables import parameter_schema
from pydantic import ValidationError

from flows.evaluate import evaluate
from flows.extract import extract
from flows.infer import infer
from flows.maintain import maintain
from flows.run.names import PREFECT_VARIABLES, TAG
from flows.runs import backfill, classify, describe
from flows.schedule.lookup import next_date
from flows.survey import survey
from flows.watch import watch
from infra.settings import NightlySettings
from infra.settings.types import title_of
from infra.validation import first_fault
from reelabel.errors import ConfigurationError
from reelabel.sources.object_info import absolute_uri
from tasks.manifest.location import check_date_placeholders, has_date_placeholders, nightly_dataset

if TYPE_CHECKING:
    from prefect import Flow
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import DeploymentSchedule
    from prefect.client.schemas.responses import DeploymentResponse

    from infra.settings import Settings, WatchSettings
    from infra.settings.types import SettingsSection

_DAILY = CronSchedule(cron="30 4 * * *", timezone="UTC")
_EACH_MINUTE = CronSchedule(cron="* * * * *", timezone="UTC")
_WHEN_RUNNING = {"queue": "ENQUEUE", "skip": "CANCEL_NEW"}
_ENVIRONMENT = {
    "PYTHONSAFEPATH": "1",  # a tasks.py in the working folder must not shadow our package
    **PREFECT_VARIABLES,
}


class Limit(NamedTuple):
    """How many runs of a deployment may run at a time, and what happens to one more."""

    runs: int
    strategy: str

    def __str__(self) -> str:
        return f"{self.runs}, others {'wait' if self.strategy == 'ENQUEUE' else 'are skipped'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What the settings ask of a deployment.

    Attributes:
        flow: The flow that it runs.
        name: Its name, without the flow's.
        pool: Its work pool.
        parameters: Parameters that the settings name.
        defaults: Parameters of a new deployment.
        needs: Parameter without which it has nothing to do, and is created paused.
        schedule: When it runs; None is on demand.
        limit: Concurrent runs; None is no limit.
        named: Those of `pool`, `limit`, `cron` and `timezone` that the settings name; the others stay as deployed.
    """

    flow: Any
    name: str
    pool: str
    parameters: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    needs: str | None = None
    schedule: CronSchedule | None = None
    limit: Limit | None = None
    named: frozenset[str] = frozenset()

    @property
    def full_name(self) -> str:
        """Name with that of the flow, such as classify/nightly."""
        return f"{self.flow.name}/{self.name}"


def desired_deployments(settings: Settings, pool_types: dict[str, str]) -> list[Deployment]:
    """Return what the settings ask of each deployment.

    With the local executor, extract/cpu and infer/gpu are left out unless their pool exists: nothing would serve them.

    Raises:
        ConfigurationError: A schedule or a placeholder is malformed.
    """
    prefect = settings.prefect
    on_demand, is_limit_named = _on_demand_limit(settings, pool_types)

    def deployment(flow: Any, name: str, *named: str, **fields: Any) -> Deployment:  # noqa: ANN401
        of_pool = {"pool"} if "work_pool" in prefect.model_fields_set else set[str]()
        return Deployment(flow=flow, name=name, pool=prefect.work_pool, named=frozenset({*named, *of_pool}), **fields)

    deployments = [
        deployment(classify, "on-demand", *is_limit_named, limit=on_demand),
        deployment(classify, "nightly", *_named(settings.nightly), **_nightly(settings.nightly)),
        deployment(describe, "on-demand", *is_limit_named, limit=on_demand),
        deployment(
            describe, "nightly", *_named(_nightly_descriptions(settings)), **_nightly(_nightly_descriptions(settings))
        ),
        deployment(watch, "manifests", "limit", **_watch(settings.watch)),
        deployment(backfill, "by-ids", "limit"),
        deployment(evaluate, "labelled", "limit"),
        deployment(survey, "manifest", "limit"),
        deployment(maintain, "daily", "limit", schedule=_DAILY, limit=Limit(1, "ENQUEUE")),
    ]
    for flow, pool in ((extract, "cpu"), (infer, "gpu")):
        if settings.run.executor == "remote" or pool in pool_types:
            deployments.append(Deployment(flow=flow, name=pool, pool=pool, named=frozenset({"limit"})))
    return deployments


def _named(section: SettingsSection) -> set[str]:
    by_field = {"cron": "cron", "timezone": "timezone", "when_running": "limit"}
    return {name for each, name in by_field.items() if each in section.model_fields_set}


def _on_demand_limit(settings: Settings, pool_types: dict[str, str]) -> tuple[Limit | None, list[str]]:
    """Limit concurrent runs to the number of machines, since a local run uses all of its own."""
    run = settings.run
    in_pods = pool_types.get(settings.prefect.work_pool, "process") != "process"  # each run has a pod of its own
    is_limited = run.executor == "local" and not in_pods
    is_named = in_pods or bool({"executor", "max_concurrent_runs"} & run.model_fields_set)
    return Limit(run.max_concurrent_runs, "ENQUEUE") if is_limited else None, ["limit"] if is_named else []


def _nightly(nightly: NightlySettings) -> dict[str, Any]:
    optional = {"timezone", "may_be_empty"} & nightly.model_fields_set
    parameters: dict[str, Any] = {name: getattr(nightly, name) for name in optional}
    if nightly.manifest:
        parameters["manifest"] = check_date_placeholders(absolute_uri(nightly.manifest))
    if nightly.dataset:
        parameters["dataset"] = check_date_placeholders(nightly.dataset)
    return {
        "parameters": parameters,
        "defaults": {"timezone": nightly.timezone, "may_be_empty": nightly.may_be_empty},
        "needs": "manifest",
        "schedule": _cron("nightly", nightly.cron, nightly.timezone),
        "limit": Limit(1, _WHEN_RUNNING[nightly.when_running]),
    }


def _nightly_descriptions(settings: Settings) -> NightlySettings:
    """Return the settings of describe/nightly: those of classify/nightly, but for its manifest and dataset."""
    schedule = settings.nightly.model_dump(exclude_unset=True, exclude={"manifest", "dataset"})
    return NightlySettings.model_validate(schedule | {"manifest": settings.describe.nightly_manifest})


def _watch(settings: WatchSettings) -> dict[str, Any]:
    if settings.manifests and has_date_placeholders(settings.manifests):
        raise ConfigurationError(f"watch.manifests takes no placeholder: {settings.manifests}; write * in its place.")
    parameters: dict[str, Any] = {"starts": settings.starts} if "starts" in settings.model_fields_set else {}
    if settings.manifests:
        parameters["manifests"] = absolute_uri(settings.manifests)
    return {"parameters": parameters, "needs": "manifests", "schedule": _EACH_MINUTE, "limit": Limit(1, "CANCEL_NEW")}


def _cron(section: str, cron: str, timezone: str) -> CronSchedule:
    try:
        return CronSchedule(cron=cron, timezone=timezone)
    except ValidationError as error:
        _, _, clause = first_fault(error)
        raise ConfigurationError(f"{section}.cron is invalid: {clause}.") from None


@cache  # several deployments of one flow
def form_of(flow: Flow[..., Any]) -> dict[str, Any]:
    """Return a flow's parameters as a JSON schema, with titles in one style, in the order of the signature.

    Prefect's database forgets the order of keys; its UI sorts the fields of a form, and of the groups in it, by
    `position`.
    """
    form: dict[str, Any] = parameter_schema(flow).model_dump(mode="json", exclude_unset=True)
    form["additionalProperties"] = False  # an unknown parameter would crash each attempt of the run
    for group in (form, *form.get("definitions", {}).values()):
        for position, (name, each) in enumerate(group.get("properties", {}).items()):
            each |= {"title": title_of(name), "position": position}
    return form


@dataclass(slots=True, kw_only=True)
class DeploymentPlan:
    """What a deploy does to one deployment.

    Attributes:
        name: Name with that of the flow.
        deployed: The deployment as it is; None if it does not exist yet.
        pool: Its work pool afterwards.
        parameters: Its parameters afterwards.
        changes: What changes, each as `name: old → new`.
        kept: What an operator has set in Prefect, and is kept although the settings ask for something else.
        paused: Whether it is paused afterwards, and why; empty if it is not.
        payload: Fields of the deployment to write.
        schedule: Our schedule to write; None leaves the schedules alone.
    """

    name: str
    deployed: DeploymentResponse | None = field(repr=False)
    pool: str = ""
    parameters: dict[str, Any] = field(default_factory=dict, repr=False)
    changes: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    paused: str = ""
    payload: dict[str, Any] = field(default_factory=dict, repr=False)
    schedule: DeploymentScheduleCreate | None = field(default=None, repr=False)

    @property
    def state(self) -> Literal["new", "changed", "unchanged"]:
        """What happens to it, in one word."""
        return "new" if self.deployed is None else "changed" if self.changes else "unchanged"

    @property
    def ours(self) -> DeploymentSchedule | None:
        """The schedule that an earlier deploy made."""
        return our_schedule(self.deployed) if self.deployed else None

    @property
    def next_run(self) -> datetime | None:
        """Its next scheduled run, in the schedule's time zone; None if there is none."""
        if self.paused:
            return None
        deployed: list[Any] = self.deployed.schedules if self.deployed else []
        schedules = [each for each in deployed if each != self.ours]
        schedules += filter(None, [self.schedule or self.ours])
        dates = [next_date(each.schedule) for each in schedules if each.active]
        return min(filter(None, dates), default=None, key=datetime.timestamp)

    def lines(self) -> list[str]:
        """Describe it: a line with its next run, then one for each change and for what is kept."""
        when = f"next run {self.next_run:%Y-%m-%d %H:%M %Z}" if self.next_run else ""
        head = ", ".join(filter(None, (self.state, self.paused, when)))
        return [f"{self.name}: {head}", *(f"  {line}" for line in (*self.changes, *self.kept))]

    def change(self, what: str, old: object, new: object, **payload: Any) -> None:  # noqa: ANN401 - Prefect's own
        """Note a change, and the fields to write for it."""
        self.changes.append(f"{what}: {_shown(old)} → {_shown(new)}" if self.deployed else f"{what}: {_shown(new)}")
        self.payload |= payload

    def apply(self, client: SyncPrefectClient) -> None:
        """Write what differs; schedules other than ours are left alone."""
        if self.deployed is None:
            flow, _, name = self.name.partition("/")
            schedules, flow_id = [self.schedule] if self.schedule else [], client.create_flow_from_name(flow)
            client.create_deployment(flow_id, name, schedules=schedules, pull_steps=[], **self.payload)
            return
        if self.payload:
            client.update_deployment(self.deployed.id, DeploymentUpdate(**self.payload))
        if self.schedule and self.ours:
            client.update_deployment_schedule(
                self.deployed.id,
                self.ours.id,
                active=self.schedule.active,
                schedule=self.schedule.schedule,
                parameters=self.ours.parameters,
            )
        elif self.schedule:
            client.create_deployment_schedules(self.deployed.id, [self.schedule])


def plan_deployment(desired: Deployment, deployed: DeploymentResponse | None, *, unpause: bool) -> DeploymentPlan:
    """Compare what the settings name with what is deployed, if anything.

    With `unpause`, a pause and a schedule that an operator has turned off or removed in Prefect are undone, too.
    """
    plan = DeploymentPlan(name=desired.full_name, deployed=deployed)
    _plan_pool(plan, desired)
    _plan_parameters(plan, desired)
    _plan_limit(plan, desired)
    _plan_form(plan, desired)
    if desired.schedule:
        _plan_schedule(plan, desired, desired.schedule, unpause=unpause)
    _plan_pause(plan, desired, unpause=unpause)
    return plan


def _plan_pool(plan: DeploymentPlan, desired: Deployment) -> None:
    before = plan.deployed and plan.deployed.work_pool_name
    plan.pool = desired.pool if "pool" in desired.named or not before else before
    if plan.pool != before:
        plan.change("work pool", before, plan.pool, work_pool_name=plan.pool)


def _plan_parameters(plan: DeploymentPlan, desired: Deployment) -> None:
    before = dict(plan.deployed.parameters) if plan.deployed else desired.defaults
    after = plan.parameters = before | desired.parameters
    # The dataset of a nightly manifest follows its name, unless it was named itself.
    own = nightly_dataset(before.get("manifest", ""))
    if desired.needs == "manifest" and "dataset" not in desired.parameters and before.get("dataset") in {None, own}:
        after["dataset"] = nightly_dataset(after.get("manifest", ""))
    if plan.deployed is None or after != before:
        plan.payload["parameters"] = after
    for name, value in sorted(after.items()):
        if value != before.get(name) or (plan.deployed is None and value is not None):
            plan.change(name, before.get(name), value)


def _plan_limit(plan: DeploymentPlan, desired: Deployment) -> None:
    before, after = None, desired.limit
    if plan.deployed and (limit := plan.deployed.global_concurrency_limit):
        options = plan.deployed.concurrency_options
        before = Limit(limit.limit, options.collision_strategy.value if options else "ENQUEUE")
    if after != before and (plan.deployed is None or "limit" in desired.named):
        options_payload = {"concurrency_options": {"collision_strategy": after.strategy}} if after else {}
        shown = (before or "any number", after or "any number")
        plan.change("concurrent runs", *shown, concurrency_limit=after and after.runs, **options_payload)


def _plan_form(plan: DeploymentPlan, desired: Deployment) -> None:
    """Compare what comes with the installed version: the form, and the environment of runs."""
    flow, deployed = desired.flow, plan.deployed
    variables = dict(deployed.job_variables) if deployed else {}
    variables["env"] = {**(variables.get("env") or {}), **_ENVIRONMENT}
    fields = {
        "description": flow.description,
        "entrypoint": f"{flow.__module__}.{flow.fn.__name__}",
        "tags": sorted({TAG, *(deployed.tags if deployed else ())}),
        "job_variables": variables,
        "parameter_openapi_schema": form_of(flow),
    }
    if deployed is None:
        plan.payload |= fields | {"enforce_parameter_schema": True}
        return
    before = {name: getattr(deployed, name) for name in fields} | {"tags": sorted(deployed.tags)}
    if differing := {name: value for name, value in fields.items() if value != before[name]}:
        plan.change("form", "of another version", "of this version", **differing)


def _plan_schedule(plan: DeploymentPlan, desired: Deployment, schedule: CronSchedule, *, unpause: bool) -> None:
    ours, named = plan.ours, {"cron", "timezone"} & desired.named
    if ours is None:
        if plan.deployed and not unpause:
            plan.kept.append(f"kept without the schedule {_cron_shown(schedule)}, removed in Prefect")
            return
        plan.schedule = DeploymentScheduleCreate(schedule=schedule, active=True, slug=TAG)
        plan.change("schedule", None, _cron_shown(schedule))
        return
    before = ours.schedule
    base = before if isinstance(before, CronSchedule) else schedule
    # If the settings name neither, a schedule of another kind stays, too.
    after = base.model_copy(update={name: getattr(schedule, name) for name in named}) if named else before
    if after != before or (unpause and not ours.active):
        plan.schedule = DeploymentScheduleCreate(schedule=after, active=unpause or ours.active, slug=TAG)
        state = "" if ours.active else " (off)"
        plan.change("schedule", f"{_cron_shown(before)}{state}", _cron_shown(after))
    elif not ours.active:
        plan.kept.append("kept the schedule off, as set in Prefect")


def _plan_pause(plan: DeploymentPlan, desired: Deployment, *, unpause: bool) -> None:
    deployed, needs = plan.deployed, desired.needs
    lacking = needs is not None and not plan.parameters.get(needs)
    until = f"paused until its parameter {needs} is set"
    if deployed is None:
        plan.payload["paused"] = lacking
        plan.paused = until if lacking else ""
    elif deployed.paused:
        # A deploy itself pauses only what has nothing to do.
        had_nothing_to_do = needs is not None and not deployed.parameters.get(needs)
        if not lacking and (had_nothing_to_do or unpause):
            plan.change("paused", True, False, paused=False)
        else:
            plan.paused = f"kept {until}" if lacking else "kept paused"


def our_schedule(deployed: DeploymentResponse) -> DeploymentSchedule | None:
    """Return the schedule that a deploy has made, among those that were added in Prefect."""
    return next((each for each in deployed.schedules if each.slug == TAG), None)


def _cron_shown(schedule: Any) -> str:  # noqa: ANN401 - any of Prefect's schedules
    if isinstance(schedule, CronSchedule):
        return f"{schedule.cron} {schedule.timezone or 'UTC'}"
    return type(schedule).__name__


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
