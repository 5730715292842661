"""A shard's videos reach whoever asks about them as they are ready."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from flows.arriving import Arriving
from infra.errors import VideoUnreadableError
from tasks.domain import Shard, View
from tasks.plans.extracted import ExtractedShard

FIRST, SECOND = View("a.mp4"), View("b.mp4")
FAULT, OTHER_FAULT = VideoUnreadableError("no video"), VideoUnreadableError("no video, either")


@pytest.fixture
def extracted():
    return ExtractedShard(
        shard=Shard(index=0, jobs=()), prepared={}, faults={FIRST: FAULT}, spent_ms={}, between_s=(0.0, 0.0)
    )


def test_who_waits_gets_a_video_before_the_next_one_is_ready():
    arriving = Arriving()
    with ThreadPoolExecutor(1) as reader:
        waiting = reader.submit(arriving.after, 0)
        arriving.add(FIRST, FAULT)

        assert waiting.result() == {FIRST: FAULT}

    arriving.add(SECOND, OTHER_FAULT)
    assert arriving.after(1) == {SECOND: OTHER_FAULT}
    assert arriving.extracted is None


def test_a_few_wait_for_others_until_the_shard_is_over():
    arriving = Arriving()
    arriving.add(FIRST, FAULT)
    with ThreadPoolExecutor(1) as reader:
        waiting = reader.submit(arriving.after, 0, few=2, patience_s=60)
        arriving.add(SECOND, OTHER_FAULT)
        arriving.end(None)

        assert waiting.result(30) == {FIRST: FAULT, SECOND: OTHER_FAULT}


def test_a_few_wait_for_others_no_longer_than_their_patience():
    arriving = Arriving()
    arriving.add(FIRST, FAULT)

    assert arriving.after(0, few=2, patience_s=0.01) == {FIRST: FAULT}


def test_an_extraction_that_begins_anew_changes_nothing_that_was_said():
    arriving = Arriving()
    arriving.add(FIRST, FAULT)
    arriving.add(FIRST, OTHER_FAULT)

    assert arriving.after(0) == {FIRST: FAULT}


def test_nobody_waits_for_an_extraction_that_came_to_nothing():
    arriving = Arriving()
    with ThreadPoolExecutor(1) as reader:
        waiting = reader.submit(arriving.after, 0)
        arriving.end(None)

        assert waiting.result() == {}
    assert arriving.extracted is None


def test_a_whole_shard_stays_whole_and_can_be_read_again(extracted):
    arriving = Arriving.whole(extracted)
    arriving.end(None)

    assert arriving.after(0) == arriving.after(0) == {FIRST: FAULT}
    assert arriving.after(1) == {}
    assert arriving.extracted is extracted
