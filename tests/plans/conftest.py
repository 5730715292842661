from dataclasses import replace
from uuid import uuid4

import pytest

from tasks.plans.plan import Plan, open_plan
from tests.results.conftest import run
from tests.results.rows import SPEC

__all__ = ["run"]


@pytest.fixture
def make_plan(db, run):
    """Record a plan of some shards of 100 jobs."""

    def make(shards=3, **changed):
        plan = Plan(
            plan_id=uuid4(),
            run_id=run.run_id,
            dataset="d",
            spec_id=SPEC.spec_id,
            manifest_uri="m.parquet",
            manifest_fingerprint="f",
            kind="classify",
            shared=False,
            plan_uri="file:///plans/p",
            shards=shards,
            jobs=100 * shards,
        )
        plan = replace(plan, **changed)
        open_plan(db, plan, [100] * shards)
        return plan

    return make
