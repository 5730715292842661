"""Cost of several questions about one video, compared with a single one."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.engine.noise import noise_file, noise_question
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import Batch
from tasks.domain import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tasks.model.backend import Reply

COUNTS = (1, 2, 4, 8)
_WARM_UP_ROUNDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionsRow:
    """Cost of a number of questions about one video.

    Attributes:
        questions: Number of questions.
        answer_ms: Median milliseconds until all are answered.
        prompt_tokens: Tokens of all prompts.
        cached_tokens: Tokens of them that the prefix cache already held.
    """

    questions: int
    answer_ms: float
    prompt_tokens: int
    cached_tokens: int


def measure_questions(
    answer: Callable[[Batch], list[Reply]],
    *,
    frames: int,
    side_px: int,
    rounds: int,
    counts: Sequence[int] = COUNTS,
) -> Iterator[QuestionsRow]:
    """Ask about a fresh video each time, interleaving the counts.

    Args:
        answer: Asks a loaded engine.
        frames: Frames per video.
        side_px: Side of the square frames.
        rounds: Measured repetitions of each count, after two to warm up.
        counts: Numbers of questions.

    Raises:
        ModelError: The engine rejects the questions.
    """
    took_ms: dict[int, list[float]] = defaultdict(list)
    tokens: dict[int, tuple[int, int]] = {}
    for number in range(_WARM_UP_ROUNDS + rounds):
        for place, count in enumerate(counts):
            file = noise_file(number * len(counts) + place, frames=frames, side_px=side_px)
            ms, answers = _ask(answer, file, count)
            tokens[count] = sum(one.prompt_tokens for one in answers), sum(one.cached_tokens for one in answers)
            if number >= _WARM_UP_ROUNDS:
                took_ms[count].append(ms)
    for count in counts:
        prompt_tokens, cached_tokens = tokens[count]
        yield QuestionsRow(
            questions=count,
            answer_ms=median(took_ms[count]),
            prompt_tokens=prompt_tokens,
            cached_tokens=cached_tokens,
        )


def _ask(answer: Callable[[Batch], list[Reply]], frame_file: bytes, count: int) -> tuple[float, list[Answer]]:
    questions = tuple(noise_question(f"What colour is shape {number}?") for number in range(count))
    began = time.perf_counter()
    replies = answer(Batch(frame_files={"v": frame_file}, questions=questions))
    took_ms = (time.perf_counter() - began) * 1e3
    answers = [reply for reply in replies if isinstance(reply, Answer)]
    if len(answers) < count:
        raise ModelError("The engine rejects the questions; lower --frames.")
    return took_ms, answers
