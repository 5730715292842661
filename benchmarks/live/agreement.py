"""Labels of live sessions beside those of `classify` about the same frames as one video, by kind of question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.engine.frame_files import frame_file_of
from benchmarks.live.stream import in_pairs
from reelabel_engine.protocol import Batch, Question
from tasks.domain import Answer
from tasks.domain.spec import DEFAULT_TEMPLATE
from tasks.live.model import LiveQuery
from tasks.model.prompts.prompt import render_question
from tools.tiny_model.scenes import SCENE_QUESTIONS, draw_scene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.live.stream import OpenLive
    from tools.tiny_model.scenes import Scene

_FRAMES = 16
_FPS = 4.0
# One clip about a direction tells a colour and a shape as well.
_ABOUT = ("direction", "count", "order", "late")


@dataclass(slots=True, kw_only=True)
class Agreement:
    """Labels of one kind of question.

    Attributes:
        labels: That were compared.
        same: That were the same.
        right: Live ones that were the true answer.
        difference: The largest difference of a probability.
    """

    labels: int = 0
    same: int = 0
    right: int = 0
    difference: float = 0.0


def measure_agreement(live: OpenLive, *, labels: int, on_clip: Callable[[str], None]) -> dict[str, Agreement]:
    """Ask about clips of moving shapes, pair by pair as they arrive, and as one video; each kind equally often."""
    found = {task: Agreement() for task in SCENE_QUESTIONS}
    rng = np.random.default_rng(7)
    for number, scene in enumerate(_scenes(labels, rng), 1):
        on_clip(f"clip {number}")
        frames = scene.render(np.linspace(0, 1, _FRAMES), rng)
        data, items, session = frame_file_of(frames, fps=_FPS), list(in_pairs(frames, fps=_FPS)), live.open()
        for n in range(1, len(items) + 1):
            live.read(session, items[:n])
        for task, truth in scene.truths.items():
            prompt, choices = SCENE_QUESTIONS[task]
            text = render_question(DEFAULT_TEMPLATE, prompt=prompt, choices=choices)
            question = Question(video_id="v", text=text, system_prompt=None, choices=choices, scoring="letter")
            [whole] = live.process.answer(Batch(frame_files={"v": data}, questions=(question,)))
            assert isinstance(whole, Answer), whole
            answer = live.ask(session, items, LiveQuery(text=text, choices=choices))
            counted = found[task]
            counted.labels += 1
            counted.same += answer.choice_index == whole.choice_index
            counted.right += answer.text == truth
            differences = (abs(a - b) for a, b in zip(answer.probabilities, whole.probabilities, strict=True))
            counted.difference = max(counted.difference, *differences)
        live.model.forget(session)
    return found


def _scenes(labels: int, rng: np.random.Generator) -> Iterator[Scene]:
    for _ in range(-(-labels // len(SCENE_QUESTIONS))):
        for task in _ABOUT:
            yield draw_scene(task, str(rng.choice(SCENE_QUESTIONS[task][1])), rng)
