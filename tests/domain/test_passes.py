"""A choice between samplers picks what each of them alone would, under its own spec."""

from dataclasses import replace

import pytest

from reelabel.errors import InvalidOptionError
from reelabel.sampling.options import Sampling, check_no_job_options, dense_pass, resolve_auto
from reelabel.segment import Segment
from tasks.domain import Job, ModelIdentity, RunSpec, View, group_by_views
from tasks.domain.passes import first_pass, sampling_of_pass, sampling_shown


def spec_id(**sampling):
    return RunSpec(model=ModelIdentity(name="m"), sampling=Sampling(**sampling)).spec_id


def job(name, uri="a.mp4", **tags):
    return Job(job_id=name, video_uri=uri, prompt="?", choices=("yes", "no"), **tags)


def test_each_pass_equals_its_sampler_alone():
    auto = Sampling(
        sampler="auto",
        dense_sampler="fps",
        fps=3,
        num_frames=8,
        max_gap_s=4,
        motion_tasks=("a",),
        still_tasks=("b",),
        escalate_below=0.5,
        frame_recovery=False,
    )

    by_fps = Sampling(sampler="fps", fps=3, num_frames=8, frame_recovery=False).to_dict()
    assert dense_pass(auto).to_dict() == resolve_auto(auto, is_good=False).to_dict() == by_fps
    assert sampling_of_pass(auto, "dense").to_dict() == by_fps
    assert sampling_of_pass(auto, "image").to_dict() == Sampling(num_frames=1).to_dict()
    assert (
        resolve_auto(auto, is_good=True).to_dict()
        == sampling_of_pass(auto, "keyframes").to_dict()
        == Sampling(num_frames=8).to_dict()
    )


def test_a_cascade_shows_keyframes_first_and_then_sixteen_uniform_frames():
    cascade = Sampling(escalate_below=0.5)

    assert first_pass(cascade).to_dict() == Sampling().to_dict()
    assert dense_pass(cascade).to_dict() == Sampling(sampler="uniform").to_dict()


def test_both_passes_drop_similar_frames():
    cascade = Sampling(escalate_below=0.5, drop_similar=0.9)

    assert first_pass(cascade).drop_similar == dense_pass(cascade).drop_similar == 0.9


@pytest.mark.parametrize("options", [{"escalate_below": 0.5}, {"sampler": "auto", "still_tasks": ("colour",)}])
def test_routing_by_job_is_refused_where_there_are_no_jobs(options):
    with pytest.raises(ValueError, match=f"{[*options][-1]} cannot be used without jobs and answers"):
        check_no_job_options(Sampling(**options))


def test_routing_options_change_the_id_of_a_spec():
    routings = [
        {},
        {"escalate_below": 0.5},
        {"escalate_below": "fitted"},
        {"sampler": "auto"},
        {"sampler": "auto", "max_gap_s": 4},
        {"sampler": "auto", "motion_tasks": ("direction",)},
        {"sampler": "auto", "still_tasks": ("direction",)},
        {"sampler": "auto", "dense_sampler": "fps"},
    ]

    assert len({spec_id(**options) for options in routings}) == len(routings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_gap_s": 4}, "the sampler keyframes takes no max_gap_s; leave it out, or choose the sampler auto"),
        ({"dense_sampler": "fps"}, "the sampler keyframes takes no dense_sampler"),
        ({"sampler": "uniform", "escalate_below": 0.5}, "the sampler uniform takes no escalate_below"),
        ({"sampler": "auto", "dense_sampler": "glm46v", "fps": 2}, "the sampler auto takes no fps"),
        ({"escalate_below": 1.5}, "escalate_below 1.5 is not a margin; use a number from 0 to 1, or fitted"),
        ({"still_tasks": ("a",)}, "the sampler keyframes takes no still_tasks"),
        (
            {"sampler": "auto", "motion_tasks": ("a", "b"), "still_tasks": ("b",)},
            "b cannot be in both motion_tasks and still_tasks; remove it from one",
        ),
        ({"sampler": "auto", "dense_sampler": "keyframes"}, "keyframes is not a dense sampler; choose one of uniform,"),
    ],
)
def test_options_without_effect_are_refused(options, message):
    with pytest.raises(InvalidOptionError, match=message):
        Sampling(**options)


def test_jobs_with_and_without_motion_get_separate_views():
    auto = Sampling(sampler="auto", motion_tasks=("direction", "order"), still_tasks=("colour", "motion"))
    plain, still, moving = job("p", task="late"), job("a", task="colour"), job("b", task="motion", subtask="order")

    assert group_by_views([plain, still, moving], auto) == {
        (View("a.mp4"),): [plain],
        (View("a.mp4", "keyframes"),): [still],
        (View("a.mp4", "dense"),): [moving],
    }
    cut = replace(plain, start_s=0.0, end_s=3.0)
    segment = View("a.mp4", segment=Segment(None, 3.0))
    assert list(group_by_views([plain, cut], Sampling())) == [(View("a.mp4"),), (segment,)]
    assert len({view.name for (view,) in group_by_views([plain, still, moving, cut], auto)}) == 4
    assert group_by_views([plain, still, moving], Sampling()) == {(View("a.mp4"),): [plain, still, moving]}


def test_a_frame_file_is_named_by_the_sampler_that_selected_its_frames():
    auto = Sampling(sampler="auto", num_frames=8, still_tasks=("colour",), escalate_below=0.5)

    assert first_pass(auto) == Sampling(sampler="auto", num_frames=8)
    assert sampling_shown(auto, sampler="keyframes", chosen_ms="") == Sampling(num_frames=8)
    chosen = sampling_shown(Sampling(sampler="relevant"), sampler="relevant", chosen_ms="40,40,80")
    assert chosen.times_ms == (40, 80)
