"""The videos of a shard reach the backend as soon as they are ready."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from flows.shard.extract import FrameStream
from reelabel.errors import VideoUnreadableError
from tasks.domain import Shard, View
from tasks.plans.extracted import ExtractedShard

FIRST, SECOND = View("a.mp4"), View("b.mp4")
FAULT, OTHER_FAULT = VideoUnreadableError("no video"), VideoUnreadableError("no video, either")


@pytest.fixture
def extracted():
    return ExtractedShard(shard=Shard(index=0, jobs=()), outcomes={FIRST: FAULT}, spent_ms={}, between_s=(0.0, 0.0))


def test_who_waits_gets_a_video_before_the_next_one_is_ready():
    stream = FrameStream()
    with ThreadPoolExecutor(1) as reader:
        waiting = reader.submit(stream.after, 0)
        stream.add(FIRST, FAULT)

        assert waiting.result() == {FIRST: FAULT}

    stream.add(SECOND, OTHER_FAULT)
    assert stream.after(1) == {SECOND: OTHER_FAULT}
    assert stream.extracted is None


def test_a_few_wait_for_others_until_the_shard_is_over():
    stream = FrameStream()
    stream.add(FIRST, FAULT)
    with ThreadPoolExecutor(1) as reader:
        waiting = reader.submit(stream.after, 0, min_count=2, max_wait_s=60)
        stream.add(SECOND, OTHER_FAULT)
        stream.end(None)

        assert waiting.result(30) == {FIRST: FAULT, SECOND: OTHER_FAULT}


def test_a_few_wait_for_others_no_longer_than_their_patience():
    stream = FrameStream()
    stream.add(FIRST, FAULT)

    assert stream.after(0, min_count=2, max_wait_s=0.01) == {FIRST: FAULT}


def test_an_extraction_that_is_repeated_does_not_replace_an_outcome():
    stream = FrameStream()
    stream.add(FIRST, FAULT)
    stream.add(FIRST, OTHER_FAULT)

    assert stream.after(0) == {FIRST: FAULT}


def test_nobody_waits_for_an_extraction_that_came_to_nothing():
    stream = FrameStream()
    with ThreadPoolExecutor(1) as reader:
        waiting = reader.submit(stream.after, 0)
        stream.end(None)

        assert waiting.result() == {}
    assert stream.extracted is None


def test_a_whole_shard_stays_whole_and_can_be_read_again(extracted):
    stream = FrameStream.whole(extracted)
    stream.end(None)

    assert stream.after(0) == stream.after(0) == {FIRST: FAULT}
    assert stream.after(1) == {}
    assert stream.extracted is extracted
