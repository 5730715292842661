"""The text of a question, and the chat messages that carry it."""

from __future__ import annotations

from dataclasses import replace
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from tasks.model.prompts.choice_permutation import rotate_choices
from tasks.model.protocol import Question

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.domain import Job, RunSpec


def render_choices(choices: Sequence[str]) -> str:
    """Format choices one per line, such as `A. red`; those past Z have no letter."""
    letters = [*ascii_uppercase, *[""] * max(0, len(choices) - len(ascii_uppercase))]
    return "\n".join(f"{letter}. {text}" if letter else text for letter, text in zip(letters, choices, strict=False))


def render_question(template: str, *, prompt: str, choices: Sequence[str], examples: str | None = None) -> str:
    """Render a question, preceded by its solved examples if any.

    Args:
        template: Format string with {prompt} and {choices}; doubled braces are literal.
        prompt: The question; braces are kept as they are, here and in the values below.
        choices: The answers, in order.
        examples: Text before the question, separated by a blank line.
    """
    question = template.format(prompt=prompt, choices=render_choices(choices))
    return f"{examples}\n\n{question}" if examples else question


def build_question(job: Job, spec: RunSpec, *, video_id: str | None = None) -> Question:
    """Build a job's question in all its orders; the job's own template and prompts override the spec's.

    Args:
        job: The job.
        spec: The run's spec.
        video_id: Key into the batch's frame files; None uses the video's URI.
    """
    question, *others = (
        Question(
            video_id=video_id or job.video_uri,
            text=render_question(
                job.template or spec.template,
                prompt=job.prompt,
                choices=choices,
                examples=job.examples or spec.examples,
            ),
            system_prompt=job.system_prompt or spec.system_prompt,
            choices=choices,
            scoring=spec.choice_scoring,
        )
        for choices in rotate_choices(job.choices, spec.permutations)
    )
    return replace(question, others=tuple(others))


def chat_messages(text: str, system_prompt: str | None, *, placeholder: str | None = None) -> list[dict[str, Any]]:
    """Build OpenAI-style messages with the video before the question.

    That order lets questions on one video share its prefill.

    Args:
        text: The question with its choices.
        system_prompt: None leaves it to the chat template.
        placeholder: Text that represents the video, for a template that takes plain text; None uses content
            parts, in the system message too.
    """
    if placeholder is not None:
        user: dict[str, Any] = {"role": "user", "content": f"{placeholder}\n{text}"}
        system: dict[str, Any] = {"role": "system", "content": system_prompt}
    else:
        user = {"role": "user", "content": [{"type": "video"}, {"type": "text", "text": text}]}
        system = {"role": "system", "content": [{"type": "text", "text": system_prompt}]}
    return [user] if system_prompt is None else [system, user]
