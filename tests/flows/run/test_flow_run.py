"""What a run makes of the date for which it was scheduled."""

from datetime import UTC, datetime

import pytest
from prefect.runtime import flow_run

from flows.run import flow_run as current
from flows.run.flow_run import render_request, scheduled_run_name
from flows.run.request import ClassifyRequest


@pytest.fixture(autouse=True)
def _scheduled(monkeypatch):
    """Every flow run was first scheduled for an hour before midnight, in UTC."""
    monkeypatch.setattr(current, "first_scheduled", lambda _id: datetime(2026, 10, 31, 23, tzinfo=UTC))


@pytest.mark.parametrize(
    ("parameters", "manifest", "dataset"),
    [
        pytest.param(
            {"manifest": "s3://b/jobs/dt={scheduled_date}/*.parquet"},
            "s3://b/jobs/dt=2026-10-31/*.parquet",
            "jobs-2026-10-31",
            id="a dataset for each date",
        ),
        pytest.param(
            {"manifest": "s3://b/{scheduled_date}.parquet", "timezone": "Europe/Berlin"},
            "s3://b/2026-11-01.parquet",
            "b-2026-11-01",
            id="the date of the time zone",
        ),
        pytest.param(
            {"manifest": "s3://b/{scheduled_date}.parquet", "dataset": "all"},
            "s3://b/2026-10-31.parquet",
            "all",
            id="one dataset",
        ),
        pytest.param(
            {"manifest": "jobs.parquet", "dataset": "jobs {scheduled_date:%Y/%m}"},
            "jobs.parquet",
            "jobs 2026/10",
            id="one manifest",
        ),
        pytest.param({"manifest": "jobs.parquet"}, "jobs.parquet", None, id="no date"),
    ],
)
def test_placeholders_are_the_date_for_which_a_run_was_scheduled(parameters, manifest, dataset):
    rendered = render_request(ClassifyRequest(**parameters), None)

    assert (rendered.manifest, rendered.dataset) == (manifest, dataset)


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"manifest": "jobs.parquet"}, "classify jobs 2026-10-31 23:00"),
        ({"manifest": "jobs.parquet", "dataset": "d"}, "classify d 2026-10-31 23:00"),
        ({"manifest": "b/jobs/{scheduled_date}.parquet"}, "classify jobs-2026-10-31 2026-10-31 23:00"),
        ({"manifest": "jobs.parquet", "timezone": "Europe/Berlin"}, "classify jobs 2026-11-01 00:00"),
        ({"manifest": "jobs.parquet", "timezone": ""}, "classify jobs 2026-10-31 23:00"),
        ({"manifest": "jobs.parquet", "timezone": "Mars"}, "classify jobs 2026-10-31 23:00"),
    ],
)
def test_a_run_is_named_after_its_dataset_and_the_time_for_which_it_was_scheduled(monkeypatch, parameters, name):
    monkeypatch.setitem(flow_run.FIELDS, "parameters", lambda: parameters)

    assert scheduled_run_name("classify") == name
