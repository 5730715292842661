"""What a deploy changes of a deployment, and what it leaves as an operator has set it in Prefect."""

from uuid import uuid4

import pytest
from prefect.client.schemas.objects import DeploymentSchedule
from prefect.client.schemas.responses import DeploymentResponse, GlobalConcurrencyLimitResponse
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule

from flows.run.names import TAG
from flows.schedule.deployments import desired_deployments, plan_deployment
from infra.settings import Settings
from reelabel.errors import ConfigurationError

NIGHTLY, DESCRIBE, WATCH, ON_DEMAND = ("classify/nightly", "describe/nightly", "watch/manifests", "classify/on-demand")
MANIFEST = "s3://b/{scheduled_date}.parquet"
SCHEDULED = {"nightly": {"manifest": MANIFEST}}
AT_TWO = CronSchedule(cron="0 2 * * *", timezone="UTC")


def plan(name=NIGHTLY, deployed=None, *, unpause=False, pools=None, **settings):
    """What a deploy with these settings does to one deployment, as it is in Prefect; None is a new one."""
    [desired] = [each for each in desired_deployments(Settings(**settings), pools or {}) if each.full_name == name]
    return plan_deployment(desired, deployed, unpause=unpause)


def lines(*args, **options):
    """What a deploy says of a deployment, without its next run."""
    head, *rest = plan(*args, **options).lines()
    return [head.partition(", next run")[0], *(line.removeprefix("  ") for line in rest)]


def deployed(name=NIGHTLY, *, schedules=None, limit=None, settings=SCHEDULED, **changed):
    """What Prefect has once a deployment was created, by default with a manifest, but for what was changed since."""
    created = plan(name, **settings)
    fields = {"enforce_parameter_schema": True, "paused": False, "parameters": {}} | created.payload
    runs, options = fields.pop("concurrency_limit", None), fields.pop("concurrency_options", None)
    if runs := limit or runs:
        limited = GlobalConcurrencyLimitResponse(id=uuid4(), name="l", limit=runs, active_slots=0)
        fields |= {"global_concurrency_limit": limited, "concurrency_options": options}
    if schedules is None:
        ours = created.schedule
        schedules = [DeploymentSchedule(schedule=ours.schedule, slug=ours.slug)] if ours else []
    names = {"id": uuid4(), "flow_id": uuid4(), "name": name.partition("/")[2], "schedules": schedules}
    return DeploymentResponse(**names | fields | changed)


def ours(schedule=AT_TWO, **changed):
    return DeploymentSchedule(schedule=schedule, slug=TAG, **changed)


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        (
            NIGHTLY,
            {},
            [
                f"{NIGHTLY}: new, paused until its parameter manifest is set",
                *("work pool: reelabel", "may_be_empty: yes", "timezone: UTC"),
                *("concurrent runs: 1, others wait", "schedule: 0 2 * * * UTC"),
            ],
        ),
        (
            NIGHTLY,
            {"nightly": {"manifest": MANIFEST, "when_running": "skip"}, "prefect": {"work_pool": "pool"}},
            [
                f"{NIGHTLY}: new",
                *("work pool: pool", "dataset: b-{scheduled_date}", f"manifest: {MANIFEST}", "may_be_empty: yes"),
                *("timezone: UTC", "concurrent runs: 1, others are skipped", "schedule: 0 2 * * * UTC"),
            ],
        ),
        (
            DESCRIBE,
            {
                "nightly": {"manifest": MANIFEST, "cron": "0 1 * * *", "timezone": "Europe/Berlin"},
                "describe": {"nightly_manifest": "s3://c/*.parquet"},
            },
            [
                f"{DESCRIBE}: new",
                *("work pool: reelabel", "manifest: s3://c/*.parquet", "may_be_empty: yes"),
                *("timezone: Europe/Berlin", "concurrent runs: 1, others wait", "schedule: 0 1 * * * Europe/Berlin"),
            ],
        ),
        (
            WATCH,
            {"watch": {"manifests": "s3://b/in/*.parquet", "starts": "describe"}},
            [
                f"{WATCH}: new",
                *("work pool: reelabel", "manifests: s3://b/in/*.parquet", "starts: describe"),
                *("concurrent runs: 1, others are skipped", "schedule: * * * * * UTC"),
            ],
        ),
        (ON_DEMAND, {}, [f"{ON_DEMAND}: new", "work pool: reelabel", "concurrent runs: 1, others wait"]),
        (
            ON_DEMAND,
            {"run": {"max_concurrent_runs": 3}},
            [f"{ON_DEMAND}: new", "work pool: reelabel", "concurrent runs: 3, others wait"],
        ),
        (
            ON_DEMAND,
            {"run": {"executor": "remote"}},
            [f"{ON_DEMAND}: new", "work pool: reelabel"],
        ),
    ],
)
def test_a_new_deployment_is_as_the_settings_say(name, settings, expected):
    assert lines(name, **settings) == expected


