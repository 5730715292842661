"""`reelabel status` shows who extracts and infers, and which stages of open plans have nobody."""

import os
from contextlib import ExitStack

import pytest

from infra.embedded import export
from infra.settings import DatabaseSettings
from tasks.plans.lease import Work
from tasks.plans.worker import alive
from tests.command_line import reelabel
from tests.plans.conftest import make_plan, run
from tests.results.rows import SPEC

__all__ = ["make_plan", "run"]


@pytest.fixture
def page(services, database_url, tmp_path):
    """The page of a home folder without a Prefect server, which other tests may have started in the shared one."""
    settings = services.model_copy(update={"home": tmp_path, "database": DatabaseSettings(url=database_url)})
    shared = os.environ | export(settings) | {"COLUMNS": "160"}
    return lambda **named: reelabel(shared | named, "status").stdout


def test_live_workers_are_listed_by_stage_with_their_process_and_heartbeat(db, page):
    with alive(db, Work.INFER, model=SPEC.model), alive(db, Work.EXTRACT):
        lines = page().splitlines()

    [heading] = [number for number, line in enumerate(lines) if "heartbeat" in line]
    extracting, inferring = (line.split() for line in lines[heading + 2 : heading + 4])
    assert (extracting[0], inferring[0]) == ("extract", "infer")
    assert extracting[2] == inferring[2] == str(os.getpid())
    assert SPEC.model.name in inferring
    assert extracting[-2:] == ["s", "ago"]
    assert int(extracting[-3]) < 20
    assert "heartbeat" not in page()


@pytest.mark.parametrize(
    ("workers", "missing"),
    [
        pytest.param([], ["extract", "infer"], id="nobody"),
        pytest.param([Work.EXTRACT], ["infer"], id="an extract worker"),
        pytest.param([Work.EXTRACT, Work.INFER], [], id="both"),
    ],
)
def test_a_stage_that_nobody_serves_is_told_with_the_command_that_starts_a_worker(
    db, page, make_plan, workers, missing
):
    plan = make_plan()
    with ExitStack() as stack:
        for stage in workers:
            stack.enter_context(alive(db, stage, model=SPEC.model if stage == Work.INFER else None))
        shown = page(REELABEL_RUN_EXECUTOR="remote")

    told = [line for line in shown.splitlines() if "worker is alive" in line]
    beginning = f"Plan {str(plan.plan_id)[:8]}: No"
    assert [line.partition("worker is alive: start one by `reelabel worker")[0] for line in told] == [
        f"{beginning} {stage} " for stage in missing
    ]


def test_tables_of_plans_and_workers_fit_80_columns(db, page, make_plan):
    make_plan()
    with alive(db, Work.INFER, model=SPEC.model):
        lines = page(COLUMNS="80").splitlines()

    headings = [line.split() for line in lines if "heartbeat" in line or "planned" in line]
    assert sorted(line[0] for line in headings) == ["plan", "worker"]
    assert max(len(line) for line in lines if not line.startswith("Logs: ")) <= 80
    assert any("waiting for" in line for line in lines)


def test_with_the_local_executor_no_worker_is_missed(page, make_plan):
    make_plan()

    assert "worker is alive" not in page()
