"""From choices to tokens, and from token logprobs back to probabilities over the choices."""

from __future__ import annotations

import math
from string import ascii_uppercase
from typing import TYPE_CHECKING, Literal

from infra.errors import ChoicesAmbiguousError, InferenceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ChoiceTokens = tuple[frozenset[int], ...]


def choice_tokens(
    choices: Sequence[str],
    *,
    scoring: Literal["letter", "text"],
    encode: Callable[[str], list[int]],
) -> ChoiceTokens:
    """Find the tokens that stand for each choice, with and without a leading space.

    Args:
        choices: The answers, in order.
        scoring: `letter` answers with A, B, C...; `text` with the first token of the choice itself.
        encode: The tokenizer, without special tokens.

    Returns:
        One non-empty set of token ids per choice; the sets are disjoint.

    Raises:
        ChoicesAmbiguousError: There are more choices than letters, or two choices share a token.
    """
    found = _letters(choices, encode) if scoring == "letter" else [_first_tokens(text, encode) for text in choices]
    for index, tokens in enumerate(found):
        if not tokens:
            raise ChoicesAmbiguousError(f"Choice {choices[index]!r} begins with no token of its own; reword it.")
        for other in range(index):
            if tokens & found[other]:
                raise ChoicesAmbiguousError(
                    f"Choices {choices[other]!r} and {choices[index]!r} begin with the same token, so one token "
                    f"cannot tell them apart; use choice_scoring 'letter' or reword them.",
                )
    return tuple(found)


def choice_probabilities(tokens: ChoiceTokens, logprobs: Mapping[int, float]) -> tuple[float, ...]:
    """Add up each choice's tokens and normalise over the choices.

    Args:
        tokens: Token ids per choice.
        logprobs: Natural logarithms by token id; an absent token has probability 0.

    Returns:
        One probability per choice, summing to one.

    Raises:
        InferenceError: The logprobs are not numbers, or hold none of the tokens.
    """
    masses = [sum(math.exp(logprobs[token]) for token in group if token in logprobs) for group in tokens]
    total = sum(masses)
    if not (math.isfinite(total) and total > 0):
        raise InferenceError("The model gives no choice a probability (NaN or nothing); try dtype float32.")
    return tuple(mass / total for mass in masses)


def _letters(choices: Sequence[str], encode: Callable[[str], list[int]]) -> list[frozenset[int]]:
    if len(choices) > len(ascii_uppercase):
        raise ChoicesAmbiguousError(
            f"{len(choices)} choices have no letters A to Z each; give at most 26, or use choice_scoring 'text'.",
        )
    found = [_whole_tokens(letter, encode) for letter in ascii_uppercase[: len(choices)]]
    if not all(found):
        raise ChoicesAmbiguousError("The tokenizer has no single token for a letter; use choice_scoring 'text'.")
    return found


def _whole_tokens(text: str, encode: Callable[[str], list[int]]) -> frozenset[int]:
    return frozenset(ids[0] for ids in _ways(text, encode) if len(ids) == 1)


def _first_tokens(text: str, encode: Callable[[str], list[int]]) -> frozenset[int]:
    # A tokenizer without a merged " x" starts with the space alone, which every choice would share.
    spaces = {ids[0] for ids in (encode(" "), encode("\n")) if ids}
    return frozenset(ids[0] for ids in _ways(text, encode) if ids[0] not in spaces)


def _ways(text: str, encode: Callable[[str], list[int]]) -> list[list[int]]:
    """Tokenize a text as a model may write it: bare, behind a space, and at the start of a line.

    SentencePiece puts a space before whatever opens a text, so that there the bare form shows behind a
    line break alone; for other tokenizers the two are one.
    """
    line_break, line = encode("\n"), encode(f"\n{text}")
    opening = line[len(line_break) :] if line[: len(line_break)] == line_break else []
    return [ids for ids in (encode(text), encode(f" {text}"), opening) if ids]