@pytest.mark.parametrize("name", [NIGHTLY, DESCRIBE, WATCH, ON_DEMAND, "maintain/daily", "backfill/by-ids"])
@pytest.mark.parametrize("settings", [{}, SCHEDULED | {"watch": {"manifests": "s3://b/*"}}])
def test_a_second_deploy_changes_nothing(name, settings):
    again = plan(name, deployed(name, settings=settings), **settings)

    assert (again.state, again.changes, again.kept, again.payload, again.schedule) == ("unchanged", [], [], {}, None)


@pytest.mark.parametrize(
    ("changed", "settings", "expected"),
    [
        pytest.param({"paused": True}, {}, ["unchanged, kept paused"], id="paused"),
        pytest.param(
            {"settings": {}}, {}, ["unchanged, kept paused until its parameter manifest is set"], id="lacking"
        ),
        pytest.param(
            {"settings": {}},
            {"nightly": {"manifest": "s3://b/*.parquet"}},
            ["changed", "manifest: none → s3://b/*.parquet", "paused: yes → no"],
            id="lacking no longer",
        ),
        pytest.param(
            {},
            {"nightly": {"manifest": "s3://c/{scheduled_date}.parquet"}},
            [
                "changed",
                "dataset: b-{scheduled_date} → c-{scheduled_date}",
                f"manifest: {MANIFEST} → s3://c/{{scheduled_date}}.parquet",
            ],
            id="the dataset follows the manifest",
        ),
        pytest.param(
            {"parameters": {"manifest": MANIFEST, "dataset": "own"}},
            {"nightly": {"manifest": "s3://c/{scheduled_date}.parquet"}},
            ["changed", f"manifest: {MANIFEST} → s3://c/{{scheduled_date}}.parquet"],
            id="a dataset of its own",
        ),
        pytest.param(
            {},
            {"nightly": {"dataset": "all", "timezone": "Europe/Berlin", "may_be_empty": False}},
            [
                *("changed", "dataset: b-{scheduled_date} → all", "may_be_empty: yes → no"),
                *("timezone: UTC → Europe/Berlin", "schedule: 0 2 * * * UTC → 0 2 * * * Europe/Berlin"),
            ],
            id="other parameters",
        ),
        pytest.param(
            {"schedules": [ours(AT_TWO.model_copy(update={"cron": "0 5 * * *"}))]},
            {"nightly": {"timezone": "Europe/Berlin"}},
            [
                *("changed", "timezone: UTC → Europe/Berlin"),
                "schedule: 0 5 * * * UTC → 0 5 * * * Europe/Berlin",
            ],
            id="a time that was edited",
        ),
        pytest.param(
            {"schedules": [ours(IntervalSchedule(interval=3600))]},
            {},
            ["unchanged"],
            id="a schedule of another kind",
        ),
        pytest.param(
            {"schedules": [ours(IntervalSchedule(interval=3600))]},
            {"nightly": {"cron": "0 4 * * *"}},
            ["changed", "schedule: IntervalSchedule → 0 4 * * * UTC"],
            id="a schedule of another kind is replaced",
        ),
        pytest.param(
            {"schedules": [ours(active=False)]},
            {},
            ["unchanged", "kept the schedule off, as set in Prefect"],
            id="off",
        ),
        pytest.param(
            {"schedules": [ours(active=False)]},
            {"nightly": {"cron": "0 4 * * *"}},
            ["changed", "schedule: 0 2 * * * UTC (off) → 0 4 * * * UTC"],
            id="off, but moved",
        ),
        pytest.param(
            {"schedules": []},
            {},
            ["unchanged", "kept without the schedule 0 2 * * * UTC, removed in Prefect"],
            id="removed",
        ),
        pytest.param({"work_pool_name": "mine"}, {}, ["unchanged"], id="in another pool"),
        pytest.param(
            {"work_pool_name": "mine"},
            {"prefect": {"work_pool": "pool"}},
            ["changed", "work pool: mine → pool"],
            id="in a pool that the settings name",
        ),
        pytest.param({"limit": 5}, {}, ["unchanged"], id="with another limit"),
        pytest.param(
            {"limit": 5},
            {"nightly": {"when_running": "queue"}},
            ["changed", "concurrent runs: 5, others wait → 1, others wait"],
            id="with a limit that the settings name",
        ),
        pytest.param(
            {"description": "of old", "tags": ["mine"]},
            {},
            ["changed", "form: of another version → of this version"],
            id="of another version",
        ),
    ],
)
def test_a_deploy_changes_what_the_settings_name_and_keeps_what_an_operator_has_set(changed, settings, expected):
    head, *rest = expected

    assert lines(NIGHTLY, deployed(NIGHTLY, **changed), **settings) == [f"{NIGHTLY}: {head}", *rest]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"paused": True}, ["changed", "paused: yes → no"]),
        ({"settings": {}}, ["unchanged, kept paused until its parameter manifest is set"]),
        (
            {"schedules": [ours(active=False)]},
            ["changed", "schedule: 0 2 * * * UTC (off) → 0 2 * * * UTC"],
        ),
        ({"schedules": []}, ["changed", "schedule: none → 0 2 * * * UTC"]),
    ],
)
def test_unpausing_undoes_pauses_and_turns_schedules_on(changed, expected):
    found = plan(NIGHTLY, deployed(NIGHTLY, **changed), unpause=True)

    head, *rest = expected
    assert lines(NIGHTLY, deployed(NIGHTLY, **changed), unpause=True) == [f"{NIGHTLY}: {head}", *rest]
    assert found.schedule is None or found.schedule.active


