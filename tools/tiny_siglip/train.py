"""Trains the tiny SigLIP: `.venv-engine/bin/python -m tools.tiny_siglip.train --out FOLDER`.

The weights in `tasks/demo/reelabel-tiny-siglip` were trained with the defaults, on two threads. The recipe is SigLIP's
sigmoid loss, in which every true caption of a picture counts, not only its own, and a head for colours and shapes that
is dropped afterwards.
"""

from __future__ import annotations

import argparse
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
from tools.training import Training

if TYPE_CHECKING:
    from collections.abc import Callable

_HELD_OUT_SEED = 999
_HELD_OUT = 512
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
    """Train on pictures of a seed; `on_report` gets the step and its loss, every _REPORT_STEPS and at the end."""
    training = Training(learner.model, learner.head, outer=("embedding",))
    rng = np.random.default_rng(seed)
    for step in range(1, steps + 1):
        training.begin_step(step, steps, peak_rate=_PEAK_RATE)
        loss = learner.loss(draw_pictures(rng, batch))
        training.end_step(loss)
        if step % _REPORT_STEPS == 0 or step == steps:
            on_report(step, loss.item())


def new_learner(seed: int = 0) -> Learner:
    """Make an untrained model with its head."""
    torch.manual_seed(seed)
    tokenizer = make_tokenizer()
    return Learner.of(make_model(tokenizer), tokenizer)


def main() -> None:
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
