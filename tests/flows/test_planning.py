"""What becomes of a run's plans."""

import pytest
from prefect.logging import disable_run_logger
from sqlalchemy import DDL, text

from flows.page import leave_page
from flows.planning import Planner
from flows.prepared import prepared
from flows.progress import Progress
from flows.request import RunRequest
from flows.run import _carry_out
from infra.database import connect
from infra.settings import DatabaseSettings
from tasks.demo.clips import make_demo
from tasks.manifest.plan_file import read_shard
from tasks.model.identity import TINY_MODEL
from tasks.plans.lease import Work, claim, finish_alone
from tasks.plans.plan import open_plans
from tasks.results.tables import PLAN

_LOSE_ONCE = DDL("""
CREATE SEQUENCE reelabel.updates;
GRANT USAGE, SELECT ON SEQUENCE reelabel.updates TO PUBLIC;
CREATE FUNCTION reelabel.lose_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('reelabel.updates') = 1 THEN
        PERFORM pg_terminate_backend(pg_backend_pid());
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER lose_once AFTER UPDATE ON reelabel.plan FOR EACH STATEMENT EXECUTE FUNCTION reelabel.lose_once()
""")


@pytest.fixture
def settings(services, database, store_settings):
    model = services.model.model_copy(update={"name": str(TINY_MODEL)})
    run = services.run.model_copy(update={"place": "workers", "extract_flows": 0, "infer_flows": 0})
    parts = {"database": database, "store": store_settings, "model": model, "run": run}
    return services.model_copy(update=parts)


@pytest.fixture
def ready_for(settings, tmp_path):
    """Prepare a run of three jobs."""
    make_demo(tmp_path, seed=5, clips=1).write_parquet(tmp_path / "manifest.parquet")

    def ready_for(**options):
        return prepared(RunRequest(manifest=str(tmp_path / "manifest.parquet"), **options), settings)

    with disable_run_logger():
        yield ready_for


def test_a_run_that_is_started_again_drops_the_plan_that_it_does_not_share(ready_for):
    with ready_for(kind="backfill", force=True) as ready:
        first, second = (Planner.of(ready).plan() for _ in range(2))

        assert open_plans(ready.database) == [second]
        assert first.plan_id != second.plan_id
        assert not list(ready.objects.list(first.plan_uri))
        assert read_shard(ready.objects, second.plan_uri, 0)


def test_a_run_that_is_started_again_goes_on_with_a_plan_that_others_share(ready_for):
    with ready_for(kind="classify", shared=True) as ready:
        first, second = (Planner.of(ready).plan() for _ in range(2))

        assert first == second
        assert open_plans(ready.database) == [first]


@pytest.mark.usefixtures("prefect_api")  # where progress is shown
def test_a_plan_is_closed_after_the_database_was_lost_for_a_moment(ready_for, database):
    with ready_for(kind="classify", shared=True) as ready:
        plan = Planner.of(ready).plan()
        for lease in claim(ready.database, plan.plan_id, Work.BOTH, holder="there", lease_s=60, most=plan.shards):
            finish_alone(ready.database, lease, state="done")
        owner = connect(database.model_copy(update={"url": database.owner_url}))
        with owner.begin() as connection:
            connection.execute(_LOSE_ONCE)
        owner.dispose()

        _carry_out(plan, Progress(processes=1), ready)

        with ready.database.connect() as connection:
            assert connection.execute(text("SELECT last_value FROM reelabel.updates")).scalar_one() > 1
            assert connection.execute(PLAN.select()).mappings().one()["state"] == "done"


def test_no_page_is_written_and_the_run_goes_on_where_the_database_is_away(ready_for, settings):
    with ready_for(kind="classify") as ready:
        nowhere = connect(DatabaseSettings(url="postgresql://localhost:1/none"))

        assert leave_page(nowhere, ready.run.run_id, settings) is None
