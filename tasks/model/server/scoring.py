"""Reading a server's answer: from the logprobs that it shows to probabilities over the choices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from infra.errors import InferenceError
from tasks.model.choices import choice_probabilities

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.model.choices import ChoiceTokens
    from tasks.model.server.answers import Completion

# The most that OpenAI's API shows, and vLLM by its defaults.
_SHOWN = 20
# Of the choices' probability: what may lie outside of the tokens shown without being a failure.
_NEGLIGIBLE = 1e-3
_ID = "token_id:"


def ask_for_logprobs(tokens: ChoiceTokens, *, exact: bool) -> dict[str, Any]:
    """Say in a request which logprobs are wanted.

    Args:
        tokens: Token ids per choice.
        exact: Whether the server shows any tokens by their ids, as vLLM does; any other shows its likeliest.
    """
    if not exact:
        return {"logprobs": True, "top_logprobs": _SHOWN}
    ids = sorted(frozenset().union(*tokens))
    return {"logprobs": True, "logprob_token_ids": ids, "return_tokens_as_token_ids": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a server shows of its first token.

    Attributes:
        logprobs: Natural logarithms by token id; tokens of one text add up.
        least: The least of all that it shows; no token that it does not show is likelier.
    """

    logprobs: dict[int, float]
    least: float


def read_logprobs(completion: Completion, encode: Callable[[str], list[int]]) -> Shown:
    """Read what a server shows of its first token.

    Args:
        completion: The server's answer.
        encode: The tokenizer, without special tokens; finds the ids of tokens that are shown as text.

    Raises:
        InferenceError: The server shows nothing.
    """
    logprobs = completion.choices[0].logprobs if completion.choices else None
    entries = logprobs.content[0].top_logprobs if logprobs and logprobs.content else []
    if not entries:
        raise InferenceError("The server answers without logprobs, of which one-token answers are made.")
    found: dict[int, float] = {}
    for entry in entries:
        token = _id_of(entry.token, encode)
        if token is not None:
            found[token] = float(np.logaddexp(found.get(token, -np.inf), entry.logprob))
    return Shown(logprobs=found, least=min(entry.logprob for entry in entries))


def score(tokens: ChoiceTokens, shown: Shown) -> tuple[float, ...]:
    """Make probabilities over the choices of what the server shows.

    Raises:
        InferenceError: Too much of them may lie in tokens that it does not show.
    """
    wanted = frozenset().union(*tokens)
    hidden = wanted - shown.logprobs.keys()
    known = sum(math.exp(shown.logprobs[token]) for token in wanted - hidden)
    if len(hidden) * math.exp(shown.least) > _NEGLIGIBLE * known:
        raise InferenceError(
            "The server shows its likeliest tokens alone, and the choices' own are not all among them; "
            "ask a vLLM server, which shows those, or use choice_scoring 'letter'."
        )
    return choice_probabilities(tokens, shown.logprobs)


def _id_of(token: str, encode: Callable[[str], list[int]]) -> int | None:
    if token.startswith(_ID):
        return int(token.removeprefix(_ID))
    ids = encode(token)
    return ids[0] if len(ids) == 1 else None
