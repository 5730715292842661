"""What the settings ask of each deployment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prefect.client.schemas.schedules import CronSchedule
from pydantic import ValidationError

from flows.backfill import backfill
from flows.classify import classify
from flows.describe import describe
from flows.evaluate import evaluate
from flows.extract import extract
from flows.infer import infer
from flows.maintain import maintain
from flows.survey import survey
from flows.watch import watch
from infra.settings import NightlySettings
from infra.validation import first_fault
from reelabel.errors import ConfigurationError
from reelabel.sources.object_info import absolute_uri
from tasks.manifest.dataset import nightly_dataset
from tasks.manifest.location import check_date_placeholders, has_date_placeholders

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from infra.settings import Settings, WatchSettings
    from infra.settings.types import SettingsSection

_DAILY = CronSchedule(cron="30 4 * * *", timezone="UTC")
_EACH_MINUTE = CronSchedule(cron="* * * * *", timezone="UTC")
_WHEN_RUNNING = {"queue": "ENQUEUE", "skip": "CANCEL_NEW"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """When a deployment runs.

    Attributes:
        wanted: The schedule of the settings.
        named: Which of `cron` and `timezone` the settings name; the others stay as deployed.
        insisted: Which of them were given on the command line; they replace also what was edited in Prefect.
    """

    wanted: CronSchedule
    named: frozenset[str]
    insisted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How many runs of a deployment may run at a time, and what happens to one more."""

    runs: int
    strategy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the settings ask of a deployment.

    Attributes:
        flow: The flow that it runs.
        name: Its name, without the flow's.
        pool: Its work pool.
        is_pool_named: Whether the settings name the pool; if not, the deployment stays in its own.
        parameters: Parameters that the settings name.
        defaults: Parameters of a new deployment.
        derive: Derives parameters from the others, unless they were named.
        needs: Parameter without which it has nothing to do, and is created paused.
        timetable: When it runs; None is on demand.
        limit: Concurrent runs; None is no limit.
        is_limit_named: Whether the settings name the limit; if not, the deployment keeps its own.
    """

    flow: Any
    name: str
    pool: str
    is_pool_named: bool
    parameters: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    derive: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    needs: str | None = None
    timetable: Timetable | None = None
    limit: Limit | None = None
    is_limit_named: bool = True

    @property
    def full_name(self) -> str:
        """Name with that of the flow, such as classify/nightly."""
        return f"{self.flow.name}/{self.name}"


def wanted_deployments(settings: Settings, insisted: Collection[str], pool_types: dict[str, str]) -> list[Wanted]:
    """Return what the settings ask of each deployment; a field that is not set asks for nothing.

    With the local executor, extract/cpu and infer/gpu are left out unless their pool exists: nothing would serve them.
    `insisted` are fields of the section `nightly` that were given on the command line.

    Raises:
        ConfigurationError: A schedule or a placeholder is malformed.
    """
    prefect = settings.prefect
    common: dict[str, Any] = {"pool": prefect.work_pool, "is_pool_named": "work_pool" in prefect.model_fields_set}
    wanted = [
        Wanted(flow=classify, name="on-demand", **_on_demand(settings, pool_types), **common),
        Wanted(flow=classify, name="nightly", **_nightly(settings.nightly, insisted), **common),
        Wanted(flow=describe, name="on-demand", **_on_demand(settings, pool_types), **common),
        Wanted(flow=describe, name="nightly", **_nightly(_nightly_descriptions(settings), ()), **common),
        Wanted(flow=watch, name="manifests", **_watch(settings.watch), **common),
        Wanted(flow=backfill, name="by-ids", **common),
        Wanted(flow=evaluate, name="labelled", **common),
        Wanted(flow=survey, name="manifest", **common),
        Wanted(
            flow=maintain,
            name="daily",
            timetable=Timetable(wanted=_DAILY, named=frozenset()),
            limit=Limit(runs=1, strategy="ENQUEUE"),
            **common,
        ),
    ]
    for flow, pool in ((extract, "cpu"), (infer, "gpu")):
        if settings.run.executor == "remote" or pool in pool_types:
            wanted.append(Wanted(flow=flow, name=pool, pool=pool, is_pool_named=False))
    return wanted


def _on_demand(settings: Settings, pool_types: dict[str, str]) -> dict[str, Any]:
    """Limit concurrent runs to the number of machines, since a local run uses all of its own."""
    run = settings.run
    in_pods = pool_types.get(settings.prefect.work_pool, "process") != "process"  # each run has a pod of its own
    is_limited = run.executor == "local" and not in_pods
    return {
        "limit": Limit(runs=run.max_concurrent_runs, strategy="ENQUEUE") if is_limited else None,
        "is_limit_named": in_pods or bool(_named(run, "executor", "max_concurrent_runs")),
    }


def _nightly(nightly: NightlySettings, insisted: Collection[str]) -> dict[str, Any]:
    parameters: dict[str, Any] = {name: getattr(nightly, name) for name in _named(nightly, "timezone", "may_be_empty")}
    if nightly.manifest:
        parameters["manifest"] = check_date_placeholders(absolute_uri(nightly.manifest))
    if nightly.dataset:
        parameters["dataset"] = check_date_placeholders(nightly.dataset)
    return {
        "parameters": parameters,
        "defaults": {"timezone": nightly.timezone, "may_be_empty": nightly.may_be_empty},
        "derive": lambda parameters: {"dataset": nightly_dataset(parameters.get("manifest", ""))},
        "needs": "manifest",
        "timetable": Timetable(
            wanted=_cron("nightly", nightly.cron, nightly.timezone),
            named=_named(nightly, "cron", "timezone"),
            insisted=frozenset(insisted) & {"cron", "timezone"},
        ),
        "limit": Limit(runs=1, strategy=_WHEN_RUNNING[nightly.when_running]),
        "is_limit_named": bool(_named(nightly, "when_running")),
    }


def _nightly_descriptions(settings: Settings) -> NightlySettings:
    """Return the settings of describe/nightly: those of classify/nightly, but for its manifest, dataset and time."""
    given = settings.nightly.model_dump(exclude_unset=True, exclude={"manifest", "dataset"})
    own = {
        name: value
        for name in ("manifest", "dataset", "cron")
        if (value := getattr(settings.describe, f"nightly_{name}")) is not None
    }
    return NightlySettings.model_validate(given | own)


def _watch(settings: WatchSettings) -> dict[str, Any]:
    if settings.manifests and has_date_placeholders(settings.manifests):
        raise ConfigurationError(f"watch.manifests takes no placeholder: {settings.manifests}; write * in its place.")
    parameters: dict[str, Any] = {name: getattr(settings, name) for name in _named(settings, "starts")}
    if settings.manifests:
        parameters["manifests"] = absolute_uri(settings.manifests)
    if settings.dataset:
        parameters["dataset"] = settings.dataset
    return {
        "parameters": parameters,
        "needs": "manifests",
        "timetable": Timetable(wanted=_EACH_MINUTE, named=frozenset()),
        "limit": Limit(runs=1, strategy="CANCEL_NEW"),
    }


def _named(section: SettingsSection, *fields: str) -> frozenset[str]:
    return frozenset(fields) & section.model_fields_set


def _cron(section: str, cron: str, timezone: str) -> CronSchedule:
    try:
        return CronSchedule(cron=cron, timezone=timezone)
    except ValidationError as error:
        _, _, clause = first_fault(error)
        raise ConfigurationError(f"{section}.cron is invalid: {clause}.") from None
