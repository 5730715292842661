"""Trains the tiny model: `python -m tasks.demo.train --out FOLDER --minutes 12`.

The weights under `tasks/demo/weights` came from this script. Vision runs once per clip for all
three questions, and attention inside the vision tower is batched by frame pair: same numbers as the
stock forward pass (checked at the start), several times faster on two cores.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CPU_SITE = str(Path(__file__).parents[1] / "model" / "cpu_site")
if __name__ == "__main__" and _CPU_SITE not in os.environ.get("PYTHONPATH", ""):
    os.environ["PYTHONPATH"] = _CPU_SITE  # torchvision on a CPU build of torch; see cpu_site
    os.execv(sys.executable, [sys.executable, "-m", "tasks.demo.train", *sys.argv[1:]])  # noqa: S606

import numpy as np
import torch
import torch.nn.functional as nn
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen

from tasks.demo.architecture import (
    MERGE,
    PATCH_PX,
    TEMPORAL_PATCH,
    TOKENS_PER_SECOND,
    make_model,
    make_processor,
    make_tokenizer,
)
from tasks.demo.shapes import QUESTIONS, SIDE_PX, draw_shape, render_frames
from tasks.domain.spec import DEFAULT_TEMPLATE
from tasks.model.prompt import chat_messages, question_text

FRAMES = 16
GROUPS = FRAMES // TEMPORAL_PATCH
GRID = SIDE_PX // PATCH_PX
PATCHES_PER_GROUP = GRID * GRID
TOKENS_PER_GROUP = PATCHES_PER_GROUP // MERGE**2
LETTERS = "ABCD"
# OpenAI CLIP's normalisation, which Qwen's processors use.
MEAN = torch.tensor([0.48145466, 0.4578275, 0.40821073]).view(3, 1, 1)
DEVIATION = torch.tensor([0.26862954, 0.26130258, 0.27577711]).view(3, 1, 1)


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """The three tokenized questions.

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
        length = self.ids.shape[1]
        side = GRID // MERGE
        grid = np.indices((GROUPS, side, side)).reshape(3, -1)
        seconds_per_group = TEMPORAL_PATCH * duration_s / FRAMES
        grid[0] = (grid[0] * seconds_per_group * TOKENS_PER_SECOND).astype(np.int64)
        video = grid + self.video_start
        before = np.broadcast_to(np.arange(self.video_start), (3, self.video_start))
        rest = length - self.video_start - video.shape[1]
        after = np.broadcast_to(np.arange(rest), (3, rest)) + video.max() + 1
        row = torch.from_numpy(np.concatenate([before, video, after], axis=1))
        return row[:, None].expand(-1, len(self.ids), -1)


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


