"""Forms of the deployments, and the message of a run that cannot start."""

import ast
import contextlib
import logging
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import prefect
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId
from prefect.exceptions import PrefectHTTPStatusError, TerminationSignal
from prefect.flow_engine import run_flow
from prefect.logging.loggers import flow_run_logger
from prefect.states import Cancelling

import flows
import tasks
from flows.cli.runs.run import run_flow_here, run_flow_locally
from flows.evaluate import evaluate
from flows.run.execute import _interruption_recorded
from flows.run.names import TAG
from flows.run.request import DescribeRequest
from flows.run.run_flow import fail_with_message, is_stopped_by_user
from flows.runs import backfill, classify, describe
from flows.schedule.deploy import deploy_flows
from flows.schedule.deployments import form_of
from flows.survey import survey
from infra.embedded import export
from reelabel.errors import ConfigurationError
from tasks.results.runs import LOST, read_run
from tests.results.conftest import run

__all__ = ["run"]

pytestmark = pytest.mark.xdist_group("prefect")


@pytest.fixture
def client(prefect_services, prefect_api, monkeypatch):  # noqa: ARG001 - which it talks to
    for name, value in export(prefect_services).items():
        monkeypatch.setenv(name, value)
    with get_client(sync_client=True) as client:
        yield client


@pytest.mark.parametrize("flow", [classify, backfill, evaluate, survey], ids=lambda flow: flow.name)
def test_fields_keep_their_order_and_one_style_of_labels(flow):
    form = form_of(flow)

    for fields in [form["properties"], *(each["properties"] for each in form.get("definitions", {}).values())]:
        assert [field["position"] for field in fields.values()] == list(range(len(fields)))
        for field in fields.values():
            first, *rest = field["title"].split()
            assert first[:1].isupper()
            assert not any("_" in word or word[:1].isupper() for word in rest if word != "(MiB)")


def test_the_most_important_fields_come_first():
    assert list(form_of(classify)["properties"])[:3] == ["manifest", "dataset", "force"]
    assert list(form_of(backfill)["properties"])[:5] == ["manifest", "dataset", "force", "ids", "ids_file"]
    assert "dry_run" in form_of(backfill)["properties"]


@pytest.mark.parametrize("flow", [classify, describe, backfill, evaluate, survey], ids=lambda flow: flow.name)
def test_every_field_of_a_form_is_described(flow):
    assert all(field["description"] for field in form_of(flow)["properties"].values())


def test_forms_speak_of_dates_and_earlier_runs_only_where_there_are_some():
    nightly, correction = (form_of(flow)["properties"] for flow in (describe, backfill))

    assert "{scheduled_date}" in nightly["manifest"]["description"]
    assert "earlier run" not in nightly["dataset"]["description"]
    assert "{scheduled_date}" not in correction["manifest"]["description"]
    assert "earlier run" in correction["dataset"]["description"]


def test_an_unknown_time_zone_is_refused_before_the_run_starts(client, prefect_services):
    deploy_flows(prefect_services)
    deployment = client.read_deployment_by_name("classify/on-demand")

    with pytest.raises(PrefectHTTPStatusError, match="409"):
        client.create_flow_run_from_deployment(
            deployment.id, parameters={"manifest": "/gone.parquet", "timezone": "Mars"}
        )


@pytest.mark.parametrize(
    ("flow", "parameters", "sentence"),
    [
        (classify, {"timezone": "Mars"}, "Timezone: 'Mars' is not a time zone; use a name such as Europe/Berlin."),
        (
            backfill,
            {"selection": {"since": "x"}},
            "Selection, since: not a time; write 2026-11-01 or 2026-11-01T02:00:00+01:00.",
        ),
        (classify, {"manifest": "/gone/*.parquet"}, "No file matches /gone/*.parquet."),
    ],
)
def test_a_run_that_cannot_start_fails_with_one_sentence(client, flow, parameters, sentence):
    parameters = {"manifest": "/gone.parquet"} | parameters
    flow_run = client.create_flow_run(flow, parameters=parameters, tags=[TAG])

    run_flow(flow, flow_run=flow_run, parameters=parameters, return_type="state")

    state = client.read_flow_run(flow_run.id).state
    assert (state.name, state.message) == ("Failed", sentence)


