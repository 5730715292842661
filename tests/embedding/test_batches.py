"""Threads that embed frames share requests, and only the video that kills the encoder fails."""

from concurrent.futures import ThreadPoolExecutor
from threading import Condition, Event

import numpy as np
import pytest

from infra.errors import EngineLostError
from reelabel.waiting import AbandonedError, raise_if_abandoned, working_until
from reelabel_engine.errors import InferenceError, ModelError
from tasks.embedding.batches import FrameBatcher
from tests.description.colours import ColourEncoder


def frames(count, colour):
    return np.full((count, 4, 4, 3), colour, np.uint8)


class HeldEncoder(ColourEncoder):
    """Answers the first request only when it is told to."""

    def __init__(self):
        super().__init__()
        self.go = Event()

    def embed_images(self, videos):
        found = super().embed_images(videos)
        if len(self.requests) == 1:
            assert self.go.wait(20)
        return found


def embed_while_held(encoder, videos, *, batch_frames, then_die=False):
    """Embed videos, all but the first of them while the first is held; return what each got."""
    batcher = FrameBatcher(encoder=encoder, batch_frames=batch_frames)
    batcher._senders = ThreadPoolExecutor(1)
    with ThreadPoolExecutor(len(videos)) as threads:
        found = [threads.submit(batcher.embed, videos[0])]
        while not encoder.requests:
            pass
        found += [threads.submit(batcher.embed, video) for video in videos[1:]]
        while len(batcher._waiting) < len(videos) - 1:
            pass
        encoder.is_dead = then_die
        encoder.go.set()
    return found


def test_what_waits_shares_a_request_up_to_a_batch_and_each_gets_its_own_vectors():
    encoder, colours = HeldEncoder(), [(200, 0, 0), (0, 200, 0), (0, 0, 200), (200, 0, 0)]
    videos = [frames(count, colour) for count, colour in zip([3, 5, 4, 1], colours, strict=True)]

    found = embed_while_held(encoder, videos, batch_frames=9)

    assert encoder.requests == [[3], [5, 4], [1]]
    for got, video, best in zip(found, videos, [0, 1, 2, 0], strict=True):
        assert got.result().vectors.shape == (len(video), 3)
        assert set(got.result().vectors.argmax(axis=1).tolist()) == {best}


def test_a_video_larger_than_a_batch_is_a_request_of_its_own():
    encoder = ColourEncoder()

    assert len(FrameBatcher(encoder=encoder, batch_frames=2).embed(frames(7, 100)).vectors) == 7
    assert encoder.requests == [[7]]


def test_the_video_that_kills_the_encoder_fails_alone():
    encoder = HeldEncoder()
    videos = [frames(1, 10), frames(2, (200, 0, 0)), frames(2, 255), frames(2, (0, 200, 0))]

    _, red, white, green = embed_while_held(encoder, videos, batch_frames=100)

    assert isinstance(white.exception(), InferenceError)
    assert "The frames of this video crash the model's process" in str(white.exception())
    assert [got.result().vectors.argmax(axis=1).tolist() for got in (red, green)] == [[0, 0], [1, 1]]


class WaitingEncoder(HeldEncoder):
    """Ends a request that its caller abandons, as `RunningProcess.replies` does."""

    def embed_images(self, videos):
        found = super().embed_images(videos)
        raise_if_abandoned()
        return found


def test_a_caller_that_leaves_takes_no_other_caller_with_it():
    encoder, has_left = WaitingEncoder(), Event()
    batcher = FrameBatcher(encoder=encoder)
    batcher._senders = ThreadPoolExecutor(1)

    def embed_and_leave():
        with working_until(has_left.is_set):
            return batcher.embed(frames(2, (200, 0, 0)))

    with ThreadPoolExecutor(3) as threads:
        threads.submit(batcher.embed, frames(1, 10))
        while not encoder.requests:
            pass
        leaving = threads.submit(embed_and_leave)
        while len(batcher._waiting) < 1:
            pass
        staying = threads.submit(batcher.embed, frames(2, (0, 200, 0)))
        while len(batcher._waiting) < 2:
            pass
        has_left.set()
        assert isinstance(leaving.exception(), AbandonedError)
        encoder.go.set()

    assert encoder.requests == [[1], [2, 2]]
    assert staying.result().vectors.argmax(axis=1).tolist() == [1, 1]


