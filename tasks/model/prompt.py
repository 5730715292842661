"""The text of a question, and the chat that carries it."""

from __future__ import annotations

from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def render_choices(choices: Sequence[str]) -> str:
    """Lay out choices one a line: `A. red`; those past Z carry no letter."""
    letters = [*ascii_uppercase, *[""] * max(0, len(choices) - len(ascii_uppercase))]
    return "\n".join(f"{letter}. {text}" if letter else text for letter, text in zip(letters, choices, strict=False))


def question_text(template: str, *, prompt: str, choices: Sequence[str]) -> str:
    """Fill a template's {prompt} and {choices}; any other brace stays as it is."""
    laid_out = render_choices(choices)
    head, mark, tail = template.partition("{choices}")
    # Replaced side by side, so that a prompt that contains "{choices}" is left alone.
    return head.replace("{prompt}", prompt) + (laid_out if mark else "") + tail.replace("{prompt}", prompt)


def chat_messages(text: str, system_prompt: str | None) -> list[dict[str, Any]]:
    """Make OpenAI-style messages with the video before the question.

    That order lets questions on one video share its prefill.
    """
    user = {"role": "user", "content": [{"type": "video"}, {"type": "text", "text": text}]}
    return [user] if system_prompt is None else [{"role": "system", "content": system_prompt}, user]
