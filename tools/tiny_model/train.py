"""Trains the tiny model: `.venv-engine/bin/python -m tools.tiny_model.train --out FOLDER --steps 1000`.

The weights in `tasks/demo/reelabel-tiny` were trained in five rounds on one core, each starting from the previous one
(`--start-from`), the first from a model of the three demo questions after about 1,800 steps of AdamW: 200 of 2,000
steps; `--steps 600 --seed 1 --rate 1e-3`; `--steps 600 --seed 2 --rate 5e-4`; 100 of `--steps 250 --seed 3 --rate
5e-4`; `--steps 150 --seed 4 --rate 7e-4` with a warm-up of 10 steps. In the first three rounds, every fourth clip was a
shape crossing the picture from anywhere, and counts changed as late as 0.85 of a clip.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from rich.console import Console
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AutoTokenizer, Qwen2_5_VLForConditionalGeneration

from tools.tiny_model.architecture import make_model, make_processor, make_tokenizer
from tools.tiny_model.examples import FRAMES, draw_examples, draw_glimpses, tokenize_questions
from tools.tiny_model.learner import Learner, use_fast_vision
from tools.training import Training

if TYPE_CHECKING:
    from collections.abc import Callable

_HELD_OUT_SEED = 999
_GLIMPSE_WEIGHT = 0.5
_AT_A_RATE_SHARE = 0.5
_REPORT_STEPS = 50
_BATCH = 24  # clips
_DURATION_S = (2.0, 8.0)  # length of the clips, which determines the temporal positions
_console = Console(highlight=False)


def train(learner: Learner, *, steps: int, seed: int, peak_rate: float, on_report: Callable[[], object]) -> None:
    """Train on clips of a seed, printing the accuracy on held-out clips; `on_report` is called after that."""
    training = Training(learner.model, learner.head, outer=("embed_tokens", "lm_head"))
    rng = np.random.default_rng(seed)
    held_out = draw_examples(np.random.default_rng(_HELD_OUT_SEED), 160)
    started = time.monotonic()
    for step in range(1, steps + 1):
        training.begin_step(step, steps, peak_rate=peak_rate, least=0.05)
        training.end_step(_loss(learner, rng))
        if step % _REPORT_STEPS == 0 or step == steps:
            elapsed_s = time.monotonic() - started
            _console.print(
                f"{elapsed_s:5.0f} s, step {step} of {steps}, accuracy {learner.accuracies(held_out)}", soft_wrap=True
            )
            on_report()


def _loss(learner: Learner, rng: np.random.Generator) -> torch.Tensor:
    frames, duration_s = _draw_length(rng)
    # Half precision takes two thirds of the time, provided that attention avoids a kernel that is slow in it.
    with sdpa_kernel(SDPBackend.MATH), torch.autocast("cpu", torch.bfloat16):
        answered = learner.answer_loss(draw_examples(rng, _BATCH, frames=frames), duration_s)
        glimpsed = learner.glimpse_loss(draw_glimpses(rng, _BATCH // 6))
    return answered + _GLIMPSE_WEIGHT * glimpsed


def _draw_length(rng: np.random.Generator) -> tuple[int, float]:
    """Choose the number of frames and the length of the clips; clips with fewer than FRAMES have two per second."""
    if rng.uniform() > _AT_A_RATE_SHARE:
        return FRAMES, rng.uniform(*_DURATION_S)
    frames = 2 * int(rng.integers(4, FRAMES // 2))
    return frames, frames / 2


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the tiny model on clips of moving shapes.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the weights")
    parser.add_argument("--steps", type=int, default=2500, help="batches of 24 clips")
    parser.add_argument("--seed", type=int, default=0, help="seed of the training clips")
    parser.add_argument("--rate", type=float, default=1.5e-3, help="highest learning rate")
    parser.add_argument("--start-from", type=Path, help="weights to continue from, at a lower rate")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    tokenizer = make_tokenizer()
    if not arguments.start_from:
        model = make_model(tokenizer)
    elif AutoTokenizer.from_pretrained(arguments.start_from).get_vocab() != tokenizer.get_vocab():
        parser.error("--start-from: its tokens are not those of this model; train from the start")
    else:
        model = Qwen2_5_VLForConditionalGeneration.from_pretrained(arguments.start_from)
    _console.print(f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters")
    use_fast_vision()
    learner = Learner.of(model, tokenize_questions(tokenizer))
    make_processor(tokenizer).save_pretrained(arguments.out)
    train(
        learner,
        steps=arguments.steps,
        seed=arguments.seed,
        peak_rate=arguments.rate,
        on_report=lambda: model.save_pretrained(arguments.out),
    )


if __name__ == "__main__":
    main()