def test_a_schedule_that_is_off_stays_off_when_it_is_moved():
    off = deployed(NIGHTLY, schedules=[ours(active=False)])

    assert not plan(NIGHTLY, off, nightly={"cron": "0 4 * * *"}).schedule.active


def test_the_tags_and_variables_of_an_operator_are_kept_beside_ours():
    variables = {"image": "mine", "env": {"MINE": "1", "PYTHONSAFEPATH": "0"}}

    payload = plan(NIGHTLY, deployed(NIGHTLY, tags=["mine"], job_variables=variables)).payload

    assert payload["tags"] == ["mine", TAG]
    assert payload["job_variables"]["image"] == "mine"
    assert payload["job_variables"]["env"]["MINE"] == "1"
    assert payload["job_variables"]["env"]["PYTHONSAFEPATH"] == "1"


def test_the_next_run_is_the_first_of_all_schedules_that_are_on():
    often, never = CronSchedule(cron="* * * * *", timezone="UTC"), CronSchedule(cron="0 0 30 2 *", timezone="UTC")

    def next_run(*schedules, **changed):
        return plan(NIGHTLY, deployed(NIGHTLY, schedules=[*schedules], **changed)).next_run

    nightly, soon = next_run(ours()), next_run(ours(), DeploymentSchedule(schedule=often))
    assert (nightly.hour, nightly.minute) == (2, 0)
    assert soon <= nightly
    assert next_run(ours(), DeploymentSchedule(schedule=often, active=False)) == nightly
    assert next_run(ours(active=False)) is None
    assert next_run(ours(), paused=True) is None
    assert next_run(DeploymentSchedule(schedule=never)) is None


@pytest.mark.parametrize(
    ("settings", "pools", "deployed_for_stages"),
    [
        ({}, {}, set()),
        ({"run": {"executor": "remote"}}, {}, {"extract/cpu", "infer/gpu"}),
        ({}, {"gpu": "process"}, {"infer/gpu"}),
    ],
)
def test_stages_are_deployed_where_something_serves_them(settings, pools, deployed_for_stages):
    names = {each.full_name for each in desired_deployments(Settings(**settings), pools)}

    assert {name for name in names if name.startswith(("extract", "infer"))} == deployed_for_stages


def test_runs_in_pods_of_their_own_are_not_limited():
    limited = deployed(ON_DEMAND)

    [_, line] = lines(ON_DEMAND, limited, pools={"reelabel": "kubernetes"})

    assert line == "concurrent runs: 1, others wait → any number"
    assert lines(ON_DEMAND, limited, run={"max_concurrent_runs": 1}) == [f"{ON_DEMAND}: unchanged"]
    assert lines(ON_DEMAND, deployed(ON_DEMAND, limit=4)) == [f"{ON_DEMAND}: unchanged"]
    assert len(lines(ON_DEMAND, deployed(ON_DEMAND, limit=4), run={"max_concurrent_runs": 1})) == 2


def test_a_watch_takes_no_date():
    with pytest.raises(ConfigurationError, match=r"watch\.manifests takes no placeholder: .*; write \* in its place"):
        plan(WATCH, watch={"manifests": MANIFEST})
