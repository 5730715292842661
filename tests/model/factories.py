"""Frame files and questions that engines are asked about."""

from types import SimpleNamespace

import numpy as np
from msgspec import structs

from reelabel.result import Frames
from reelabel.sampling.options import Sampling
from reelabel_engine.protocol import Batch, Question
from tasks.demo.shapes import draw_shape, render_frames
from tasks.domain.spec import DEFAULT_TEMPLATE
from tasks.model.prompts.prompt import render_question
from tests.frame_files import frame_file_of, selection_of


def frame_file(seed, *, repeats=2, every_s=0.5, lasts_s=4.0):
    rng = np.random.default_rng(seed)
    count = 8
    keyframes = Frames.of(
        render_frames(draw_shape(rng), np.linspace(0, 1, count), rng),
        selection_of(
            count,
            time_s=np.arange(count) * every_s,
            frame_index=np.arange(count) * 6,
            picks=np.repeat(np.arange(count), repeats),
            total_frames=round(lasts_s * 12),
            fps=12.0,
            duration_s=lasts_s,
        ),
    )
    return frame_file_of(keyframes, source_uri="v", fingerprint="e", sampling=Sampling())


def question(prompt="Which colour is the shape?", choices=("red", "green", "blue", "yellow"), **changed):
    text = render_question(DEFAULT_TEMPLATE, prompt=prompt, choices=choices)
    facts = {"video_id": "v", "system_prompt": None, "scoring": "letter"}
    return Question(text=text, choices=choices, **facts | changed)


def in_words(text="Describe this video.", **changed):
    """Return a question without choices."""
    return Question(text=text, **{"video_id": "v", "system_prompt": None, "choices": (), "max_tokens": 64} | changed)


def batch_about(*questions, seed=1):
    """Questions on one video."""
    return Batch(frame_files={"v": frame_file(seed)}, questions=questions)


def live_answer(pieces, choices=()):
    """Return the pieces of a live answer but the last; and that, with the text or the choice that it is."""
    *deltas, done = pieces
    shares = done.probabilities
    chosen = max(range(len(shares)), key=shares.__getitem__) if choices else None
    text = "".join(getattr(each, "text", "") for each in deltas) if chosen is None else choices[chosen]
    return deltas, SimpleNamespace(text=text, choice_index=chosen, **structs.asdict(done))
