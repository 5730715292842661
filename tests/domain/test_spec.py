import json
from dataclasses import fields

import pytest
from pydantic import ValidationError

from infra.settings import SamplingOptions, SamplingSettings
from reelabel.errors import InvalidOptionError
from reelabel.options import read_options
from reelabel.sampling.options import Sampling
from tasks.domain import DescribeSpec, EmbeddingSpec, ModelIdentity, RunSpec


def test_options_left_at_their_default_are_not_serialised():
    assert Sampling().to_dict() == {
        "sampler": "keyframes",
        "num_frames": 16,
        "size_multiple_px": 1,
    }


def test_the_id_of_a_keyframes_spec_is_stable():
    assert RunSpec(model=ModelIdentity(name="m")).spec_id == "95a56f15d2f2da6c"


@pytest.mark.parametrize(
    ("name", "accepted", "refused"),
    [
        ("permutations", (1, 26), (0, 27)),
        ("max_tokens", (1,), (0,)),
        ("video_pruning_rate", (0.01, 0.99), (0, 1)),
        ("chunk_s", (1,), (0.99,)),
        ("once_per_duplicate", (0.5, 1), (0.49, 1.01)),
    ],
)
def test_options_have_bounds(name, accepted, refused):
    for value in accepted:
        assert getattr(RunSpec(model=ModelIdentity(name="m"), **{name: value}), name) == value
    for value in refused:
        with pytest.raises(ValidationError):
            RunSpec(model=ModelIdentity(name="m"), **{name: value})


def test_a_spec_that_was_copied_and_changed_has_its_own_id():
    plain, other = (RunSpec(model=ModelIdentity(name="m"), permutations=count) for count in (1, 2))
    described = DescribeSpec(model=ModelIdentity(name="m"), tags="t", captions="c", scene_threshold=1.0)
    before = plain.spec_id, described.spec_id

    assert plain.model_copy(update={"permutations": 2}).spec_id == other.spec_id != before[0]
    assert described.model_copy(update={"top_k": 9}).spec_id != before[1]


def test_examples_change_the_id_only_if_there_are_any():
    plain = RunSpec(model=ModelIdentity(name="m"))
    shown = RunSpec(model=ModelIdentity(name="m"), examples="Q: ...")

    assert "examples" not in plain.model_dump(mode="json")
    assert shown.spec_id != plain.spec_id
    assert RunSpec.model_validate_json(shown.model_dump_json()) == shown


@pytest.mark.parametrize(
    ("name", "value"),
    [("chat_template_args", {"enable_thinking": False}), ("engine_args", {"quantization": "fp8"})],
    ids=["template", "engine"],
)
def test_arguments_of_template_and_engine_change_the_id_only_if_there_are_any(name, value):
    plain = RunSpec(model=ModelIdentity(name="m"))
    changed = plain.model_copy(update={name: value})

    assert name not in plain.model_dump(mode="json")
    assert plain.spec_id == "95a56f15d2f2da6c" != changed.spec_id
    assert RunSpec.model_validate_json(changed.model_dump_json()) == changed


def test_every_option_changes_the_id():
    sampling = Sampling(sampler="fps", fps=3)

    assert sampling.to_dict()["fps"] == 3
    assert read_options(Sampling, json.loads(json.dumps(sampling.to_dict()))) == sampling


def test_jpeg_frames_give_a_different_spec_that_says_so():
    sampling = Sampling(jpeg_quality=90)

    assert sampling.to_dict()["jpeg_quality"] == 90
    assert (
        RunSpec(model=ModelIdentity(name="m"), sampling=sampling).spec_id
        != RunSpec(model=ModelIdentity(name="m")).spec_id
    )


