"""Trains the tiny model: `python -m tasks.demo.train --out FOLDER --steps 2500`.

The weights under `tasks/demo/reelabel-tiny` took two rounds, about 1,100 and 700 steps; the second went on from the
first with `--start-from FOLDER --rate 8e-4 --seed 1`.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import tasks.model.cpu_site.sitecustomize  # noqa: F401 - before torchvision, which transformers imports

# isort: split
import numpy as np
import torch
from rich.console import Console
from transformers import Qwen2_5_VLForConditionalGeneration

from tasks.demo.architecture import make_model, make_processor, make_tokenizer
from tasks.demo.examples import draw_examples, draw_glimpses, tokenize_questions
from tasks.demo.learner import Learner, use_fast_vision

_HELD_OUT_SEED = 999
_WARM_UP_STEPS = 100
_GLIMPSE_WEIGHT = 0.5
_DURATION_S = (2.0, 8.0)  # of the clips, which decides the temporal positions
_console = Console(highlight=False)


def train(learner: Learner, *, steps: int, seed: int, batch: int = 24, peak_rate: float = 1.5e-3) -> None:
    """Train with a warm-up and a cosine decay, printing the accuracy on held-out clips."""
    optimizer = torch.optim.AdamW(learner.parameters(), lr=peak_rate, weight_decay=0.01, betas=(0.9, 0.98))
    rng = np.random.default_rng(seed)
    held_out = draw_examples(np.random.default_rng(_HELD_OUT_SEED), 300)
    started = time.monotonic()
    for step in range(1, steps + 1):
        decay = 0.5 * (1 + math.cos(math.pi * step / steps)) * 0.95 + 0.05
        for group in optimizer.param_groups:
            group["lr"] = peak_rate * min(1, step / _WARM_UP_STEPS) * decay
        _take_step(learner, optimizer, rng, clips=batch)
        if step % 50 == 0 or step == steps:
            elapsed_s = time.monotonic() - started
            _console.print(
                f"{elapsed_s:5.0f} s, step {step} of {steps}, right {learner.accuracies(held_out)}", soft_wrap=True
            )


def _take_step(
    learner: Learner,
    optimizer: torch.optim.Optimizer,
    rng: np.random.Generator,
    *,
    clips: int,
) -> None:
    answered = learner.answer_loss(draw_examples(rng, clips), rng.uniform(*_DURATION_S))
    glimpsed = learner.glimpse_loss(draw_glimpses(rng, clips // 2))
    optimizer.zero_grad()
    (answered + _GLIMPSE_WEIGHT * glimpsed).backward()
    torch.nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
    optimizer.step()


def main() -> None:
    """Train and save the model, its tokenizer and its processor."""
    parser = argparse.ArgumentParser(description="Train the tiny model on clips of moving shapes.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the weights")
    parser.add_argument("--steps", type=int, default=2500, help="batches of 24 clips")
    parser.add_argument("--seed", type=int, default=0, help="of the training clips")
    parser.add_argument("--rate", type=float, default=1.5e-3, help="highest learning rate")
    parser.add_argument("--start-from", type=Path, help="weights to go on from; a lower rate fits then")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(2)
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    if arguments.start_from:
        start = Qwen2_5_VLForConditionalGeneration.from_pretrained(arguments.start_from)
        model.load_state_dict(start.state_dict())
    _console.print(f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters")
    use_fast_vision()
    learner = Learner.of(model, tokenize_questions(tokenizer))
    train(learner, steps=arguments.steps, seed=arguments.seed, peak_rate=arguments.rate)
    model.save_pretrained(arguments.out)
    make_processor(tokenizer).save_pretrained(arguments.out)


if __name__ == "__main__":
    main()
