"""Runs of stages and of maintenance are named after what they do, like those of manifests."""

import os
import re
import socket
from datetime import UTC, datetime, timedelta

import pytest
from prefect.client.orchestration import get_client
from prefect.flow_engine import run_flow

from flows.extract import extract
from flows.infer import infer
from flows.maintain import maintain
from flows.run.names import TAG
from infra.embedded import export
from tasks.plans.plan import close_plan
from tests.plans.conftest import make_plan, run

__all__ = ["make_plan", "run"]


@pytest.fixture
def name_of(prefect_api, prefect_services, database_url, monkeypatch):  # noqa: ARG001 - where the flows run
    for name, value in (export(prefect_services) | {"REELABEL_DATABASE_URL": database_url}).items():
        monkeypatch.setenv(name, value)

    def name_of(flow, parameters):
        """Run a flow, and return the name of its run without the time."""
        with get_client(sync_client=True) as client:
            flow_run = client.create_flow_run(flow, parameters=parameters, tags=[TAG])
            run_flow(flow, flow_run=flow_run, parameters=parameters, return_type="state")
            words = client.read_flow_run(flow_run.id).name.split()
        [day] = [number for number, word in enumerate(words) if re.fullmatch(r"\d{4}-\d\d-\d\d", word)]
        at = datetime.fromisoformat(f"{words.pop(day)} {words.pop(day)}+00:00")
        assert datetime.now(UTC) - at < timedelta(minutes=10)
        return " ".join(words)

    return name_of


def test_a_run_of_a_stage_is_named_after_its_dataset_and_its_process(name_of, make_plan, db):
    plan = make_plan(dataset="animals")
    close_plan(db, plan.plan_id, state="done")
    process = f"{socket.gethostname()}/{os.getpid()}"

    assert name_of(infer, {"plan": str(plan.plan_id), "idle_timeout_s": 0}) == f"infer animals {process}"
    assert name_of(extract, {"plan": "no-plan"}) == f"extract plan no-plan {process}"
    assert name_of(extract, {"idle_timeout_s": 0}) == f"extract every plan {process}"


def test_a_run_of_maintenance_is_named_after_its_time(name_of):
    assert name_of(maintain, {"dry_run": True}) == "maintain"
