import itertools

import numpy as np
import pytest

from benchmarks.scenes.clips import GRADUAL, HARD, draw, known_transitions, made_set, plan_shots
from benchmarks.scenes.measure import SceneRow, targets
from benchmarks.scenes.truth import Score, Transition, score
from tasks.description.scenes.change import SceneChange


def change(pts_ms, since_ms=None):
    return SceneChange(pts_ms=pts_ms, score=1.0, since_ms=pts_ms - 40 if since_ms is None else since_ms)


def test_a_repeated_change_is_wrong_after_the_first():
    got = score([change(1000), change(1040), change(5000)], [Transition(960, 1000), Transition(9000, 9040)])

    assert got == Score(hits=1, wrong=2, missed=1)
    assert (got.precision, got.recall) == (1 / 3, 1 / 2)
    assert got.f1 == pytest.approx(0.4)


def test_nothing_found_where_nothing_is_counts_as_right():
    assert Score().f1 == 1
    assert score([], [Transition(0, 40)]).f1 == 0


def test_a_change_may_be_anywhere_within_its_span():
    assert score([change(2000, since_ms=1400)], [Transition(1640, 1680)]).hits == 1
    assert score([change(2000, since_ms=1900)], [Transition(1640, 1680)]).hits == 0


@pytest.mark.parametrize("kind", [*HARD, *GRADUAL])
def test_drawn_clips_change_where_they_are_known_to(kind):
    shots = plan_shots(kind, 0)[:3]
    pictures = [each.astype(int) for each in draw(shots, 48, 27)]

    assert len(pictures) == sum(shot.frames for shot in shots)
    known = known_transitions(shots)
    assert len(known) == 2
    for since_ms, until_ms in known:
        first, last = since_ms // 40, until_ms // 40
        steps = np.array([np.abs(b - a).mean() for a, b in itertools.pairwise(pictures)])
        assert np.abs(pictures[last] - pictures[first]).mean() > 10
        assert (steps[first:last] > 0.3).all()


def row(group, method, counts, seconds):
    figures = {"seconds": seconds, "cpu_s": seconds, "bytes_read": 1, "frames": 1}
    return SceneRow(group=group, clip="c", method=method, score=counts, near=counts, **figures)


def test_targets_compare_with_the_best_library():
    rows = [
        row("real", "auto", Score(hits=10), 1.0),
        row("real", "PySceneDetect content", Score(hits=9, missed=1), 30.0),
        row("real", "PySceneDetect adaptive", Score(hits=8, missed=2), 1.0),
    ]

    assert [target.is_met for target in targets(rows)] == [True, True, True]
    assert "PySceneDetect content" in targets(rows)[0].name


def test_targets_of_made_clips_are_of_their_cuts_and_of_their_gradual_changes():
    rows = [
        row("hard", "auto", Score(hits=19, missed=1), 1.0),
        row("soft", "auto", Score(hits=8, missed=2), 1.0),
    ]

    assert [target.is_met for target in targets(rows)] == [True, False, True]
    assert len(made_set()) == len({clip.name for clip in made_set()}) == 40
