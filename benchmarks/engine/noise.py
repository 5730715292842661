"""Generates frame files from frames in memory, distinct videos of noise, and questions about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reelabel.frames.cache_key import FrameIdentity
from reelabel.frames.frame_file import read_frames, write_frames
from reelabel.integrations.vllm.video_input import video_input
from reelabel.result import Frames, Orientation, Selection
from reelabel.sampling.options import Sampling
from reelabel_engine.protocol import Question
from tasks.domain.spec import DEFAULT_TEMPLATE
from tasks.model.prompts.prompt import render_question

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

_FPS = 2.0
_COLOURS = ("red", "green", "blue", "yellow")


def frame_file_of(
    frames: npt.NDArray[np.uint8],
    *,
    fps: float,
    source_uri: str = "v",
    fingerprint: str = "e",
    sampling: Sampling | None = None,
) -> bytes:
    """Return the frame file of a video all of whose frames were sampled; `frames` have shape (T, H, W, 3)."""
    count, height, width, _ = frames.shape
    order = np.arange(count)
    sampled = Frames.of(
        frames,
        Selection(
            pts=order,
            time_s=order / fps,
            frame_index=order,
            is_keyframe=np.ones(count, bool),
            picks=order,
            keyframes_in_file=count,
            total_frames=count,
            fps=fps,
            duration_s=count / fps,
            native_width_px=width,
            native_height_px=height,
            orientation=Orientation(),
            method="index",
            note="",
            decode_ms=0.0,
        ),
    )
    identity = FrameIdentity(source_uri=source_uri, fingerprint=fingerprint, sampling=sampling or Sampling())
    return write_frames(sampled, identity)


def question_of(
    prompt: str, choices: Sequence[str] = _COLOURS, *, video_id: str = "v", max_tokens: int = 1
) -> Question:
    """Return a question, as a run asks it; without choices, it is answered in words."""
    return Question(
        video_id=video_id,
        text=render_question(DEFAULT_TEMPLATE, prompt=prompt, choices=choices),
        system_prompt=None,
        choices=tuple(choices),
        max_tokens=max_tokens,
    )


QUESTION = question_of("What colour is the shape?")


def words_question(max_tokens: int, *, video_id: str = "v") -> Question:
    """Return a question that is answered in words."""
    return question_of("Describe this video.", (), video_id=video_id, max_tokens=max_tokens)


def noise_video(seed: int, *, frames: int, side_px: int) -> tuple[npt.NDArray[np.uint8], dict[str, Any]]:
    """Return a video of noise as input of the engine."""
    return video_input(read_frames(noise_file(seed, frames=frames, side_px=side_px)))


def noise_file(seed: int, *, frames: int, side_px: int) -> bytes:
    """Return a frame file of square noise at two frames per second."""
    images = np.random.default_rng(seed).integers(0, 256, (frames, side_px, side_px, 3), np.uint8)
    sampling = Sampling(num_frames=frames, max_pixels=max(784, side_px * side_px), size_multiple_px=28)
    return frame_file_of(images, fps=_FPS, source_uri=f"noise-{seed}", fingerprint=str(seed), sampling=sampling)
