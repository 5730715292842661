"""Training data of the tiny model: tokenized questions, and clips as samplers select frames from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from reelabel_engine.prompts import chat_messages
from tasks.demo.actors import SHAPES, SIDE_PX
from tasks.demo.shapes import COLOURS, draw_shape, render_frames
from tasks.domain.spec import DEFAULT_TEMPLATE
from tasks.model.prompts.prompt import render_question
from tools.tiny_model.architecture import MERGE, PATCH_PX, TEMPORAL_PATCH, TOKENS_PER_SECOND
from tools.tiny_model.scenes import SCENE_QUESTIONS, draw_scene

if TYPE_CHECKING:
    import numpy.typing as npt

    from tools.tiny_model.scenes import Scene

FRAMES = 16
GROUPS = FRAMES // TEMPORAL_PATCH
GRID = SIDE_PX // PATCH_PX
PATCHES_PER_GROUP = GRID * GRID
TOKENS_PER_GROUP = PATCHES_PER_GROUP // MERGE**2
LETTERS = "ABCD"
TASKS = tuple(SCENE_QUESTIONS)

_CLIPS_ABOUT = ("direction", "count", "order", "late", "shape", "count", "order", "late")
_KEYFRAME_SHARE = 0.35  # of the clips; the others show frames from beginning to end
_KEYFRAMES = (1, 1, 2, 2, 3, 4, 5, 6, 8, 10, 12, 16)
_GUESS_WEIGHT = 0.3


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """The tokenized questions, before and after the video.

    Attributes:
        before: Token ids before the video, the same for all questions; shape (S,).
        after: Token ids after it, padded on the right; shape (K, L).
        last: Position of each question's last token in `after`; shape (K,).
        answers: Token ids of A to D; shape (4,).
    """

    before: torch.Tensor
    after: torch.Tensor
    last: torch.Tensor
    answers: torch.Tensor

    def positions(self, duration_s: float, *, groups: int = GROUPS) -> torch.Tensor:
        """Return positions as vLLM computes them for Qwen2.5-VL; shape (3, S + video tokens + L).

        A video token's time is truncated to whole positions, and text after the video continues at the highest position
        plus one. transformers places that text differently, so its own function would train for positions that are
        never served.

        Args:
            duration_s: Length of the clip.
            groups: Number of frame pairs.
        """
        side = GRID // MERGE
        grid = np.indices((groups, side, side)).reshape(3, -1)
        grid[0] = (grid[0] * duration_s / groups * TOKENS_PER_SECOND).astype(np.int64)
        video = grid + len(self.before)
        before = np.broadcast_to(np.arange(len(self.before)), (3, len(self.before)))
        length = self.after.shape[1]
        after = np.broadcast_to(np.arange(length), (3, length)) + video.max() + 1
        return torch.from_numpy(np.concatenate([before, video, after], axis=1))


@dataclass(frozen=True, kw_only=True)
class Examples:
    """A batch of clips, with questions about them and their answers.

    Attributes:
        clips: Pixels; shape (B, frames, SIDE_PX, SIDE_PX, 3), uint8.
        clip_of: Index of the clip that a question is about; shape (N,).
        task_of: Index in TASKS of each question; shape (N,).
        truths: Index of the correct choice; shape (N,).
        shows_answer: 1 where the frames show the answer, 0 where it can only be guessed; shape (N,).
    """

    clips: npt.NDArray[np.uint8]
    clip_of: torch.Tensor
    task_of: torch.Tensor
    truths: torch.Tensor
    shows_answer: torch.Tensor

    @property
    def weights(self) -> torch.Tensor:
        """Weights of the questions: guesses count less, but enough to learn to be unsure."""
        return self.shows_answer + _GUESS_WEIGHT * (1 - self.shows_answer)


@dataclass(frozen=True, kw_only=True)
class Glimpses:
    """Clips with a different shape in every frame pair, which show many shapes at little cost.

    Attributes:
        clips: Pixels; shape (B, FRAMES, SIDE_PX, SIDE_PX, 3), uint8.
        shapes: Index in SHAPES; shape (B * GROUPS,).
        colours: Index in COLOURS; shape (B * GROUPS,).
    """

    clips: npt.NDArray[np.uint8]
    shapes: torch.Tensor
    colours: torch.Tensor


def tokenize_questions(tokenizer: Any) -> Prompts:  # noqa: ANN401 - transformers' tokenizer
    """Render the questions as the engine does, and split them at the video."""
    pad = "<|video_pad|>"
    before, rows = "", []
    for prompt, choices in SCENE_QUESTIONS.values():
        text = render_question(DEFAULT_TEMPLATE, prompt=prompt, choices=choices)
        chat = tokenizer.apply_chat_template(chat_messages(text, None), tokenize=False, add_generation_prompt=True)
        before, _, after = chat.partition(pad)
        rows.append(tokenizer.encode(after, add_special_tokens=False))
    length = max(map(len, rows))
    return Prompts(
        before=torch.tensor(tokenizer.encode(before, add_special_tokens=False)),
        after=torch.tensor([row + [tokenizer.pad_token_id] * (length - len(row)) for row in rows]),
        last=torch.tensor([len(row) - 1 for row in rows]),
        answers=torch.tensor([tokenizer.convert_tokens_to_ids(letter) for letter in LETTERS]),
    )


def draw_glimpses(rng: np.random.Generator, size: int) -> Glimpses:
    """Draw clips of moving shapes, a different one in every frame pair."""
    shapes = [draw_shape(rng) for _ in range(size * GROUPS)]
    pairs = [render_frames(shape, rng.uniform() + np.array([-0.1, 0.1]), rng) for shape in shapes]
    return Glimpses(
        clips=np.concatenate(pairs).reshape(size, FRAMES, SIDE_PX, SIDE_PX, 3),
        shapes=torch.tensor([SHAPES.index(shape.shape) for shape in shapes]),
        colours=torch.tensor([list(COLOURS).index(shape.colour) for shape in shapes]),
    )


def draw_examples(rng: np.random.Generator, size: int, *, frames: int = FRAMES) -> Examples:
    """Draw clips and questions, with frames spread over the clip or, for some clips, keyframes only.

    Args:
        rng: Source of randomness.
        size: Number of clips.
        frames: Frames per clip; even.
    """
    clips, questions = [], []
    for index in range(size):
        about = _CLIPS_ABOUT[index % len(_CLIPS_ABOUT)]
        scene = draw_scene(about, str(rng.choice(SCENE_QUESTIONS[about][1])), rng)
        instants, picks = _sample(rng, frames)
        clips.append(scene.render(instants, rng)[picks])
        questions += [(index, *_question(scene, task, instants)) for task in scene.truths]
    clip_of, task_of, truths, shows_answer = map(torch.tensor, zip(*questions, strict=True))
    return Examples(
        clips=np.stack(clips), clip_of=clip_of, task_of=task_of, truths=truths, shows_answer=shows_answer.float()
    )


def _sample(rng: np.random.Generator, frames: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Choose instants of a clip, and the index of the instant that each frame shows."""
    if rng.uniform() > _KEYFRAME_SHARE:
        # Like the uniform sampler, or like samplers with a frame rate.
        ends_early = frames < FRAMES or rng.uniform() < 1 / 4
        return np.linspace(0, 1, frames, endpoint=not ends_early), np.arange(frames)
    unique = min(frames, int(rng.choice(_KEYFRAMES)))
    last = rng.uniform(1 - 1 / unique, 1)  # the last keyframe is up to one GOP before the end
    return np.linspace(0, last, unique), np.arange(frames) * unique // frames


def _question(scene: Scene, task: str, instants: npt.NDArray[np.float64]) -> tuple[int, int, bool]:
    truth = SCENE_QUESTIONS[task][1].index(scene.truths[task])
    return TASKS.index(task), truth, scene.shows_answer(task, instants)
