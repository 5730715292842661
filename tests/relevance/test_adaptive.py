"""Frames are chosen as adaptive keyframe sampling chooses them, and for any scores as many as are asked for."""

import numpy as np
import pytest

from reelabel.sampling.uniform import pick_evenly
from tasks.relevance import choose_adaptively


def transcribe(scores, frames, m, level, *, s_thr, levels):
    """ADA as the paper states it: TOP if the mean of the m best exceeds that of all by s_thr, otherwise BIN."""
    top = sorted(frames, key=lambda t: -scores[t])[:m]
    s_top = np.mean([scores[t] for t in top])
    s_all = np.mean([scores[t] for t in frames])
    if m == 1 or level == levels or s_top - s_all >= s_thr:
        return top
    half = len(frames) // 2
    return [
        *transcribe(scores, frames[:half], m // 2, level + 1, s_thr=s_thr, levels=levels),
        *transcribe(scores, frames[half:], m // 2, level + 1, s_thr=s_thr, levels=levels),
    ]


def bump(length, start, end, rng=None, noise=0.0):
    scores = np.full(length, 0.05)
    scores[start:end] = 0.3
    return scores + (noise * rng.normal(size=length) if rng else 0.0)


@pytest.mark.parametrize("stands_out", [0.2, 0.4, 0.8])
@pytest.mark.parametrize("count", [1, 2, 4, 8, 16, 32, 64])
def test_frames_are_those_of_the_paper(count, stands_out):
    rng = np.random.default_rng(count)
    for length in (64, 96, 257, 1600):
        for scores in (rng.normal(size=length), bump(length, length // 3, length // 3 + length // 20, rng, 0.02)):
            normalized = (scores - scores.min()) / (scores.max() - scores.min())

            wanted = transcribe(normalized, list(range(length)), count, 0, s_thr=stands_out, levels=5)

            assert choose_adaptively(scores, count, stands_out=stands_out) == sorted(wanted)


@pytest.mark.parametrize("seed", range(20))
def test_there_are_as_many_as_asked_for_each_once_and_in_order(seed):
    rng = np.random.default_rng(seed)
    for length in range(1, 40):
        scores = rng.integers(0, 3, length).astype(np.float32)  # many are equal
        for count in range(1, 45):
            chosen = choose_adaptively(scores, count, stands_out=float(rng.choice([0.0, 0.1, 0.5, 2.0])))

            assert len(chosen) == min(count, length)
            assert chosen == sorted(set(chosen))
            assert 0 <= chosen[0] <= chosen[-1] < length


def test_what_stands_out_is_shown_alone():
    assert choose_adaptively(bump(100, 40, 45), 4) == [40, 41, 42, 43]


def test_what_fills_less_than_the_frames_is_shown_and_the_others_are_spread():
    chosen = choose_adaptively(bump(96, 40, 45), 16, stands_out=0.5)

    assert {40, 41, 42, 43, 44} <= set(chosen)
    assert [frame for frame in chosen if frame >= 48] == [48, 54, 60, 66, 72, 78, 84, 90]


@pytest.mark.parametrize("count", [1, 3, 4, 16])
def test_frames_that_fit_equally_well_are_spread_evenly(count):
    noise = np.random.default_rng(0).uniform(0, 9e-4, 100)

    assert choose_adaptively(np.full(100, 0.2), count) == pick_evenly(100, count)
    assert choose_adaptively(0.2 + noise, count) == pick_evenly(100, count)  # of rounding alone


def test_of_an_odd_number_the_half_with_the_best_frame_gets_one_more():
    later = np.array([0.1, 0.2, 0.1, 0.2, 0.1, 0.3, 0.1, 0.2])

    assert choose_adaptively(later, 3, stands_out=2.0) == [1, 5, 7]
    assert choose_adaptively(later[::-1], 3, stands_out=2.0) == [0, 2, 4]


@pytest.mark.parametrize("scores", [[], [0.1, np.nan], [0.1, np.inf], [[0.1, 0.2]]])
def test_scores_that_are_no_numbers_are_refused(scores):
    with pytest.raises(ValueError, match="not N finite numbers"):
        choose_adaptively(np.array(scores), 2)
