"""Videos of noise, no two alike, and a question about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.engine.frame_files import frame_file_of
from reelabel.frames.frame_file import decode_frame_file
from reelabel.integrations.vllm.video_input import video_input
from reelabel.sampling.options import Sampling
from reelabel_engine.protocol import Question
from tasks.domain.spec import DEFAULT_TEMPLATE
from tasks.model.prompts.prompt import render_question

if TYPE_CHECKING:
    import numpy.typing as npt

_CHOICES = ("red", "green", "blue", "yellow")
_FPS = 2.0


def noise_question(prompt: str) -> Question:
    """Return a multiple-choice question with four choices."""
    return Question(
        video_id="v",
        text=render_question(DEFAULT_TEMPLATE, prompt=prompt, choices=_CHOICES),
        system_prompt=None,
        choices=_CHOICES,
        scoring="letter",
    )


QUESTION = noise_question("What colour is the shape?")


def noise_video(seed: int, *, frames: int, side_px: int) -> tuple[npt.NDArray[np.uint8], dict[str, Any]]:
    """Return a video of noise as input of the engine."""
    return video_input(decode_frame_file(noise_file(seed, frames=frames, side_px=side_px)))


def noise_file(seed: int, *, frames: int, side_px: int) -> bytes:
    """Return a frame file of square noise at two frames per second."""
    images = np.random.default_rng(seed).integers(0, 256, (frames, side_px, side_px, 3), np.uint8)
    sampling = Sampling(num_frames=frames, max_pixels=max(784, side_px * side_px))
    return frame_file_of(images, fps=_FPS, source_uri=f"noise-{seed}", fingerprint=str(seed), sampling=sampling)