class QueueingEncoder(ColourEncoder):
    """Has requests in a queue: one that kills its process takes the one behind it along."""

    def __init__(self):
        super().__init__()
        self.changed, self.deaths, self.queued = Condition(), 0, 0

    def embed_images(self, videos):
        with self.changed:
            try:
                found = super().embed_images(videos)
            except EngineLostError:
                self.changed.wait_for(lambda: self.queued, timeout=0.5)
                self.deaths, self.queued = self.deaths + 1, 0
                self.changed.notify_all()
                raise
            before = self.deaths
            self.queued += 1
            self.changed.notify_all()
            if self.changed.wait_for(lambda: self.deaths > before, timeout=0.5):
                raise EngineLostError("The encoder failed: its process died.")
            self.queued -= 1
        return found


def test_a_video_that_is_lost_with_another_one_is_not_at_fault():
    batcher = FrameBatcher(encoder=QueueingEncoder(), batch_frames=2)

    with ThreadPoolExecutor(2) as threads:
        white, red = (threads.submit(batcher.embed, frames(2, colour)) for colour in (255, (200, 0, 0)))

    assert isinstance(white.exception(), InferenceError)
    assert red.result().vectors.argmax(axis=1).tolist() == [0, 0]


def test_an_encoder_that_dies_on_any_frames_is_no_videos_fault():
    encoder = HeldEncoder()
    videos = [frames(1, 10), frames(2, 20), frames(2, 30)]

    found = embed_while_held(encoder, videos, batch_frames=100, then_die=True)

    assert [type(got.exception()) for got in found[1:]] == [EngineLostError, EngineLostError]
    # Found out once: by the first video, and by black frames.
    assert encoder.requests[1:] == [[2, 2], [2], [1]]


def test_another_error_reaches_all_who_wait(monkeypatch):
    encoder = ColourEncoder()
    monkeypatch.setattr(encoder, "embed_images", lambda _: (_ for _ in ()).throw(ModelError("gone")))

    with pytest.raises(ModelError, match="gone"):
        FrameBatcher(encoder=encoder, batch_frames=2).embed(frames(1, 1))


class ClockedEncoder(ColourEncoder):
    """Answers in order, as their process does, and takes a second for each frame; the first one waits for a second."""

    def __init__(self):
        super().__init__()
        self.now_s, self.second_waits, self.first = 0.0, Event(), None

    def embed_images(self, videos):
        is_first = not self.requests
        found = super().embed_images(videos)
        if is_first:
            assert self.second_waits.wait(20)
        else:
            self.second_waits.set()
            self.first.result()
        self.now_s += sum(map(len, videos))
        return found


def test_the_time_of_the_encoder_counts_once_also_if_a_request_waits_for_another():
    encoder = ClockedEncoder()
    batcher = FrameBatcher(encoder=encoder, batch_frames=64, clock_s=lambda: encoder.now_s)
    with ThreadPoolExecutor(2) as threads:
        encoder.first = threads.submit(batcher.embed, frames(2, 10))
        while not encoder.requests:
            pass
        second = threads.submit(batcher.embed, frames(3, 20))

    assert [each.result().embed_ms for each in (encoder.first, second)] == [2_000, 3_000]


def test_videos_that_share_a_request_share_its_time_by_frames():
    encoder = HeldEncoder()
    now_s = iter([0, 1, 1, 11])
    batcher = FrameBatcher(encoder=encoder, batch_frames=9, clock_s=lambda: next(now_s))
    batcher._senders = ThreadPoolExecutor(1)
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(batcher.embed, frames(1, 10))
        while not encoder.requests:
            pass
        shared = [threads.submit(batcher.embed, frames(count, 20)) for count in (1, 4)]
        while len(batcher._waiting) < 2:
            pass
        encoder.go.set()

    assert first.result().embed_ms == 1_000
    assert sorted(each.result().embed_ms for each in shared) == [2_000, 8_000]
