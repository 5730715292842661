import pytest

from tests.results.conftest import run
from tests.results.rows import record_plan

__all__ = ["run"]


@pytest.fixture
def make_plan(db, run):
    """Record a plan of some shards of 100 jobs."""
    return lambda shards=3, **changed: record_plan(db, run, [100] * shards, **changed)
