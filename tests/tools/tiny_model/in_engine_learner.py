"""The fast training pass computes the same as the stock model, on the input of the engine."""

import numpy as np
import pytest
import torch
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen

from tools.tiny_model.architecture import make_model, make_processor, make_tokenizer
from tools.tiny_model.examples import (
    FRAMES,
    GROUPS,
    TASKS,
    TOKENS_PER_GROUP,
    draw_examples,
    draw_glimpses,
    tokenize_questions,
)
from tools.tiny_model.learner import Learner, patchify, use_fast_vision

DIRECTION = TASKS.index("direction")
VIDEO_TOKENS = GROUPS * TOKENS_PER_GROUP


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def learner(tokenizer):
    torch.manual_seed(0)
    return Learner.of(make_model(tokenizer), tokenize_questions(tokenizer))


@pytest.fixture
def fast_vision(monkeypatch):
    for part in (qwen.Qwen2_5_VisionPatchEmbed, qwen.Qwen2_5_VLVisionAttention):
        monkeypatch.setattr(part, "forward", part.forward)  # so that it is put back afterwards
    return use_fast_vision


def test_patches_equal_those_of_the_shipped_processor(tokenizer):
    clips = draw_examples(np.random.default_rng(0), 1).clips

    processed = make_processor(tokenizer).video_processor([clips[0]], return_tensors="pt", do_sample_frames=False)

    assert torch.allclose(patchify(clips), processed["pixel_values_videos"], atol=1e-5)


def test_fast_vision_gives_the_numbers_of_the_stock_implementation(learner, fast_vision):
    clips = draw_examples(np.random.default_rng(1), 2).clips
    with torch.no_grad():
        stock = learner.embed(clips)
        fast_vision()
        fast = learner.embed(clips)

    assert torch.allclose(fast, stock, atol=1e-4)


@pytest.mark.parametrize(
    ("duration_s", "times"),
    [
        pytest.param(8.0, [0, 2, 4, 6, 8, 10, 12, 14], id="two positions a pair"),
        pytest.param(2.0, [0, 0, 1, 1, 2, 2, 3, 3], id="truncated to whole positions"),
    ],
)
def test_video_tokens_are_positioned_at_the_time_they_show(learner, duration_s, times):
    start = len(learner.prompts.before)

    positions = learner.prompts.positions(duration_s)

    assert (positions[0, start : start + VIDEO_TOKENS : TOKENS_PER_GROUP] - start).tolist() == times


def test_fewer_frames_of_a_clip_are_positioned_further_apart(learner):
    start = len(learner.prompts.before)

    positions = learner.prompts.positions(4.0, groups=4)

    assert (positions[0, start : start + 4 * TOKENS_PER_GROUP : TOKENS_PER_GROUP] - start).tolist() == [0, 2, 4, 6]


def test_text_after_the_video_continues_after_the_highest_position(learner):
    end = len(learner.prompts.before) + VIDEO_TOKENS

    positions = learner.prompts.positions(8.0)

    assert (positions[:, end] == positions[:, :end].max() + 1).all()


def test_the_direction_in_a_still_can_only_be_guessed():
    examples = draw_examples(np.random.default_rng(2), 160)
    of_direction = examples.task_of == DIRECTION

    stills = torch.tensor(
        [(np.ptp(examples.clips[clip], axis=0) == 0).all() for clip in examples.clip_of[of_direction]]
    )

    assert stills.any()
    assert (examples.shows_answer[of_direction] == (~stills).float()).all()


def test_a_prompt_around_its_video_is_the_whole_prompt(learner, tokenizer):
    prompts = learner.prompts
    pads = [tokenizer.convert_tokens_to_ids("<|video_pad|>")] * VIDEO_TOKENS

    whole = [*prompts.before.tolist(), *pads, *prompts.after[0, : prompts.last[0] + 1].tolist()]

    assert tokenizer.encode(tokenizer.decode(whole), add_special_tokens=False) == whole


def test_both_losses_reach_the_vision_encoder(learner):
    rng = np.random.default_rng(3)
    weights = learner.model.model.visual.patch_embed.proj.weight

    for loss in (learner.answer_loss(draw_examples(rng, 4), 4.0), learner.glimpse_loss(draw_glimpses(rng, 1))):
        (gradient,) = torch.autograd.grad(loss, weights)
        assert gradient.abs().max() > 0


def test_a_glimpse_clip_shows_another_shape_in_every_pair():
    glimpses = draw_glimpses(np.random.default_rng(4), 2)

    assert glimpses.clips.shape[:2] == (2, FRAMES)
    assert len(glimpses.shapes) == len(glimpses.colours) == 2 * GROUPS
