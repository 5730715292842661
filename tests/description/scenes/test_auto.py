"""Gradual changes count if they stand out of their shot, and not where much moves all the time."""

import numpy as np
import pytest

from tasks.description.scenes.auto import those_that_stand_out
from tasks.description.scenes.change import Evidence, IndexLook, PossibleCut, SceneChange
from tasks.description.scenes.registry import detect_scenes
from tests.description.scenes.test_ema import chunks_of, scenes_of, unit


def turning(degrees):
    """Return vectors of frames, each turned by so much against the one before it."""
    angles = np.radians(np.cumsum(degrees))
    return unit(np.stack([np.cos(angles), np.sin(angles)], axis=1))


def auto(vectors, *cuts):
    """Find changes where the index shows cuts before some frames."""
    chunks = chunks_of(vectors)
    times = np.concatenate([chunk.pts_ms for chunk in chunks]).tolist()
    look = IndexLook(cuts=tuple(PossibleCut(times[at], times[at] - 40, 50.0, 50.0) for at in cuts))
    found = detect_scenes("auto", Evidence(chunks=chunks, look=lambda: look)).changes
    return [times.index(change.pts_ms) for change in found]


def test_a_dissolve_of_calm_scenes_is_found_beside_cuts():
    vectors = scenes_of([10, 12, 9])

    assert auto(vectors, 10) == [10, 22]


@pytest.mark.parametrize("seed", range(3))
def test_a_scene_in_which_all_moves_has_no_gradual_change(seed):
    degrees = np.random.default_rng(seed).uniform(15, 60, 40)
    chunks = chunks_of(turning(degrees))

    assert len(detect_scenes("ema", Evidence(chunks=chunks)).changes) > 2
    assert auto(turning(degrees)) == []


def test_a_change_is_compared_within_its_shot_alone():
    moving, calm = np.full(12, 40.0), np.full(12, 1.0)
    calm[6] = 60.0

    assert auto(turning([*moving, *calm, *moving]), 12, 24) == [12, 18, 24]


@pytest.mark.parametrize(("frames", "found"), [(3, []), (9, [4])])
def test_a_shot_that_is_too_short_to_compare_has_no_gradual_change(frames, found):
    degrees = np.full(frames, 0.5)
    degrees[frames // 2] = 70.0

    assert auto(turning(degrees)) == found


def test_nothing_is_left_of_nothing():
    assert those_that_stand_out([], [SceneChange(pts_ms=40, score=1.0, since_ms=0)], chunks_of(scenes_of([1]))) == []
    assert those_that_stand_out([], [], ()) == []
