"""The task that describes shards: each once, whatever fails in between; bad videos fail alone."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from uuid import uuid4

import pytest

from flows.shard import describe, retry
from flows.shard.describe import DescriptionContext, describe_shards
from flows.shard.queue import LeasedShard
from infra.errors import LeaseLostError
from reelabel.errors import StoreUnavailableError
from tasks.domain import Shard
from tasks.plans.lease import Lease
from tests.description.test_describer import describer_of, encoder, film, job  # noqa: F401 - fixtures


class Writer:
    """Keeps what is written; fails as it is told, once each."""

    def __init__(self):
        self.run = SimpleNamespace(dataset="d", run_id=uuid4())
        self.engine, self.written, self.faults = None, [], []

    def write(self, _results, failures, *, descriptions, lease, report):
        if self.faults and (fault := self.faults.pop(0)):
            raise fault
        self.written.append((lease.token, len(descriptions), [each.code for each in failures], report["videos_cached"]))
        return {}


@pytest.fixture
def context(describer_of, encoder):  # noqa: F811
    with ThreadPoolExecutor(2) as workers:
        yield DescriptionContext(describer=describer_of(), encoder=encoder, writer=Writer(), workers=workers)


@pytest.fixture
def at_once(monkeypatch):
    """Make another attempt without a wait."""
    monkeypatch.setattr(retry, "_log_and_wait", lambda *_: True)
    monkeypatch.setattr(describe, "require_writes", lambda _: None)


@pytest.fixture
def group(tmp_path):
    film(tmp_path / "red.mp4", ("red", 2))
    (tmp_path / "text.mp4").write_text("no video")
    plan = SimpleNamespace(plan_id=uuid4(), run_id=uuid4())

    def leased(index):
        jobs = [replace(job(tmp_path / name), job_id=f"{name} {index}") for name in ("red.mp4", "text.mp4", "gone.mp4")]
        lease = Lease(plan_id=plan.plan_id, shard_index=index, token=10 + index, jobs=len(jobs))
        return LeasedShard(plan=plan, lease=lease, shard=Shard(index=index, jobs=tuple(jobs)))

    return tuple(map(leased, range(3)))


def test_every_job_ends_as_a_description_or_a_failure_and_embeddings_are_shared(group, context, encoder):  # noqa: F811
    describe_shards.fn(group.name, group, context)

    codes = ["video_unreadable", "video_missing"]
    assert context.writer.written == [(10, 1, codes, 0), (11, 1, codes, 1), (12, 1, codes, 1)]
    assert [each.labels for each in group.ended.values()] == [1, 1, 1]
    assert encoder.images_embedded == 4


@pytest.mark.usefixtures("at_once")
def test_a_shard_whose_service_fails_is_tried_again_alone(group, context):
    context.writer.faults = [None, *[StoreUnavailableError("One object is broken.")] * 2]

    describe_shards.fn("all", group, context)

    assert [token for token, *_ in context.writer.written] == [10, 11, 12]


@pytest.mark.usefixtures("at_once")
def test_a_shard_that_stays_at_fault_leaves_the_others_to_end(group, context):
    context.writer.faults = [StoreUnavailableError("One object is broken.")] * 16

    first, *others = describe_shards.fn("all", group, context)

    assert isinstance(first, StoreUnavailableError)
    assert [each.labels for each in others] == [1, 1]


def test_a_lost_lease_is_no_fault_of_the_other_shards(group, context):
    context.writer.faults = [LeaseLostError("Another worker has it.")]

    first, *_ = describe_shards.fn("all", group, context)

    assert isinstance(first, LeaseLostError)
    assert [token for token, *_ in context.writer.written] == [11, 12]
