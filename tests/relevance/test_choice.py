"""Frames are chosen by the text that fits best, and each part of a video counts by its length."""

import numpy as np
import pytest

from tasks.description.embeddings import Embeddings, normalize
from tasks.relevance import choose_frames

TEXTS = np.eye(3, dtype=np.float32)[:2]


def embedded(pts_ms, vectors=None, **facts):
    vectors = np.tile(normalize(np.array([0.2, 0.2, 1.0])), (len(pts_ms), 1)) if vectors is None else vectors
    return Embeddings(vectors=vectors.astype(np.float32), pts_ms=np.array(pts_ms, np.int64), **facts)


def test_the_best_of_several_texts_counts():
    vectors = np.eye(3)[[2] * 10 + [1, 1] + [2] * 30 + [0, 0] + [2] * 10]

    times_ms, note = choose_frames(embedded(range(0, 54_000, 1_000), vectors), TEXTS, 4)

    assert times_ms == (10_000, 11_000, 42_000, 43_000)
    assert note == ("4 of 54 frames chosen by the question, the best of which is at 10.0 s; at most 31.0 s without one")


@pytest.mark.parametrize("at", [0, 8])
def test_the_time_without_a_frame_counts_before_the_first_and_after_the_last(at):
    fits = [2] * at + [0, 0] + [2] * (8 - at)

    _, note = choose_frames(embedded(range(0, 10_000, 1_000), np.eye(3)[fits]), TEXTS, 2)

    assert note.endswith(f"the best of which is at {at}.0 s; at most 8.0 s without one")


def test_times_are_on_the_clock_of_the_video():
    assert choose_frames(embedded([0, 40, 80], first_ms=1_400), TEXTS, 3)[0] == (1_400, 1_440, 1_480)


@pytest.mark.parametrize("count", [4, 8])
def test_a_short_last_chunk_is_not_shown_more_than_it_is_long(count):
    pts_ms = [*range(312, 20_000, 625), *range(20_031, 21_000, 62)]  # 16 frames each of 10 s, 10 s and 1 s

    times_ms, _ = choose_frames(embedded(pts_ms), TEXTS, count, apart_ms=469)

    assert max(np.diff(times_ms)) <= 1.25 * 21_000 / (count - 1)
    assert sum(time_ms > 20_000 for time_ms in times_ms) == 1


def test_a_clip_with_fewer_frames_than_asked_for_shows_all_of_them():
    times_ms, note = choose_frames(embedded([0, 40, 80]), TEXTS, 16)

    assert times_ms == (0, 40, 80)
    assert note.startswith("3 of 3 frames chosen by the question")
