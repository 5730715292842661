"""Forward pass and losses for training the tiny model.

Vision runs once per clip for all questions, and attention inside the vision encoder is one batched call. The results
are those of the stock forward pass, several times faster on two cores. An auxiliary loss looks at single frame pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as nn
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen

from tasks.demo.actors import SHAPES, SIDE_PX
from tasks.demo.shapes import COLOURS
from tools.tiny_model.architecture import MERGE, PATCH_PX, TEMPORAL_PATCH
from tools.tiny_model.examples import GRID, PATCHES_PER_GROUP, TASKS, TOKENS_PER_GROUP

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tools.tiny_model.examples import Examples, Glimpses, Prompts

# OpenAI CLIP's normalisation, which Qwen's processors use.
_MEAN = torch.tensor([0.48145466, 0.4578275, 0.40821073]).view(3, 1, 1)
_DEVIATION = torch.tensor([0.26862954, 0.26130258, 0.27577711]).view(3, 1, 1)
_ABOVE_NOISE = 60
_MEASURED_S = 6.0  # length of the clips that accuracies are of


@dataclass(frozen=True, kw_only=True)
class Learner:
    """The model, its questions, and an auxiliary head that is not saved.

    Attributes:
        model: transformers' Qwen2.5-VL.
        prompts: The questions.
        head: Maps the tokens of a frame pair to shape, colour and centre; without it, shapes are learnt late.
    """

    model: Any
    prompts: Prompts
    head: Any

    @classmethod
    def of(cls, model: Any, prompts: Prompts) -> Learner:  # noqa: ANN401
        features = TOKENS_PER_GROUP * model.config.text_config.hidden_size
        return cls(model=model, prompts=prompts, head=torch.nn.Linear(features, len(SHAPES) + len(COLOURS) + 2))

    def embed(self, clips: npt.NDArray[np.uint8]) -> torch.Tensor:
        """Embed clips (B, T, S, S, 3); shape (B, video tokens, hidden)."""
        groups = clips.shape[1] // TEMPORAL_PATCH
        grid = torch.tensor([[groups, GRID, GRID]]).expand(len(clips), -1)
        seen = self.model.model.visual(patchify(clips), grid_thw=grid)
        return getattr(seen, "pooler_output", seen).reshape(len(clips), groups * TOKENS_PER_GROUP, -1)

    def answer(self, examples: Examples, duration_s: float) -> torch.Tensor:
        """Return logits over the vocabulary for every question; shape (N, V)."""
        text, prompts = self.model.model.language_model, self.prompts
        seen = self.embed(examples.clips)[examples.clip_of]
        count, tokens = seen.shape[:2]
        before = text.embed_tokens(prompts.before).expand(count, -1, -1)
        after = text.embed_tokens(prompts.after[examples.task_of])
        positions = prompts.positions(duration_s, groups=tokens // TOKENS_PER_GROUP)[:, None].expand(-1, count, -1)
        embedded = torch.cat([before, seen, after], dim=1)
        output = text(inputs_embeds=embedded, position_ids=positions, use_cache=False)
        last = len(prompts.before) + tokens + prompts.last[examples.task_of]
        return self.model.lm_head(output.last_hidden_state[torch.arange(count), last])

    def answer_loss(self, examples: Examples, duration_s: float) -> torch.Tensor:
        """Return the cross entropy of the answers' letters, weighted by question."""
        logits = self.answer(examples, duration_s)
        each = nn.cross_entropy(logits, self.prompts.answers[examples.truths], reduction="none")
        return (each * examples.weights).sum() / examples.weights.sum()

    def glimpse_loss(self, glimpses: Glimpses) -> torch.Tensor:
        """Return the loss of the head for shape, colour and centre on single frame pairs."""
        guess = self.head(self.embed(glimpses.clips).reshape(len(glimpses.shapes), -1))
        shape, colour, centre = guess.split([len(SHAPES), len(COLOURS), 2], dim=1)
        return (
            nn.cross_entropy(shape, glimpses.shapes)
            + nn.cross_entropy(colour, glimpses.colours)
            + nn.mse_loss(centre, _shape_centres(glimpses.clips))
        )

    def accuracies(self, examples: Examples) -> dict[str, float]:
        """Return the share of correct answers by task, for questions whose answer the frames show."""
        with torch.no_grad():
            guessed = self.answer(examples, _MEASURED_S)[:, self.prompts.answers].argmax(-1)
        right = (guessed == examples.truths).float()
        of = {task: (examples.task_of == index) & (examples.shows_answer > 0) for index, task in enumerate(TASKS)}
        return {task: round(right[chosen].mean().item(), 3) for task, chosen in of.items()}


def patchify(clips: npt.NDArray[np.uint8]) -> torch.Tensor:
    """Cut (B, T, S, S, 3) pixels into Qwen's patches; shape (B * patches, 3 * 2 * PATCH_PX ** 2)."""
    pixels = (torch.from_numpy(clips).permute(0, 1, 4, 2, 3).float() / 255 - _MEAN) / _DEVIATION
    cells, groups = GRID // MERGE, clips.shape[1] // TEMPORAL_PATCH
    shape = (len(clips), groups, TEMPORAL_PATCH, 3, cells, MERGE, PATCH_PX, cells, MERGE, PATCH_PX)
    patches = pixels.reshape(shape).permute(0, 1, 4, 7, 5, 8, 3, 2, 6, 9)
    return patches.reshape(len(clips) * groups * PATCHES_PER_GROUP, -1)


def use_fast_vision() -> None:
    """Replace the vision encoder's convolution and windowed attention by batched equivalents.

    Every attention window is one frame pair here, so that one call is enough.
    """

    def embed(self: Any, pixels: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
        return nn.linear(pixels, self.proj.weight.view(self.embed_dim, -1))

    def attend(
        self: Any,  # noqa: ANN401
        hidden_states: torch.Tensor,
        cu_seqlens: Any = None,  # noqa: ANN401, ARG001 - the stock signature
        position_embeddings: Any = None,  # noqa: ANN401
        **_: Any,  # noqa: ANN401
    ) -> torch.Tensor:
        count = hidden_states.shape[0]
        query, key, value = self.qkv(hidden_states).reshape(count, 3, self.num_heads, -1).permute(1, 0, 2, 3)
        query, key = qwen.apply_rotary_pos_emb_vision(query, key, *position_embeddings)
        parts = [part.unflatten(0, (-1, PATCHES_PER_GROUP)).transpose(1, 2) for part in (query, key, value)]
        return self.proj(nn.scaled_dot_product_attention(*parts).transpose(1, 2).reshape(count, -1))

    qwen.Qwen2_5_VisionPatchEmbed.forward = embed
    qwen.Qwen2_5_VLVisionAttention.forward = attend


def _shape_centres(clips: npt.NDArray[np.uint8]) -> torch.Tensor:
    """Find the shape's centre in the first frame of every pair; shape (pairs, 2), about -2 to 2."""
    pixels = torch.from_numpy(clips[:, ::TEMPORAL_PATCH]).float().reshape(-1, SIDE_PX, SIDE_PX, 3)
    inside = ((pixels - pixels[:, :1, :1]).abs().sum(-1) > _ABOVE_NOISE).float()
    mass = inside.sum((1, 2)).clamp(min=1)
    axis = torch.arange(SIDE_PX).float()
    centre = torch.stack([(inside.sum(1) * axis).sum(1) / mass, (inside.sum(2) * axis).sum(1) / mass], 1)
    return centre / SIDE_PX * 4 - 2
