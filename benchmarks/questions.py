"""`reelabel bench questions`: what several questions on one video cost beside a single one."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.noise import ask, noise_file
from infra.errors import ModelError
from tasks.domain import Answer
from tasks.model.questions import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tasks.model.questions import Reply

COUNTS = (1, 2, 4, 8)
_WARM_UP_ROUNDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionsRow:
    """So many questions on one video.

    Attributes:
        questions: How many.
        answer_ms: Milliseconds until all are answered, median.
        prompt_tokens: Of all of them.
        cached_tokens: Those of them that were computed for an earlier one.
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
    """Ask on a fresh video each time, the counts in turn.

    Args:
        answer: Asks an engine that is loaded.
        frames: Of each video.
        side_px: Of its square frames.
        rounds: How often each count is asked; two more go before.
        counts: How many questions on one video.

    Raises:
        ModelError: The engine refuses the questions.
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
    questions = tuple(ask(f"What colour is shape {number}?") for number in range(count))
    began = time.perf_counter()
    replies = answer(Batch(frame_files={"v": frame_file}, questions=questions))
    took_ms = (time.perf_counter() - began) * 1e3
    answers = [reply for reply in replies if isinstance(reply, Answer)]
    if len(answers) < count:
        raise ModelError("The engine refuses questions on noise; lower --frames or --side.")
    return took_ms, answers
