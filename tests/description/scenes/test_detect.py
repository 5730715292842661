"""Gradual changes count if they stand out of their shot, and not where much moves all the time."""

import numpy as np
import pytest

from tasks.description.embeddings import CutCandidate, Cuts
from tasks.description.scenes.detect import detect_scenes
from tests.description.scenes.test_ema import chunks_of, scenes_of, unit


def turning(degrees):
    """Return vectors of frames, each turned by so much against the one before it."""
    angles = np.radians(np.cumsum(degrees))
    return unit(np.stack([np.cos(angles), np.sin(angles)], axis=1))


def auto(vectors, *cuts):
    """Find changes where the index shows cuts before some frames."""
    chunks = chunks_of(vectors)
    times = np.concatenate([chunk.pts_ms for chunk in chunks]).tolist()
    shown = Cuts(candidates=tuple(CutCandidate(times[at], times[at] - 40, 50.0, 50.0) for at in cuts))
    found = detect_scenes("auto", chunks, cuts=shown).changes
    return [times.index(change.pts_ms) for change in found]


def test_a_dissolve_of_calm_scenes_is_found_beside_cuts():
    vectors = scenes_of([10, 12, 9])

    assert auto(vectors, 10) == [10, 22]


@pytest.mark.parametrize("seed", range(3))
def test_a_scene_in_which_all_moves_has_no_gradual_change(seed):
    degrees = np.random.default_rng(seed).uniform(15, 60, 40)
    chunks = chunks_of(turning(degrees))

    assert len(detect_scenes("ema", chunks).changes) > 2
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


def test_a_dissolve_of_many_small_steps_is_one_change_over_all_of_them():
    calm = np.full(10, 0.5)

    [change] = detect_with([*calm, 15, 20, 25, 20, *calm]).changes

    assert (change.since_ms, change.pts_ms, change.kind) == (9 * 625 + 7, 13 * 625 + 7, "gradual")


def test_a_fade_through_black_is_one_change():
    scenes = scenes_of([10, 2, 10], noise=0)

    [change] = detect_vectors(scenes).changes

    assert (change.since_ms, change.pts_ms) == (9 * 625 + 7, 12 * 625 + 7)


def test_a_fade_to_the_same_scene_is_a_change_and_a_flash_is_none():
    scene, other = scenes_of([1, 1], noise=0)
    calm = [scene] * 10

    assert len(detect_vectors(unit([*calm, other, other, *calm])).changes) == 1
    assert detect_vectors(unit([*calm, other, *calm])).changes == ()


def test_a_cut_is_exact_to_the_frame_and_what_only_embeddings_show_is_not():
    chunks = chunks_of(scenes_of([10, 12]))
    cut = CutCandidate(6007, 5967, 50.0, 50.0)

    [found] = detect_scenes("auto", chunks, cuts=Cuts(candidates=(cut,))).changes
    [sampled] = detect_scenes("ema", chunks).changes

    assert (found.kind, found.since_ms, found.pts_ms) == ("cut", 5967, 6007)
    assert sampled.kind == "sampled"


def test_without_cuts_the_embeddings_decide_and_why_is_noted():
    found = detect_scenes("auto", chunks_of(scenes_of([10, 12])), cuts=Cuts(candidates=None, note="No packets."))

    assert (len(found.changes), found.method, found.note) == (1, "ema", "No packets.")


def detect_with(degrees):
    return detect_vectors(turning(degrees))


def detect_vectors(vectors):
    return detect_scenes("auto", chunks_of(vectors), cuts=Cuts(candidates=()))