def test_only_a_spec_with_several_choice_orders_says_so():
    single, permuted = (RunSpec(model=ModelIdentity(name="m"), permutations=number) for number in (1, 3))

    assert "permutations" not in single.model_dump(mode="json")
    assert RunSpec.model_validate_json(permuted.model_dump_json()) == permuted
    assert single.spec_id == RunSpec(model=ModelIdentity(name="m")).spec_id != permuted.spec_id


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"sampler": "keyframes", "fps": 2},
            "takes no fps; leave it out, or choose the sampler uniform or",
        ),
        ({"sampler": "fps", "max_duration_s": 9, "min_frames": 2}, "takes no max_duration_s and no min_frames"),
        ({"sampler": "qwen3_vl", "min_frames": 8, "max_frames": 4}, "exceeds max_frames"),
        ({"sampler": "qwen4_vl"}, "Unknown sampler qwen4_vl; did you mean qwen"),
    ],
)
def test_numbers_that_would_have_no_effect_are_refused(options, message):
    with pytest.raises(InvalidOptionError, match=message):
        Sampling(**options)


def test_options_of_a_run_are_those_of_sampling_with_its_defaults():
    options = {each.name for each in fields(Sampling)} - {
        "size_multiple_px",
        "times_ms",
    }  # the model's and a job's, not the user's

    assert SamplingSettings.model_fields.keys() | SamplingOptions.model_fields == options
    for name in SamplingSettings.model_fields.keys() - {"max_pixels"}:
        assert SamplingSettings.model_fields[name].default == getattr(Sampling(), name)


@pytest.mark.parametrize(
    ("options", "spec_id"),
    [
        ({"num_frames": 4, "max_pixels": 784, "size_multiple_px": 14}, "a1a8b2e6d154141a"),
        ({"escalate_below": 0.5}, "de0db866a868839a"),
        ({"escalate_below": "fitted", "dense_sampler": "fps", "fps": 2, "max_frames": 32}, "b6de550197b55ac3"),
        ({"sampler": "auto"}, "a022fe5997b4c1ba"),
        (
            {"sampler": "auto", "dense_sampler": "qwen2_vl", "min_frames": 2}
            | {"still_tasks": ("scene", "colour"), "motion_tasks": ("order",)},
            "2ed83298faca31f2",
        ),
        (
            {"sampler": "auto", "min_keyframes": 2, "max_gap_s": 4, "coverage_radius_s": 1}
            | {"min_coverage": 0.25, "escalate_below": 0.25},
            "c15cb6313ae2b5b3",
        ),
        ({"sampler": "uniform", "fps": 1.5, "drop_similar": 0.95}, "c1b7ad12e6b44998"),
        ({"sampler": "dynamic", "fps": 1, "max_duration_s": 60, "jpeg_quality": 90}, "a6d99df425e740be"),
        ({"sampler": "qwen2_vl", "fps": 4, "min_frames": 8, "max_frames": 64}, "b6718ace2a65fdb5"),
        ({"sampler": "qwen3_vl"}, "5036d9a6d2029f7c"),
        ({"sampler": "glm46v"}, "999232aa646b2a72"),
        ({"sampler": "molmo2", "frame_sample_mode": "fps", "fps": 2}, "7d0899866e34d05a"),
        ({"sampler": "openpangu", "fps": 3}, "16cdec7e61b5c9c0"),
        ({"sampler": "fps", "fps": 3}, "274237990139126f"),
        ({"sampler": "num_frames", "num_frames": 8}, "c6cc948fb73b0b27"),
    ],
)
def test_spec_ids_are_stable(options, spec_id):
    """Results are stored under these ids: a changed id would ask every question again."""
    sampling = Sampling(**{"max_pixels": 602_112, "size_multiple_px": 28} | options)

    assert RunSpec(model=ModelIdentity(name="m"), sampling=sampling).spec_id == spec_id


@pytest.mark.parametrize(
    ("choice", "sampling"),
    [
        ("dense", Sampling(sampler="middles", num_frames=12, max_pixels=784, size_multiple_px=1)),
        ("keyframes", Sampling(sampler="keyframes", num_frames=12, max_pixels=784, size_multiple_px=1)),
    ],
)
def test_the_frames_of_consecutive_chunks_are_sampled_in_one_pass(choice, sampling):
    spec = EmbeddingSpec(model=ModelIdentity(name="m"), sampler=choice, frames_per_chunk=4)

    assert spec.sampling(chunks=3, max_pixels=784) == sampling
    assert spec.sampling(max_pixels=784).num_frames == 4
