"""The text of a question, and the chat that carries it."""

from __future__ import annotations

from dataclasses import replace
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from tasks.model.orders import rotations
from tasks.model.questions import Question

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.domain import Job, RunSpec


def render_choices(choices: Sequence[str]) -> str:
    """Lay out choices one a line: `A. red`; those past Z carry no letter."""
    letters = [*ascii_uppercase, *[""] * max(0, len(choices) - len(ascii_uppercase))]
    return "\n".join(f"{letter}. {text}" if letter else text for letter, text in zip(letters, choices, strict=False))


def question_text(template: str, *, prompt: str, choices: Sequence[str], examples: str | None = None) -> str:
    """Lay out a question behind its solved examples, if any.

    Args:
        template: Its {prompt} and {choices} are filled in; doubled braces stand for single ones.
        prompt: The question; braces in it stay as they are, and so do those of the following.
        choices: The answers, in order.
        examples: Text that stands before the question, a blank line between.
    """
    question = template.format(prompt=prompt, choices=render_choices(choices))
    return f"{examples}\n\n{question}" if examples else question


def question_of(job: Job, spec: RunSpec, *, video_id: str | None = None) -> Question:
    """Make what the engine is asked for a job, in each of its orders; its own wording comes before the spec's.

    Args:
        job: The job.
        spec: How it is asked.
        video_id: Key into the batch's frame files; None is the video's URI.
    """
    question, *others = (
        Question(
            video_id=video_id or job.video_uri,
            text=question_text(
                job.template or spec.template,
                prompt=job.prompt,
                choices=choices,
                examples=job.examples or spec.examples,
            ),
            system_prompt=job.system_prompt or spec.system_prompt,
            choices=choices,
            scoring=spec.choice_scoring,
        )
        for choices in rotations(job.choices, spec.permutations)
    )
    return replace(question, others=tuple(others))


def chat_messages(text: str, system_prompt: str | None, *, placeholder: str | None = None) -> list[dict[str, Any]]:
    """Make OpenAI-style messages with the video before the question.

    That order lets questions on one video share its prefill.

    Args:
        text: The question with its choices.
        system_prompt: None leaves it to the model's chat template.
        placeholder: What stands for a video in the text, for a template that takes texts alone; None lays
            messages out in parts, which is what all other templates take, of the system's message, too.
    """
    if placeholder is not None:
        user: dict[str, Any] = {"role": "user", "content": f"{placeholder}\n{text}"}
        system: dict[str, Any] = {"role": "system", "content": system_prompt}
    else:
        user = {"role": "user", "content": [{"type": "video"}, {"type": "text", "text": text}]}
        system = {"role": "system", "content": [{"type": "text", "text": system_prompt}]}
    return [user] if system_prompt is None else [system, user]
