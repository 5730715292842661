"""What becomes of a run's plans."""

import pytest
from prefect.logging import disable_run_logger

from flows.planning import Planner
from flows.prepared import prepared
from flows.request import RunRequest
from tasks.demo.clips import make_demo
from tasks.manifest.plan_file import read_shard
from tasks.model.identity import TINY_MODEL
from tasks.plans.plan import open_plans


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
