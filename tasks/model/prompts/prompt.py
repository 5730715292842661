"""The text of a question, and its answers averaged over orders of the choices."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, islice
from string import ascii_uppercase
from typing import TYPE_CHECKING

import numpy as np

from infra.text_bounds import MAX_TEXT
from reelabel_engine.errors import PromptTooLongError
from reelabel_engine.protocol import Batch, Question, QuestionMedium, Rejected
from tasks.domain import Answer, Job, OrderBias, RunSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tasks.model.backend import Reply


def render_choices(choices: Sequence[str]) -> str:
    """Format choices one per line, such as `A. red`; those past Z have no letter."""
    letters = [*ascii_uppercase, *[""] * max(0, len(choices) - len(ascii_uppercase))]
    return "\n".join(f"{letter}. {text}" if letter else text for letter, text in zip(letters, choices, strict=False))


def render_question(template: str, *, prompt: str, choices: Sequence[str], examples: str | None = None) -> str:
    """Render a question from a format string with {prompt} and {choices}, preceded by its solved examples if any.

    Without choices, it is the prompt alone. Doubled braces of the template are literal; those of the values are kept as
    they are. A blank line follows examples.
    """
    question = template.format(prompt=prompt, choices=render_choices(choices)) if choices else prompt
    return f"{examples}\n\n{question}" if examples else question


def require_short(text: str, system_prompt: str | None) -> None:
    """Raise a PromptTooLongError if a question has more characters than a tokenizer is given."""
    if (count := len(text) + len(system_prompt or "")) > MAX_TEXT:
        raise PromptTooLongError(
            f"The question has {count:,} characters with its choices, template, examples and system prompt; "
            f"{MAX_TEXT:,} are allowed. Shorten it."
        )


def build_question(job: Job, spec: RunSpec, *, files: Sequence[str] | None = None) -> Question:
    """Build a job's question in all its orders; the job's own template and prompts override the spec's.

    `files` are keys into the batch's frame files, of everything that the job shows, in order; None uses the URIs.
    """
    ids = files or [medium.uri for medium in job.shown]
    shown = tuple(QuestionMedium(medium.kind, file_id) for medium, file_id in zip(job.shown, ids, strict=True))
    orders = (
        Question(
            video_id=next(each.file_id for each in shown if each.kind == "video"),
            media=shown if job.media else (),
            text=render_question(
                job.template or spec.template,
                prompt=job.prompt,
                choices=choices,
                examples=job.examples or spec.examples,
            ),
            system_prompt=job.system_prompt or spec.system_prompt,
            choices=choices,
            scoring=spec.choice_scoring,
            max_tokens=1 if choices else spec.max_tokens,
            schema=job.schema,
        )
        for choices in rotate_choices(job.choices, spec.permutations)
    )
    question = next(orders)
    return question if _length_rejection(question) else replace(question, permutations=tuple(orders))


def rotate_choices(choices: Sequence[str], permutations: int) -> list[tuple[str, ...]]:
    """Rotate choices to at most `permutations` evenly spaced starting points; the job's own order is first.

    Without choices, there is one order. With as many rotations as choices, each choice appears once in each position,
    so that a position bias affects all of them equally: the cyclic permutations of Zheng et al., "Large Language Models
    Are Not Robust Multiple Choice Selectors", ICLR 2024.
    """
    count = max(1, min(permutations, len(choices)))
    starts = [number * len(choices) // count for number in range(count)]
    return [(*choices[start:], *choices[:start]) for start in starts]


def answer_permuted(ask: Callable[[Batch], list[Reply]], batch: Batch) -> list[Reply]:
    """Ask each question of a batch in all its orders, and average the answers.

    The orders of a question are adjacent, so that they share the video's prefill.

    Returns:
        One reply per question, in the order of the batch.
    """
    refused = {index: failure for index, each in enumerate(batch.questions) if (failure := _length_rejection(each))}
    orders_of = [() if index in refused else (each, *each.permutations) for index, each in enumerate(batch.questions)]
    questions = tuple(chain.from_iterable(orders_of))
    replies = iter(ask(batch.only(questions)) if questions else ())
    return [
        refused[index] if index in refused else _merge(orders, list(islice(replies, len(orders))))
        for index, orders in enumerate(orders_of)
    ]


def _length_rejection(question: Question) -> Rejected | None:
    try:
        require_short(question.text, question.system_prompt)
    except PromptTooLongError as error:
        return Rejected.of(error)
    return None


def _merge(orders: Sequence[Question], replies: Sequence[Reply]) -> Reply:
    answers: list[Answer] = []
    for reply in replies:
        if isinstance(reply, Rejected):
            return reply
        answers.append(reply)
    return answers[0] if len(answers) == 1 else _average(orders, answers)


def _average(orders: Sequence[Question], answers: Sequence[Answer]) -> Answer:
    table = np.array(
        [
            [answer.probabilities[order.choices.index(choice)] for choice in orders[0].choices]
            for order, answer in zip(orders, answers, strict=True)
        ]
    )
    mean = table.mean(axis=0)
    label = int(mean.argmax())
    masses = [answer.choice_mass for answer in answers if answer.choice_mass is not None]
    return Answer(
        choice_index=label,
        probabilities=tuple(mean.tolist()),
        choice_mass=sum(masses) / len(masses) if masses else None,
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
