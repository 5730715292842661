import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reelabel.errors import SamplingRefusedError
from reelabel.sampling.options import Sampling
from reelabel.sampling.registry import choose_indices, dense_samplers
from reelabel.sampling.spec import VideoProperties

# Choices of vLLM's loaders, for which `test_agreement_with_vllm` asks them anew: cases that tell each from others.
KNOWN = [json.loads(line) for line in Path(__file__).with_name("known_choices.jsonl").read_text().splitlines()]


@st.composite
def sources(draw):
    total = draw(st.integers(1, 5000))
    fps = draw(st.sampled_from([0.0, 1.0, 24.0, 29.97]) | st.floats(0.1, 240))
    return VideoProperties(total_frames=total, fps=fps, duration_s=total / fps if fps else 0.0)


@pytest.mark.parametrize("sampler", dense_samplers())
@given(facts=sources(), num_frames=st.integers(1, 64))
def test_indices_are_in_order_and_within_the_video(sampler, facts, num_frames):
    try:
        indices = choose_indices(Sampling(sampler=sampler, num_frames=num_frames), facts)
    except SamplingRefusedError:
        return  # which videos are refused is vLLM's choice, compared elsewhere

    assert indices.dtype == np.int64
    assert indices.size > 0
    assert (np.diff(indices) >= 0).all()
    assert indices[0] >= 0
    assert indices[-1] < facts.total_frames


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known['sampler']}-{known['source']}")
def test_frames_are_those_that_vllm_chooses(known):
    total, fps, duration_s = known["source"]
    facts = VideoProperties(total_frames=total, fps=fps, duration_s=duration_s)
    try:
        got = choose_indices(Sampling(sampler=known["sampler"], **known["options"]), facts).tolist()
    except SamplingRefusedError:
        got = None

    shown = known["shown"]
    assert (got if isinstance(shown, list | None) else {"count": len(got), "sum": sum(got)}) == shown


@pytest.mark.parametrize(
    ("options", "facts", "message"),
    [
        pytest.param({"sampler": "qwen2_vl"}, (40, 0.0), "frame rate, which the video lacks", id="no frame rate"),
        pytest.param(
            {"sampler": "qwen2_vl"}, (1, 25.0), "needs at least 2 frames, but the video has 1", id="one frame"
        ),
        pytest.param(
            {"sampler": "dynamic"}, (4, 25.0), "selects no frames of a video with 4 frames at 25 fps", id="short"
        ),
        *(
            pytest.param({"sampler": name}, (40, 0.0), "frame rate, which the video lacks", id=name)
            for name in ("molmo2", "clef_omni", "glm5_next", "glmga")
        ),
        pytest.param(
            {"sampler": "molmo2", "frame_sample_mode": "fps"},
            (50, 25.0),
            "divides the video's frame rate (25)",
            id="no divisor",
        ),
    ],
)
def test_a_refusal_names_what_the_video_lacks(options, facts, message):
    total, fps = facts
    source = VideoProperties(total_frames=total, fps=fps, duration_s=total / fps if fps else 0.0)

    with pytest.raises(SamplingRefusedError) as raised:
        choose_indices(Sampling(**options), source)

    assert message in raised.value.message


def test_an_impossible_duration_is_refused_before_it_costs_memory():
    facts = VideoProperties(total_frames=2**31, fps=1e-6, duration_s=0.0)

    with pytest.raises(SamplingRefusedError, match="contradict its duration"):
        choose_indices(Sampling(sampler="molmo2"), facts)


def test_keyframes_cannot_be_chosen_from_metadata():
    with pytest.raises(ValueError, match="keyframes is not a dense sampler"):
        choose_indices(Sampling(), VideoProperties(total_frames=1, fps=1.0, duration_s=1.0))


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"total_frames": 0}, "must be at least 1"),
        ({"fps": float("nan")}, "finite and non-negative"),
        ({"duration_s": -1.0}, "finite and non-negative"),
        ({"times_s": np.zeros(3)}, "must be 2 finite numbers"),
        ({"times_s": np.array([0.0, np.inf])}, "must be 2 finite numbers"),
    ],
)
def test_impossible_metadata_is_refused(facts, message):
    with pytest.raises(ValueError, match=message):
        VideoProperties(**{"total_frames": 2, "fps": 1.0, "duration_s": 2.0} | facts)
