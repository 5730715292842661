from typing import get_args

import pytest
from pydantic import ValidationError

from infra.settings.sampling import SamplingSettings
from reelabel.sampling.options import DenseSamplerName, SamplerName, Sampling
from reelabel.sampling.registry import SAMPLERS
from tasks.domain import ModelIdentity, RunSpec


def test_options_left_empty_are_not_in_the_serialised_form():
    assert Sampling().model_dump(mode="json") == {
        "sampler": "keyframes",
        "num_frames": 16,
        "max_pixels": 602_112,
        "size_multiple_px": 28,
    }


def test_the_identity_of_a_spec_by_keyframes_stays_the_same():
    assert RunSpec(model=ModelIdentity(name="m")).spec_id == "95a56f15d2f2da6c"


def test_examples_change_the_identity_only_where_there_are_some():
    plain = RunSpec(model=ModelIdentity(name="m"))
    shown = RunSpec(model=ModelIdentity(name="m"), examples="Q: ...")

    assert "examples" not in plain.model_dump(mode="json")
    assert shown.spec_id != plain.spec_id
    assert RunSpec.model_validate_json(shown.model_dump_json()) == shown


def test_an_option_changes_the_identity():
    sampling = Sampling(sampler="fps", fps=3)

    assert sampling.model_dump(mode="json")["fps"] == 3
    assert Sampling.model_validate_json(sampling.model_dump_json()) == sampling


def test_frames_seen_through_jpeg_make_another_spec_which_says_so():
    sampling = Sampling(jpeg_quality=90)

    assert sampling.model_dump(mode="json")["jpeg_quality"] == 90
    assert (
        RunSpec(model=ModelIdentity(name="m"), sampling=sampling).spec_id
        != RunSpec(model=ModelIdentity(name="m")).spec_id
    )


def test_only_a_spec_with_several_orders_of_choices_says_so():
    once, thrice = (RunSpec(model=ModelIdentity(name="m"), permutations=number) for number in (1, 3))

    assert "permutations" not in once.model_dump(mode="json")
    assert RunSpec.model_validate_json(thrice.model_dump_json()) == thrice
    assert once.spec_id == RunSpec(model=ModelIdentity(name="m")).spec_id != thrice.spec_id


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"sampler": "keyframes", "fps": 2},
            "takes no fps; leave it out, or choose the sampler uniform or",
        ),
        ({"sampler": "fps", "max_duration_s": 9, "min_frames": 2}, "takes no max_duration_s and no min_frames"),
        ({"sampler": "qwen3_vl", "min_frames": 8, "max_frames": 4}, "exceeds max_frames"),
        ({"sampler": "qwen4_vl"}, "Input should be"),
    ],
)
def test_numbers_without_an_effect_are_refused(options, message):
    with pytest.raises(ValidationError, match=message):
        Sampling(**options)


def test_every_sampler_but_keyframes_has_its_function_and_auto_chooses_between_them():
    assert {"keyframes", "auto", *SAMPLERS} == set(get_args(SamplerName))


def test_every_lossless_sampler_may_follow_keyframes():
    assert set(SAMPLERS) == set(get_args(DenseSamplerName))


def test_settings_offer_every_option_of_sampling_in_its_words():
    options = set(Sampling.model_fields) - {"size_multiple_px"}  # the model's, not the user's

    assert set(SamplingSettings.model_fields) == options
    for name in options - {"max_pixels"}:
        ours, theirs = Sampling.model_fields[name], SamplingSettings.model_fields[name]
        assert (theirs.annotation, theirs.description, theirs.default) == (
            ours.annotation,
            ours.description,
            ours.default,
        )
        assert theirs.metadata == ours.metadata