def draw_batch(rng: np.random.Generator, size: int) -> tuple[np.ndarray, torch.Tensor]:
    """Draw clips as keyframes show them: few or many, evenly spread, repeated in balance.

    Returns:
        Pixels (size, FRAMES, SIDE_PX, SIDE_PX, 3) uint8, and choice indices (size, K).
    """
    clips, truths = [], []
    for _ in range(size):
        unique = int(rng.integers(2, FRAMES + 1))
        last = rng.uniform(1 - 1 / unique, 1)
        shape = draw_shape(rng)
        frames = render_frames(shape, np.linspace(0, last, unique), rng)
        clips.append(frames[np.arange(FRAMES) * unique // FRAMES])
        truths.append([choices.index(shape.truth(task)) for task, (_, choices) in QUESTIONS.items()])
    return np.stack(clips), torch.tensor(truths)


def patchify(clips: np.ndarray) -> torch.Tensor:
    """Cut (B, T, S, S, 3) pixels into Qwen's patches; shape (B * patches, 3 * 2 * PATCH_PX ** 2)."""
    pixels = (torch.from_numpy(clips).permute(0, 1, 4, 2, 3).float() / 255 - MEAN) / DEVIATION
    cells = GRID // MERGE
    shape = (len(clips), GROUPS, TEMPORAL_PATCH, 3, cells, MERGE, PATCH_PX, cells, MERGE, PATCH_PX)
    patches = pixels.reshape(shape).permute(0, 1, 4, 7, 5, 8, 3, 2, 6, 9)
    return patches.reshape(len(clips) * GROUPS * PATCHES_PER_GROUP, -1)


class Learner(torch.nn.Module):
    """The model with its fast forward pass, and a head that looks at single frame pairs."""

    def __init__(self, model: Any, prompts: Prompts) -> None:  # noqa: ANN401 - transformers' model
        """Wrap a model; `head` is for training only and is never saved."""
        super().__init__()
        self.model = model
        self.prompts = prompts
        hidden = model.config.text_config.hidden_size
        self.head = torch.nn.Linear(TOKENS_PER_GROUP * hidden, 4 + 4 + 2)

    def see(self, clips: np.ndarray) -> torch.Tensor:
        """Embed clips; shape (B, video tokens, hidden)."""
        grid = torch.tensor([[GROUPS, GRID, GRID]]).expand(len(clips), -1)
        seen = self.model.model.visual(patchify(clips), grid_thw=grid)
        return getattr(seen, "pooler_output", seen).reshape(len(clips), GROUPS * TOKENS_PER_GROUP, -1)

    def answer(self, seen: torch.Tensor, duration_s: float) -> torch.Tensor:
        """Logits over the vocabulary for every clip and question; shape (B, K, V)."""
        clips, questions = len(seen), len(self.prompts.ids)
        text = self.model.model.language_model
        embedded = text.embed_tokens(self.prompts.ids).unsqueeze(0).expand(clips, -1, -1, -1).clone()
        start = self.prompts.video_start
        embedded[:, :, start : start + seen.shape[1]] = seen.unsqueeze(1)
        positions = self.prompts.positions(duration_s).unsqueeze(1).expand(-1, clips, -1, -1).flatten(1, 2)
        hidden = text(
            inputs_embeds=embedded.flatten(0, 1), position_ids=positions, use_cache=False
        ).last_hidden_state
        hidden = hidden.unflatten(0, (clips, questions))[:, torch.arange(questions), self.prompts.last]
        return self.model.lm_head(hidden)

    def losses(self, clips: np.ndarray, truths: torch.Tensor, duration_s: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Cross entropy by question, shape (K,), and the head's loss."""
        seen = self.see(clips)
        logits = self.answer(seen, duration_s)
        wanted = self.prompts.answers[truths]
        main = nn.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="none").unflatten(0, wanted.shape)
        guess = self.head(seen.reshape(len(clips) * GROUPS, -1))
        each = truths.repeat_interleave(GROUPS, 0)
        aside = (
            nn.cross_entropy(guess[:, :4], each[:, 2])
            + nn.cross_entropy(guess[:, 4:8], each[:, 0])
            + nn.mse_loss(guess[:, 8:], shape_centres(clips))
        )
        return main.mean(0), aside


def shape_centres(clips: np.ndarray) -> torch.Tensor:
    """Find the shape's centre in the first frame of every pair; shape (B * GROUPS, 2), about -2 to 2."""
    pixels = torch.from_numpy(clips[:, ::TEMPORAL_PATCH]).float().reshape(-1, SIDE_PX, SIDE_PX, 3)
    inside = ((pixels - pixels[:, :1, :1]).abs().sum(-1) > 60).float()  # noqa: PLR2004 - well above the noise
    mass = inside.sum((1, 2)).clamp(min=1)
    axis = torch.arange(SIDE_PX).float()
    centre = torch.stack([(inside.sum(1) * axis).sum(1) / mass, (inside.sum(2) * axis).sum(1) / mass], 1)
    return centre / SIDE_PX * 4 - 2


def use_fast_vision() -> None:
    """Replace the vision tower's convolution and windowed attention by batched equivalents.

    Every attention window is one frame pair here, so that one batched call does for all.
    """

    def embed(self: Any, pixels: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
        return nn.linear(pixels, self.proj.weight.view(self.embed_dim, -1))

    def attend(
        self: Any,  # noqa: ANN401
        hidden_states: torch.Tensor,
        cu_seqlens: Any = None,  # noqa: ANN401, ARG001
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


@torch.no_grad()
def accuracies(learner: Learner, clips: np.ndarray, truths: torch.Tensor) -> dict[str, float]:
    """Share of right answers by question."""
    logits = torch.cat([learner.answer(learner.see(part), 4.0) for part in np.array_split(clips, 5)])
    right = logits[..., learner.prompts.answers].argmax(-1) == truths
    return dict(zip(QUESTIONS, [round(share, 3) for share in right.float().mean(0).tolist()], strict=True))


def train(learner: Learner, *, minutes: float, batch: int = 32, peak_rate: float = 1.5e-3) -> None:
    """Train for a time, with a warm-up and a cosine decay."""
    optimizer = torch.optim.AdamW(learner.parameters(), lr=peak_rate, weight_decay=0.01, betas=(0.9, 0.98))
    rng = np.random.default_rng(0)
    held_out = draw_batch(np.random.default_rng(999), 300)
    started, step, next_report_s = time.monotonic(), 0, 30.0
    while (elapsed_s := time.monotonic() - started) < minutes * 60:
        share = elapsed_s / (minutes * 60)
        decay = 0.5 * (1 + math.cos(math.pi * share)) * 0.95 + 0.05
        for group in optimizer.param_groups:
            group["lr"] = peak_rate * min(1, (step + 1) / 100) * decay
        main, aside = learner.losses(*draw_batch(rng, batch), duration_s=float(rng.uniform(2, 8)))
        optimizer.zero_grad()
        (main.mean() + 0.5 * aside).backward()
        torch.nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
        optimizer.step()
        step += 1
        if elapsed_s > next_report_s:
            loss = [round(value, 3) for value in main.tolist()]
            print(f"{elapsed_s:5.0f} s, step {step}, loss {loss}, right {accuracies(learner, *held_out)}", flush=True)
            next_report_s += 30
    print(f"done: {step} steps, right {accuracies(learner, *held_out)}", flush=True)


def main() -> None:
    """Train and save."""
    parser = argparse.ArgumentParser(description="Train the tiny model on clips of moving shapes.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the weights")
    parser.add_argument("--minutes", type=float, default=12, help="training time on two cores")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(2)
    tokenizer = make_tokenizer()
    learner = Learner(make_model(tokenizer), tokenize_questions(tokenizer))
    parameters = sum(parameter.numel() for parameter in learner.model.parameters())
    print(f"{parameters:,} parameters, prompts of {learner.prompts.ids.shape[1]} tokens", flush=True)
    sample, _ = draw_batch(np.random.default_rng(1), 2)
    with torch.no_grad():
        stock = learner.see(sample)
        use_fast_vision()
        print(f"fast vision differs by {(learner.see(sample) - stock).abs().max():.1e}", flush=True)
    train(learner, minutes=arguments.minutes)
    learner.model.save_pretrained(arguments.out)
    make_processor(tokenizer).save_pretrained(arguments.out)


if __name__ == "__main__":
    main()
