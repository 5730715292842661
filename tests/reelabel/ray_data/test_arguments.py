"""Options of `PrepareVideo`, and batches and columns that it refuses."""

import inspect
import sys
from dataclasses import replace

import pytest

from reelabel import PrepareVideo
from reelabel.errors import ConfigurationError
from reelabel.integrations.ray_data.prepare import parse_sampling
from reelabel.sampling.options import Sampling


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(None, Sampling(sampler="fps", fps=3), id="3 frames per second"),
        pytest.param({"fps": 1}, Sampling(sampler="fps", fps=1), id="fps"),
        pytest.param({"num_frames": 8}, Sampling(sampler="num_frames", num_frames=8), id="number"),
        pytest.param({"sampler": "keyframes"}, Sampling(), id="any sampler"),
        pytest.param({"max_pixels": 10_000}, Sampling(sampler="fps", fps=3, max_pixels=10_000), id="size alone"),
        pytest.param(Sampling(sampler="qwen2_vl"), Sampling(sampler="qwen2_vl"), id="our own type"),
    ],
)
def test_sampling_may_be_given_in_ray_datas_terms_or_ours(options, expected):
    sides = {"max_pixels": expected.max_pixels or 602_112, "size_multiple_px": 28}

    assert parse_sampling(options) == replace(expected, **sides)


@pytest.mark.parametrize("given", [{"sampler": "keyframes", "size_multiple_px": 32}, Sampling(size_multiple_px=32)])
def test_sides_are_multiples_of_what_is_asked_for_in_either_form(given):
    assert parse_sampling(given) == Sampling(max_pixels=602_112, size_multiple_px=32)


def test_a_batch_that_is_no_dictionary_is_a_usage_error(preparing):
    with pytest.raises(ConfigurationError, match="batch_format"):
        preparing()([{"video_uri": "a.mp4"}])


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"video_uri": "a.mp4"}, "The column video_uri is a single str; put it in a list"),
        ({"video_uri": ["a.mp4"], "start_s": [1, 2]}, r"differ in length \(video_uri 1, start_s 2\)"),
    ],
    ids=["one row", "lengths"],
)
def test_a_column_is_a_list_with_a_value_for_every_row(preparing, batch, message):
    with pytest.raises(ConfigurationError, match=message):
        preparing()(batch)


@pytest.mark.parametrize(
    "wrong",
    [object(), [1], {"unknown": 1}, -1.5, float("nan"), b"x"],
    ids=["an object", "a list", "a dict", "-1.5", "nan", "bytes"],
)
@pytest.mark.parametrize("option", inspect.signature(PrepareVideo).parameters)
def test_an_option_that_is_not_valid_is_named(option, wrong):
    with pytest.raises(ConfigurationError, match=rf"^Invalid options of PrepareVideo: {option}\b"):
        PrepareVideo(**{option: wrong})


def test_wrong_options_are_named_together():
    with pytest.raises(ConfigurationError, match="s3: must be a group of options; limits: must be a group of options"):
        PrepareVideo(s3=0, limits=[])
    with pytest.raises(TypeError, match="samplings"):
        PrepareVideo(samplings={"fps": 1})
    with pytest.raises(ConfigurationError, match=r"sampling\.num_frames: .*; cache_mode: must be 'auto'"):
        PrepareVideo(sampling={"num_frames": 0}, cache_mode="ram")
    with pytest.raises(ConfigurationError, match="sampling: must be a dictionary or a Sampling, not int"):
        PrepareVideo(sampling=3)
    with pytest.raises(ConfigurationError, match="the sampler keyframes chooses from a file, not from frames"):
        PrepareVideo(sampling={"sampler": "keyframes"}, sample_frames_present=True)
    with pytest.raises(ConfigurationError, match="exclude each other"):
        PrepareVideo(bypass_if_frames_present=True, sample_frames_present=True)
    with pytest.raises(ConfigurationError, match="escalate_below cannot be used without jobs and answers"):
        PrepareVideo(sampling={"sampler": "keyframes", "escalate_below": 0.5})


def test_pillow_is_asked_for_when_images_will_be_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)

    with pytest.raises(ConfigurationError, match="The output format pil needs a package that is not installed"):
        PrepareVideo()
    PrepareVideo(output_format="numpy")
    PrepareVideo(pack_for_model=True)
