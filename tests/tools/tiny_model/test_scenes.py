"""Scenes show their answers at the stated time and not before."""

import numpy as np
import pytest

from tasks.demo.shapes import COLOURS
from tools.tiny_model.scenes import COUNTS, SCENE_QUESTIONS, STILL_TASKS, draw_scene

FIRST = np.array([0.0])
UNIFORM = np.linspace(0, 1, 16)
LATER_TASKS = [task for task in SCENE_QUESTIONS if task not in STILL_TASKS]


def scenes_of(task, count=40):
    rng = np.random.default_rng(5)
    choices = SCENE_QUESTIONS[task][1]
    return [draw_scene(task, choices[number % len(choices)], rng) for number in range(count)]


def visible_at(scene, fraction):
    return [actor for actor in scene.actors if actor.enters <= fraction < actor.leaves]


@pytest.mark.parametrize("task", SCENE_QUESTIONS)
def test_a_scene_has_the_requested_answer(task):
    choices = SCENE_QUESTIONS[task][1]

    assert [scene.truths[task] for scene in scenes_of(task, 4)] == list(choices)


@pytest.mark.parametrize("task", SCENE_QUESTIONS)
def test_all_frames_together_tell_every_answer(task):
    assert all(scene.shows_answer(task, UNIFORM) for scene in scenes_of(task))


@pytest.mark.parametrize("task", SCENE_QUESTIONS)
def test_the_first_frame_tells_only_colour_and_shape(task):
    assert {scene.shows_answer(task, FIRST) for scene in scenes_of(task)} == {task in STILL_TASKS}


@pytest.mark.parametrize("task", LATER_TASKS)
def test_the_first_frame_does_not_even_hint_at_the_answer(task):
    choices = SCENE_QUESTIONS[task][1]
    scenes = scenes_of(task, 4000)

    seen = [len(visible_at(scene, 0.0)) for scene in scenes]
    answers = [choices.index(scene.truths[task]) for scene in scenes]

    if len(set(seen)) > 1:
        assert abs(np.corrcoef(seen, answers)[0, 1]) < 0.06
    else:
        assert {scene.truths[task] for scene in scenes} == set(choices)


def test_the_count_is_visible_in_the_last_frame():
    for scene in scenes_of("count"):
        assert len(visible_at(scene, 1.0)) == COUNTS.index(scene.truths["count"]) + 1


def test_one_of_two_colours_appears_first_and_is_gone_before_the_other():
    for scene in scenes_of("order"):
        first, second = scene.actors
        assert 0 < first.enters < first.leaves < second.enters < second.leaves < 1
        assert np.abs(np.array(first.rgb) - COLOURS[scene.truths["order"]]).max() <= 25


def test_late_shapes_enter_from_outside_the_picture_and_stay():
    for scene in scenes_of("late"):
        before, inside = scene.render(np.array([scene.actors[1].enters, 1.0]), np.random.default_rng(0)).astype(int)
        assert np.ptp(before, axis=-1).max() <= 16  # grey and white, but for the noise
        assert np.ptp(inside, axis=-1).max() > 80
