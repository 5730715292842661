"""What the tiny model is trained on: tokenized questions, and clips as their keyframes show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tasks.demo.architecture import MERGE, PATCH_PX, TEMPORAL_PATCH, TOKENS_PER_SECOND
from tasks.demo.shapes import QUESTIONS, SIDE_PX, draw_shape, render_frames
from tasks.domain.spec import DEFAULT_TEMPLATE
from tasks.model.prompt import chat_messages, question_text

if TYPE_CHECKING:
    import numpy.typing as npt

    from tasks.demo.shapes import MovingShape

FRAMES = 16
GROUPS = FRAMES // TEMPORAL_PATCH
GRID = SIDE_PX // PATCH_PX
PATCHES_PER_GROUP = GRID * GRID
TOKENS_PER_GROUP = PATCHES_PER_GROUP // MERGE**2
LETTERS = "ABCD"


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """The tokenized questions.

    Attributes:
        ids: Token ids, padded on the right; shape (K, L).
        video_start: Where the video's tokens begin, the same in all.
        last: Position of each prompt's last token; shape (K,).
        answers: Token ids of A to D; shape (4,).
    """

    ids: torch.Tensor
    video_start: int
    last: torch.Tensor
    answers: torch.Tensor

    def positions(self, duration_s: float) -> torch.Tensor:
        """Lay out positions as vLLM does for Qwen2.5-VL; shape (3, K, L).

        A video token's time is truncated to whole positions, and text after the video continues at
        the highest position plus one. transformers puts that text elsewhere, so its own function
        would train for positions that are never served.
        """
        side = GRID // MERGE
        grid = np.indices((GROUPS, side, side)).reshape(3, -1)
        seconds_per_group = TEMPORAL_PATCH * duration_s / FRAMES
        grid[0] = (grid[0] * seconds_per_group * TOKENS_PER_SECOND).astype(np.int64)
        video = grid + self.video_start
        before = np.broadcast_to(np.arange(self.video_start), (3, self.video_start))
        rest = self.ids.shape[1] - self.video_start - video.shape[1]
        after = np.broadcast_to(np.arange(rest), (3, rest)) + video.max() + 1
        row = torch.from_numpy(np.concatenate([before, video, after], axis=1))
        return row[:, None].expand(-1, len(self.ids), -1)


@dataclass(frozen=True, kw_only=True)
class Examples:
    """A batch of clips with their answers.

    Attributes:
        clips: Pixels; shape (B, FRAMES, SIDE_PX, SIDE_PX, 3), uint8.
        truths: Index of the right choice; shape (B, K).
        learnable: 0 where the frames cannot tell (the direction of a still), else 1; shape (B, K).
    """

    clips: npt.NDArray[np.uint8]
    truths: torch.Tensor
    learnable: torch.Tensor


def tokenize_questions(tokenizer: Any) -> Prompts:  # noqa: ANN401 - transformers' tokenizer
    """Render the questions as the engine does, with the video's tokens in place."""
    pad = "<|video_pad|>"
    rows = []
    for prompt, choices in QUESTIONS.values():
        text = question_text(DEFAULT_TEMPLATE, prompt=prompt, choices=choices)
        chat = tokenizer.apply_chat_template(chat_messages(text, None), tokenize=False, add_generation_prompt=True)
        rows.append(tokenizer.encode(chat.replace(pad, pad * GROUPS * TOKENS_PER_GROUP), add_special_tokens=False))
    length = max(map(len, rows))
    return Prompts(
        ids=torch.tensor([row + [tokenizer.pad_token_id] * (length - len(row)) for row in rows]),
        video_start=rows[0].index(tokenizer.convert_tokens_to_ids(pad)),
        last=torch.tensor([len(row) - 1 for row in rows]),
        answers=torch.tensor([tokenizer.convert_tokens_to_ids(letter) for letter in LETTERS]),
    )


def draw_glimpses(rng: np.random.Generator, size: int) -> Examples:
    """Draw clips that show another shape in every frame pair, so that much is seen at little cost.

    `truths` and `learnable` have one row per frame pair; shape (B * GROUPS, K).
    """
    shapes = [draw_shape(rng) for _ in range(size * GROUPS)]
    pairs = [render_frames(shape, rng.uniform() + np.array([-0.1, 0.1]), rng) for shape in shapes]
    truths = torch.tensor([_truth_indices(shape) for shape in shapes])
    clips = np.concatenate(pairs).reshape(size, FRAMES, SIDE_PX, SIDE_PX, 3)
    return Examples(clips=clips, truths=truths, learnable=torch.ones(truths.shape))


def draw_examples(rng: np.random.Generator, size: int) -> Examples:
    """Draw clips as keyframes show them: few or many, evenly spread, repeated in balance."""
    clips, truths, learnable = [], [], []
    for _ in range(size):
        shape = draw_shape(rng)
        unique = int(rng.integers(1, FRAMES + 1))
        last = rng.uniform(1 - 1 / unique, 1)  # the last keyframe stands up to one GOP before the end
        frames = render_frames(shape, np.linspace(0, last, unique), rng)
        clips.append(frames[np.arange(FRAMES) * unique // FRAMES])
        truths.append(_truth_indices(shape))
        learnable.append([float(unique > 1 or task != "direction") for task in QUESTIONS])
    return Examples(clips=np.stack(clips), truths=torch.tensor(truths), learnable=torch.tensor(learnable))


def _truth_indices(shape: MovingShape) -> list[int]:
    return [choices.index(shape.truth(task)) for task, (_, choices) in QUESTIONS.items()]
