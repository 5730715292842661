"""A plan whose shards are done ends, whether or not its files can be removed."""

from dataclasses import replace

from prefect.logging import disable_run_logger
from pydantic import SecretStr

from flows.run.plan import finish_plan
from reelabel.sources.object_store import ObjectStore
from tasks.plans.plan import open_plans
from tests.plans.conftest import make_plan, run

__all__ = ["make_plan", "run"]


def test_a_plan_whose_files_may_not_be_removed_is_finished(db, make_plan, store_settings):
    plan = make_plan(plan_uri=f"{store_settings.uri}/p")
    refused = ObjectStore(replace(store_settings, secret_access_key=SecretStr("wrong")))

    with disable_run_logger():
        finish_plan(db, refused, plan, state="done")

    assert open_plans(db) == []