@pytest.mark.parametrize("parameters", [{"num_frames": 8}, {"overrides": {"num_frames": 8}}])
def test_an_unknown_or_misplaced_parameter_is_refused_before_the_run_starts(client, prefect_services, parameters):
    deploy_flows(prefect_services)
    deployment = client.read_deployment_by_name("classify/on-demand")

    with pytest.raises(PrefectHTTPStatusError, match="409"):
        client.create_flow_run_from_deployment(deployment.id, parameters={"manifest": "/gone.parquet"} | parameters)


def test_runs_of_different_datasets_have_different_names(client):
    names = set()
    for flow, parameters in (
        (classify, {"manifest": "/gone/animals.parquet"}),
        (classify, {"manifest": "/gone/animals.parquet", "dataset": "birds"}),
        (backfill, {"manifest": "/gone/animals.parquet", "ids": ["a"]}),
    ):
        flow_run = client.create_flow_run(flow, parameters=parameters, tags=[TAG])
        run_flow(flow, flow_run=flow_run, parameters=parameters, return_type="state")
        kind, dataset, day, at = client.read_flow_run(flow_run.id).name.split()
        assert datetime.now(UTC) - datetime.fromisoformat(f"{day} {at}+00:00") < timedelta(minutes=10)
        names.add(f"{kind} {dataset}")

    assert names == {"classify animals", "classify birds", "backfill animals"}


def test_messages_of_flows_name_no_option_of_the_command_line():
    files = [
        *Path(flows.__file__).parent.glob("*.py"),
        *(Path(flows.__file__).parent / "run").rglob("*.py"),
        *(Path(flows.__file__).parent / "shard").glob("*.py"),
        *(Path(tasks.__file__).parent / "results").glob("[!a]*.py"),  # the audit's --list is a command's alone
    ]
    texts = [
        (path.name, node.value)
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]

    assert len(files) > 30
    assert [each for each in texts if " --" in each[1] or each[1].startswith("--")] == []


def test_a_flow_that_is_stopped_is_cancelled_and_so_is_the_one_that_called_it(client):
    @prefect.flow(validate_parameters=False)
    @fail_with_message
    def stopped():
        raise KeyboardInterrupt

    @prefect.flow(validate_parameters=False)
    @fail_with_message
    def calling():
        stopped()

    flow_run = client.create_flow_run(calling, tags=[TAG])
    with pytest.raises(KeyboardInterrupt):
        run_flow_here(calling, flow_run, {})

    called = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[flow_run.id]))
    for each in (client.read_flow_run(flow_run.id), *client.read_flow_runs(flow_run_filter=called)):
        assert (each.state.name, each.state.message) == ("Cancelled", "Stopped by the user.")


@pytest.mark.parametrize("deployed", [False, True], ids=["of a command", "deployed"])
def test_sigterm_cancels_a_command_and_crashes_what_is_deployed(client, deployed):
    @prefect.flow(validate_parameters=False)
    @fail_with_message
    def ended():
        raise TerminationSignal(signal.SIGTERM)

    flow_run = client.create_flow_run(ended, tags=[TAG])
    if deployed:
        deployment_id = client.create_deployment(client.create_flow(ended), f"ended-{flow_run.id}")
        flow_run = client.create_flow_run_from_deployment(deployment_id, tags=[TAG])
    received = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: received.append(number))
    try:
        with contextlib.suppress(BaseException):
            run_flow_here(ended, flow_run, {})
    finally:
        signal.signal(signal.SIGTERM, before)

    assert received == [signal.SIGTERM]
    assert client.read_flow_run(flow_run.id).state.name == ("Crashed" if deployed else "Cancelled")


