"""The tokens and probabilities of a question's choices, and the chat messages that carry its text."""

from __future__ import annotations

import math
from itertools import chain, cycle
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from reelabel_engine.errors import ChoicesAmbiguousError, InferenceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from reelabel_engine.protocol import MediumKind

ChoiceTokens = tuple[frozenset[int], ...]


def choice_tokens(
    choices: Sequence[str], *, scoring: Literal["letter", "text"], encode: Callable[[str], list[int]]
) -> ChoiceTokens:
    """Find the tokens that represent each choice, with and without a leading space: disjoint sets, none of them empty.

    `letter` scores A, B, C...; `text` the first token of each choice. `encode` adds no special tokens.

    Raises:
        ChoicesAmbiguousError: There are more choices than letters, or two choices share a token.
    """
    found = _letters(choices, encode) if scoring == "letter" else [_first_tokens(text, encode) for text in choices]
    for index, tokens in enumerate(found):
        if not tokens:
            raise ChoicesAmbiguousError(f"Choice {choices[index]!r} has no first token to score; reword it.")
        for other in range(index):
            if tokens & found[other]:
                raise ChoicesAmbiguousError(
                    f"Choices {choices[other]!r} and {choices[index]!r} start with the same token, so a single token "
                    "cannot tell them apart; use choice_scoring 'letter' or reword them."
                )
    return tuple(found)


class ChoiceScores(NamedTuple):
    """What a model thinks of each choice."""

    probabilities: tuple[float, ...]  # one per choice, summing to one
    mass: float  # of all choices, before normalising: next to 0 if the model would have said something else


def score_choices(tokens: ChoiceTokens, logprobs: Mapping[int, float]) -> ChoiceScores:
    """Sum the probabilities of each choice's tokens, and normalise over the choices.

    `logprobs` are natural logarithms by token id, over the whole vocabulary; an absent token has probability 0.

    Raises:
        InferenceError: The logprobs are NaN, or include none of the tokens.
    """
    masses = [sum(math.exp(logprobs[token]) for token in group if token in logprobs) for group in tokens]
    total = sum(masses)
    if not (math.isfinite(total) and total > 0):
        raise InferenceError("The model assigns no probability to any choice (NaN or zero); try dtype float32.")
    return ChoiceScores(tuple(mass / total for mass in masses), min(1.0, total))


def _letters(choices: Sequence[str], encode: Callable[[str], list[int]]) -> list[frozenset[int]]:
    if len(choices) > len(ascii_uppercase):
        raise ChoicesAmbiguousError(
            f"{len(choices)} choices exceed the 26 letters; give at most 26, or use choice_scoring 'text'."
        )
    found = [_whole_tokens(letter, encode) for letter in ascii_uppercase[: len(choices)]]
    if not all(found):
        raise ChoicesAmbiguousError("The tokenizer has no single token for some letter; use choice_scoring 'text'.")
    return found


def _whole_tokens(text: str, encode: Callable[[str], list[int]]) -> frozenset[int]:
    return frozenset(ids[0] for ids in _encodings(text, encode) if len(ids) == 1)


def _first_tokens(text: str, encode: Callable[[str], list[int]]) -> frozenset[int]:
    # A tokenizer without a merged " x" starts with a bare space, which all choices would share.
    spaces = {ids[0] for ids in (encode(" "), encode("\n")) if ids}
    return frozenset(ids[0] for ids in _encodings(text, encode) if ids[0] not in spaces)


def _encodings(text: str, encode: Callable[[str], list[int]]) -> list[list[int]]:
    """Tokenize a text in every form a model may write it: bare, after a space, and at the start of a line.

    SentencePiece prefixes a text with a space, so its bare form appears only after a line break; for other
    tokenizers the two are the same.
    """
    line_break, line = encode("\n"), encode(f"\n{text}")
    at_line_start = line[len(line_break) :] if line[: len(line_break)] == line_break else []
    return [ids for ids in (encode(text), encode(f" {text}"), at_line_start) if ids]


def chat_messages(
    text: str,
    system_prompt: str | None,
    *,
    turns: Sequence[tuple[str, str]] = (),
    shown: Sequence[MediumKind] = ("video",),
    placeholders: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """Build OpenAI-style messages with the videos and images before the first question.

    That order lets questions that show the same share its prefill.

    Args:
        text: The question with its choices.
        system_prompt: None leaves it to the chat template.
        turns: Earlier questions and their answers.
        shown: What is shown, in order.
        placeholders: Texts that represent these, for a template that takes plain text; None uses content parts, in
            the system message too.
    """
    first, *others = (*chain.from_iterable(turns), text)
    roles = cycle(("user", "assistant"))
    if placeholders is not None:
        contents: list[Any] = ["\n".join((*placeholders, first)), *others]
        system: Any = system_prompt
    else:
        contents = [[{"type": "text", "text": each}] for each in (first, *others)]
        contents[0] = [*({"type": kind} for kind in shown), *contents[0]]
        system = [{"type": "text", "text": system_prompt}]
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    return messages if system_prompt is None else [{"role": "system", "content": system}, *messages]
