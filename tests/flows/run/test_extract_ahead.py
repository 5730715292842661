"""How many shards an extract worker leases: no more than it has threads for, so that another one finds some, too."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import pytest

from flows.run.pipeline import extract_ahead
from flows.shard.extract import FrameStream
from reelabel.errors import VideoUnreadableError
from tasks.domain import View
from tasks.plans.lease import Work, claim, finish_alone
from tasks.plans.plan import plan_state
from tests.flows.shard.test_queue import planned, source_of
from tests.plans.conftest import make_plan, run
from tests.wait import until

__all__ = ["make_plan", "planned", "run", "source_of"]

VIDEOS, THREADS = 10, 4
FAULT = VideoUnreadableError("no video")


@dataclass
class Worker:
    """An extraction by a thread.

    Attributes:
        streams: Streams of the shards that it has leased, in order.
        looks: How often it has looked whether there is room for one more.
        waits: Set once it waits for the end of a shard.
    """

    streams: list[FrameStream] = field(default_factory=list)
    looks: int = 0
    waits: threading.Event = field(default_factory=threading.Event)

    def has_leased_only(self, count):
        """Wait until so many shards are leased, and it has looked twice for room for one more."""
        until(lambda: len(self.streams) >= count, every_s=0)
        before = self.looks
        until(lambda: self.looks > before + 2 * count, every_s=0)
        return len(self.streams) == count


@pytest.fixture
def extracting(db, source_of, monkeypatch):
    """Extract a plan as its worker does; the test finishes its videos."""

    @contextmanager
    def extracting(plan, **options):
        source, worker = source_of(plan, work=Work.EXTRACT), Worker()
        left = FrameStream.left.fget

        def count_looks(stream):
            worker.looks += 1
            return left(stream)

        def start(_shard, _extractor, stream):
            stream.expect(VIDEOS)
            worker.streams.append(stream)
            return partial(wait, stream)

        def wait(stream):
            worker.waits.set()
            return stream.after(VIDEOS - 1)

        def work():
            for each in extract_ahead(source, lambda _: None, ahead=2, start=start, **options):
                if each:
                    each.wait()
                    finish_alone(db, each.leased.lease, state="done")

        monkeypatch.setattr(FrameStream, "left", property(count_looks))
        with ThreadPoolExecutor(1) as threads:
            ended = threads.submit(work)
            yield worker
            while not ended.done():
                for stream in list(worker.streams):
                    finish_videos(stream, VIDEOS)
            ended.result()

    return extracting


def finish_videos(stream, count):
    for number in range(count):
        stream.add(View(f"{number}.mp4"), FAULT)
    if count == VIDEOS:
        stream.end(None)


def test_a_worker_leases_a_shard_when_it_has_a_thread_for_its_videos(planned, extracting):
    with extracting(planned(4), threads=THREADS) as worker:
        assert worker.has_leased_only(1)

        finish_videos(worker.streams[0], VIDEOS - THREADS)
        assert worker.has_leased_only(1)

        finish_videos(worker.streams[0], VIDEOS - THREADS + 1)
        assert worker.has_leased_only(2)


def test_a_second_worker_finds_the_other_one_of_two_shards(db, planned, extracting):
    plan = planned(2)
    with extracting(plan, threads=THREADS) as worker:
        assert worker.has_leased_only(1)

        lease = claim(db, plan.plan_id, Work.EXTRACT, holder="another", lease_s=600)
        finish_alone(db, lease, state="done")

    assert plan_state(db, plan.plan_id).is_drained
    assert len(worker.streams) == 1


def test_a_worker_with_many_threads_leases_ahead(planned, extracting):
    with extracting(planned(5), threads=100) as worker:
        assert worker.waits.wait(30)
        assert len(worker.streams) == 3


def test_an_extraction_that_does_not_report_its_videos_is_leased_ahead(planned, extracting):
    with extracting(planned(5)) as worker:
        assert worker.waits.wait(30)
        assert len(worker.streams) == 3


def test_a_shard_is_handed_over_while_a_later_one_still_takes_all_threads(db, planned, extracting):
    plan = planned(3)
    with extracting(plan, threads=THREADS) as worker:
        assert worker.has_leased_only(1)
        finish_videos(worker.streams[0], VIDEOS - 1)
        assert worker.has_leased_only(2)

        finish_videos(worker.streams[0], VIDEOS)

        until(lambda: plan_state(db, plan.plan_id).done == 1)
        assert len(worker.streams) == 2
