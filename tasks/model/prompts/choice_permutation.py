"""Ask one question with its choices in several orders, to average out position bias."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

from tasks.domain import Answer, OrderBias
from tasks.model.protocol import QuestionFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tasks.model.protocol import Batch, Question, Reply


def rotate_choices(choices: Sequence[str], permutations: int) -> list[tuple[str, ...]]:
    """Rotate choices to evenly spaced starting points.

    With as many rotations as choices, each choice appears once in each position, so that a position bias
    affects all of them equally: the cyclic permutations of Zheng et al., "Large Language Models Are
    Not Robust Multiple Choice Selectors", ICLR 2024.

    Args:
        choices: The answers, in the job's order.
        permutations: Maximum number of orders; a question with fewer choices has one per choice.

    Returns:
        Distinct orders, the job's own first.
    """
    count = min(permutations, len(choices))
    starts = [turn * len(choices) // count for turn in range(count)]
    return [(*choices[start:], *choices[:start]) for start in starts]


def answer_permuted(ask: Callable[[Batch], list[Reply]], batch: Batch) -> list[Reply]:
    """Ask each question of a batch in all its orders, and average the answers.

    The orders of a question are adjacent, so that they share the video's prefill.

    Returns:
        One reply per question, in the order of the batch.
    """
    asked = [(question, *question.others) for question in batch.questions]
    replies = iter(ask(batch.only(tuple(chain.from_iterable(asked)))))
    return [_merge(orders, list(islice(replies, len(orders)))) for orders in asked]


def _merge(orders: Sequence[Question], replies: Sequence[Reply]) -> Reply:
    """Merge the replies to a question's orders: their average, or the first refusal."""
    answers: list[Answer] = []
    for reply in replies:
        if isinstance(reply, QuestionFailure):
            return reply
        answers.append(reply)
    return answers[0] if len(answers) == 1 else _average(orders, answers)


def _average(orders: Sequence[Question], answers: Sequence[Answer]) -> Answer:
    table = np.array(
        [
            [answer.probabilities[order.choices.index(choice)] for choice in orders[0].choices]
            for order, answer in zip(orders, answers, strict=True)
        ],
    )
    mean = table.mean(axis=0)
    label = int(mean.argmax())
    return Answer(
        choice_index=label,
        probabilities=tuple(mean.tolist()),
        prompt_tokens=sum(answer.prompt_tokens for answer in answers),
        cached_tokens=sum(answer.cached_tokens for answer in answers),
        preprocess_ms=sum(answer.preprocess_ms for answer in answers),
        inference_ms=sum(answer.inference_ms for answer in answers),
        order=OrderBias(
            permutations=len(answers),
            agreement=float((table.argmax(axis=1) == label).mean()),
            spread=float(np.ptp(table, axis=0).max()),
            same_position=len({answer.choice_index for answer in answers}) == 1,
        ),
    )