@prefect.flow(validate_parameters=False)
def called():
    return is_stopped_by_user(TerminationSignal(signal.SIGTERM))


def test_a_deployed_run_that_gets_sigterm_is_stopped_by_its_user_only_if_it_was_cancelled(client):
    found = []

    @prefect.flow(validate_parameters=False)
    def ended():
        flow_run_id = prefect.runtime.flow_run.id
        found.extend([is_stopped_by_user(TerminationSignal(signal.SIGTERM)), called()])
        client.set_flow_run_state(flow_run_id, Cancelling(), force=True)
        found.extend([is_stopped_by_user(TerminationSignal(signal.SIGTERM)), called()])

    deployment_id = client.create_deployment(client.create_flow(ended), "evicted-or-cancelled")
    flow_run = client.create_flow_run_from_deployment(deployment_id, tags=[TAG])
    run_flow(ended, flow_run=flow_run, return_type="state")

    assert found == [False, False, True, True]
    assert is_stopped_by_user(KeyboardInterrupt())
    assert not is_stopped_by_user(ConfigurationError("Its own fault."))


def test_sigterm_to_a_command_stops_what_it_has_called_as_well(client):
    @prefect.flow(validate_parameters=False)
    def calling():
        return called()

    assert run_flow(calling, flow_run=client.create_flow_run(calling, tags=[TAG]))


def test_a_run_whose_pod_is_evicted_is_lost_until_it_is_started_again(client, db, run):
    @prefect.flow(validate_parameters=False)
    def deployed():
        with contextlib.suppress(TerminationSignal), _interruption_recorded(SimpleNamespace(database=db, key=run)):
            raise TerminationSignal(signal.SIGTERM)

    deployment_id = client.create_deployment(client.create_flow(deployed), "evicted")
    run_flow(deployed, flow_run=client.create_flow_run_from_deployment(deployment_id, tags=[TAG]))

    row = read_run(db, run.run_id)
    assert (row["state"], row["message"]) == ("lost", LOST)


def test_the_log_of_a_worker_holds_the_sentence_of_a_failed_run_and_no_traceback(client):
    @prefect.flow(validate_parameters=False)
    @fail_with_message
    def failing():
        raise ConfigurationError("The sentence.")

    flow_run = client.create_flow_run(failing, tags=[TAG])
    with handled() as records, pytest.raises(ConfigurationError):
        run_flow(failing, flow_run=flow_run, error_logger=flow_run_logger(flow_run))

    assert "The sentence." in [record.getMessage() for record in records]
    assert not any(record.exc_info for record in records)


@contextlib.contextmanager
def handled():
    """Records that the logger of flow runs passes on."""
    records, logger, handler = [], logging.getLogger("prefect.flow_runs"), logging.Handler()
    handler.emit = records.append
    logger.addHandler(handler)
    yield records
    logger.removeHandler(handler)


def test_a_run_whose_manifest_may_be_empty_completes_without_one(client):
    parameters = {"manifest": "/gone/*.parquet", "may_be_empty": True}
    flow_run = client.create_flow_run(classify, parameters=parameters, tags=[TAG])

    run_flow(classify, flow_run=flow_run, parameters=parameters, return_type="state")

    state = client.read_flow_run(flow_run.id).state
    assert (state.name, state.message) == ("Completed", "Nothing to do: No file matches /gone/*.parquet.")


def test_no_run_is_made_whose_id_cannot_be_written(client, prefect_services, tmp_path):
    before = client.count_flow_runs()

    with pytest.raises(ConfigurationError, match="does not exist; create it first"):
        run_flow_locally(DescribeRequest(manifest="jobs.parquet"), prefect_services, id_file=f"{tmp_path}/none/id")

    assert client.count_flow_runs() == before
