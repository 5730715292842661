"""`reelabel status` lists stages of open plans without workers."""

import os

import pytest

from infra.embedded import export
from infra.settings import DatabaseSettings
from tasks.plans.lease import Work, claim
from tests.command_line import reelabel
from tests.plans.conftest import make_plan, run

__all__ = ["make_plan", "run"]


@pytest.fixture
def page(services, database_url, tmp_path):
    """The page of a home folder without a Prefect server, which other tests may have started in the shared one."""
    settings = services.model_copy(update={"home": tmp_path, "database": DatabaseSettings(url=database_url)})
    shared = os.environ | export(settings) | {"COLUMNS": "160"}
    return lambda **named: reelabel(shared | named, "status").stdout


@pytest.mark.parametrize(
    ("leased", "missing"),
    [
        pytest.param(None, ["extract", "infer"], id="nobody"),
        pytest.param(Work.EXTRACT, [], id="an extract worker"),
    ],
)
def test_a_stage_that_nobody_serves_is_reported_with_the_command_that_starts_a_worker(
    db, page, make_plan, leased, missing
):
    plan = make_plan()
    if leased:
        claim(db, plan.plan_id, leased, holder="there", lease_s=600)

    shown = page(REELABEL_RUN_EXECUTOR="remote")

    lines = [line for line in shown.splitlines() if "worker has a shard" in line]
    beginning = f"Plan {str(plan.plan_id)[:8]}: No"
    assert [line.partition("worker has a shard: start one by `reelabel worker")[0] for line in lines] == [
        f"{beginning} {stage} " for stage in missing
    ]


def test_a_table_of_plans_fits_80_columns(page, make_plan):
    make_plan()

    lines = page(COLUMNS="80").splitlines()

    assert [line for line in lines if len(line) > 80 and not line.startswith("Logs: ")] == []
    assert any("waiting for" in line for line in lines)


def test_with_the_local_executor_no_worker_is_missed(page, make_plan):
    make_plan()

    assert "worker has a shard" not in page()
