"""Labels of live sessions beside those of `classify` about the same frames as one video, by kind of question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reelabel.frames.frame_file import encode_frame_file
from reelabel.sampled_frames import Orientation, SampledFrames
from reelabel.sampling.options import Sampling
from tasks.demo.shapes import QUESTIONS, draw_shape, render_frames
from tasks.domain import Answer
from tasks.domain.spec import DEFAULT_TEMPLATE
from tasks.live.items import LiveItem, Pairs
from tasks.live.model import LiveQuery
from tasks.model.prompts.prompt import render_question
from tasks.model.protocol import Batch, Question

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from benchmarks.live.stream import OpenLive

_FRAMES = 16
_FPS = 4.0


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
    """Ask about clips of a moving shape, pair by pair as they arrive, and as one video."""
    found = {task: Agreement() for task in QUESTIONS}
    rng = np.random.default_rng(7)
    for number in range(-(-labels // len(QUESTIONS))):
        on_clip(f"clip {number + 1}")
        shape = draw_shape(rng)
        frames = render_frames(shape, np.linspace(0, 1, _FRAMES), rng)
        data, items, session = _whole(frames), _pairs(frames), live.open()
        for n in range(1, len(items) + 1):
            live.read(session, items[:n])
        for task, (prompt, choices) in QUESTIONS.items():
            text = render_question(DEFAULT_TEMPLATE, prompt=prompt, choices=choices)
            question = Question(video_id="v", text=text, system_prompt=None, choices=choices, scoring="letter")
            [whole] = live.process.answer(Batch(frame_files={"v": data}, questions=(question,)))
            assert isinstance(whole, Answer), whole
            answer = live.ask(session, items, LiveQuery(text=text, choices=choices))
            counted = found[task]
            counted.labels += 1
            counted.same += answer.choice_index == whole.choice_index
            counted.right += answer.text == shape.truth(task)
            differences = (abs(a - b) for a, b in zip(answer.probabilities, whole.probabilities, strict=True))
            counted.difference = max(counted.difference, *differences)
        live.model.forget(session)
    return found


def _pairs(frames: npt.NDArray[np.uint8]) -> list[LiveItem]:
    pairs = Pairs()
    items: list[LiveItem] = []
    for number, image in enumerate(frames):
        items += pairs.add(image, number / _FPS)
    return items


def _whole(frames: npt.NDArray[np.uint8]) -> bytes:
    count, height, width, _ = frames.shape
    sampled = SampledFrames(
        images=frames,
        pts=np.arange(count),
        time_s=np.arange(count) / _FPS,
        frame_index=np.arange(count),
        is_keyframe=np.ones(count, bool),
        picks=np.arange(count),
        keyframes_in_file=count,
        total_frames=count,
        fps=_FPS,
        duration_s=count / _FPS,
        native_width_px=width,
        native_height_px=height,
        orientation=Orientation(),
        method="seek",
        reason="",
        decode_ms=0.0,
    )
    return encode_frame_file(sampled, source_uri="v", fingerprint="e", sampling=Sampling()).data
