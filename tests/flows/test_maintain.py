import os
import re
from datetime import UTC, datetime, timedelta

import pytest
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.states import Completed

from flows import maintain
from flows.maintain import apply_retention, remove_flow_runs
from flows.run.names import TAG
from flows.runs import classify
from flows.schedule.deploy import deploy_flows
from infra.embedded import export
from infra.settings import RetentionSettings
from tests.command_line import reelabel


def test_a_dry_run_lists_what_maintenance_then_removes(client, own_services, monkeypatch):
    monkeypatch.setattr(maintain, "TAG", "of this test alone")
    monkeypatch.setattr(maintain, "_FLOW_RUNS_KEPT", timedelta(0))
    monkeypatch.setattr(maintain, "_PLANS_KEPT", timedelta(0))
    ours, strangers = (
        client.create_flow_run(classify, parameters={"manifest": "x"}, tags=tags, state=Completed())
        for tags in (["of this test alone"], [TAG])
    )
    rows = {"results_days": 1e-9, "live_days": 1e-9}
    everything = RetentionSettings(frames_days=1e-9, **rows)
    settings = own_services.model_copy(update={"retention": everything})

    would = list(apply_retention(settings, dry_run=True))
    assert client.read_flow_run(ours.id)
    went = list(apply_retention(settings, dry_run=False))

    assert "Would remove 0 live sessions and 0 files of live sessions." in would
    assert [line.split()[0] for line in would] == ["Would"] * 9
    assert [line.split()[0] for line in went] == ["Closed", *["Removed"] * 8]
    with pytest.raises(ObjectNotFound):
        client.read_flow_run(ours.id)
    assert client.read_flow_run(strangers.id)


def test_flow_runs_that_another_process_removes_meanwhile_do_not_stop_maintenance(client):
    for _ in range(2):
        client.create_flow_run(classify, parameters={"manifest": "x"}, tags=[TAG], state=Completed())

    class Raced:
        delete_flow_run = staticmethod(client.delete_flow_run)

        @staticmethod
        def read_flow_runs(**filters):
            page = client.read_flow_runs(**filters)
            for flow_run in page:
                client.delete_flow_run(flow_run.id)
            return page

    assert remove_flow_runs(Raced, ended_before=datetime.now(UTC)) >= 2


def without_folders(report):
    """Leave out the count of temporary folders: other tests on this machine leave some at any time."""
    return re.sub(r"\d+ temporary folders?", "temporary folders", report)


@pytest.mark.system
@pytest.mark.xdist_group("prefect")
def test_the_deployment_and_the_command_report_the_same(client, prefect_services):  # noqa: ARG001 - where it deploys
    deploy_flows(prefect_services)
    environment = os.environ | export(prefect_services) | {"COLUMNS": "160"}

    ended = run_deployment("maintain/daily", parameters={"dry_run": True}, poll_interval=1)
    shown = reelabel(environment, "maintain", "--dry-run")

    assert ended.state.is_completed()
    *lines, again = shown.stdout.splitlines()
    assert again == "To remove them: reelabel maintain"
    shorter = reelabel(environment, "maintain", "--dry-run", "--set", "retention.history_days=7").stdout.splitlines()
    assert shorter[1] == "Would remove 0 rows of results replaced more than 7 days ago."
    assert shorter[-1] == "To remove them: reelabel maintain --set retention.history_days=7"
    assert without_folders(ended.state.message) == without_folders(" ".join(lines)), shown.stderr
    assert lines[1] == "Would remove 0 rows of results replaced more than 90 days ago."
    assert lines[2] == "Would remove 0 plans and 0 plan files."
