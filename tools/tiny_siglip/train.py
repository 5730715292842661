"""Train the tiny SigLIP: `.venv-engine/bin/python -m tools.tiny_siglip.train --out FOLDER`.

The weights in `tasks/demo/reelabel-tiny-siglip` are those of the defaults, on two threads. The recipe is SigLIP's
sigmoid loss, labelled by what is true of each picture and not only by its own caption, and a head for colours and
shapes that is dropped afterwards.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from rich.console import Console

from tasks.demo.captions import SHAPE_BANK
from tasks.demo.shapes import draw_shape, render_frames
from tools.tiny_siglip.architecture import make_image_processor, make_model, make_tokenizer
from tools.tiny_siglip.learner import Learner
from tools.tiny_siglip.pictures import draw_pictures

if TYPE_CHECKING:
    from collections.abc import Callable

_HELD_OUT_SEED = 999
_HELD_OUT = 512
_WARM_UP_STEPS = 50
_REPORT_STEPS = 50
_PEAK_RATE = 1.5e-3
_BATCH = 128
_THREADS = 2
_console = Console(highlight=False)


def train(
    learner: Learner,
    *,
    steps: int,
    seed: int,
    batch: int = _BATCH,
    on_report: Callable[[int, float], object] = lambda _step, _loss: None,
) -> None:
    """Train with a warm-up and a cosine decay.

    Args:
        learner: The model and its head.
        steps: Number of batches.
        seed: Seed of the pictures and captions.
        batch: Pictures per batch.
        on_report: Called with the step and its loss, every _REPORT_STEPS and at the end.
    """
    optimizers = _optimizers(learner)
    rng = np.random.default_rng(seed)
    for step in range(1, steps + 1):
        decay = 0.5 * (1 + math.cos(math.pi * step / steps))
        for optimizer in optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = _PEAK_RATE * min(1, step / _WARM_UP_STEPS) * decay
        loss = learner.loss(draw_pictures(rng, batch))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        if step % _REPORT_STEPS == 0 or step == steps:
            on_report(step, loss.item())


def _optimizers(learner: Learner) -> list[torch.optim.Optimizer]:
    """Optimize the matrices of the layers with Muon, which needs fewer steps, and all else with AdamW."""
    matrices: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = list(learner.head.parameters())
    for name, parameter in learner.model.named_parameters():
        is_inner = parameter.dim() == 2 and "embedding" not in name  # noqa: PLR2004
        (matrices if is_inner else others).append(parameter)
    return [
        torch.optim.Muon(matrices, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, weight_decay=0.01, betas=(0.9, 0.98)),
    ]


def new_learner(seed: int = 0) -> Learner:
    """Make an untrained model with its head."""
    torch.manual_seed(seed)
    tokenizer = make_tokenizer()
    return Learner.of(make_model(tokenizer), tokenizer)


def main() -> None:
    """Train and save the model, its tokenizer and its image processor."""
    parser = argparse.ArgumentParser(description="Train the tiny SigLIP on pictures of moving shapes.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the weights")
    parser.add_argument("--steps", type=int, default=1500, help="batches of 128 pictures")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights and the pictures")
    arguments = parser.parse_args()
    torch.set_num_threads(_THREADS)
    learner = new_learner(arguments.seed)
    _console.print(f"{sum(parameter.numel() for parameter in learner.model.parameters()):,} parameters")
    rng = np.random.default_rng(_HELD_OUT_SEED)
    shapes = [draw_shape(rng) for _ in range(_HELD_OUT)]
    pictures = np.concatenate([render_frames(shape, rng.uniform(0, 1, 1), rng) for shape in shapes])
    truths = [SHAPE_BANK.index(f"a {shape.colour} {shape.shape}") for shape in shapes]
    started = time.monotonic()

    def report(step: int, loss: float) -> None:
        accuracy = learner.accuracy(pictures, truths, SHAPE_BANK)
        elapsed_s = time.monotonic() - started
        _console.print(f"{elapsed_s:5.0f} s, step {step} of {arguments.steps}, loss {loss:.4f}, 16-way {accuracy:.3f}")
        learner.model.save_pretrained(arguments.out)

    learner.tokenizer.save_pretrained(arguments.out)
    make_image_processor().save_pretrained(arguments.out)
    train(learner, steps=arguments.steps, seed=arguments.seed, on_report=report)


if __name__ == "__main__":
    main()
