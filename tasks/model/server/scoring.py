"""Score a server's answer: from its logprobs to probabilities over the choices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from reelabel_engine.errors import InferenceError
from reelabel_engine.prompts import ChoiceScores, ChoiceTokens, score_choices

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.model.server.answers import Completion

# The maximum of OpenAI's API, and of vLLM by default.
_TOP_LOGPROBS = 20
# Share of the choices' probability that tokens without a logprob may have.
_NEGLIGIBLE = 1e-3
# Of a probability of 1, with what rounding may add.
_HIGHEST = 0.01
_ID = "token_id:"
_MOST_DIGITS = 18  # of an id; longer texts are texts


def logprobs_request(tokens: ChoiceTokens, *, exact: bool) -> dict[str, Any]:
    """Build the request fields that ask for logprobs of choices' tokens.

    If the server is not `exact`, it returns the top ones, and not those of requested token ids, as vLLM does.
    """
    if not exact:
        return {"logprobs": True, "top_logprobs": _TOP_LOGPROBS}
    ids = sorted(frozenset().union(*tokens))
    return {"logprobs": True, "logprob_token_ids": ids, "return_tokens_as_token_ids": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnedLogprobs:
    """Logprobs that a server returned for the first token."""

    logprobs: dict[int, float]  # natural logarithms by token id; probabilities of tokens with the same text are summed
    least: float  # the lowest logprob returned; no token that is missing has a higher one


def read_logprobs(completion: Completion, encode: Callable[[str], list[int]]) -> ReturnedLogprobs:
    """Read the logprobs of the first token; those that are returned as text are encoded to ids.

    Raises:
        InferenceError: The response contains no logprobs, or numbers that are none.
    """
    entries = completion.choices[0].top_logprobs if completion.choices else None
    if not entries:
        raise InferenceError("The server returned no logprobs, which one-token answers need.")
    if not all(entry.logprob <= _HIGHEST for entry in entries):  # nor NaN
        raise InferenceError("The server returned logprobs that are no logarithms of probabilities: NaN, or above 0.")
    found: dict[int, float] = {}
    for entry in entries:
        token = _id_of(entry.token, encode)
        if token is not None:
            found[token] = float(np.logaddexp(found.get(token, -np.inf), entry.logprob))
    return ReturnedLogprobs(logprobs=found, least=min(entry.logprob for entry in entries))


def score(tokens: ChoiceTokens, shown: ReturnedLogprobs) -> ChoiceScores:
    """Convert logprobs to probabilities over the choices.

    Raises:
        InferenceError: Tokens of the choices are missing, and may have too much of the probability; or none has any.
    """
    wanted = frozenset().union(*tokens)
    missing = wanted - shown.logprobs.keys()
    known = sum(math.exp(shown.logprobs[token]) for token in wanted - missing)
    if len(missing) * math.exp(shown.least) > _NEGLIGIBLE * known:
        raise InferenceError(
            "The server returns only its top logprobs, and some choices are not among them; "
            "use a vLLM server, which returns logprobs of any token, or choice_scoring 'letter'."
        )
    if not known:
        raise InferenceError("The server's model assigns no probability to any choice.")
    return score_choices(tokens, shown.logprobs)


def _id_of(token: str, encode: Callable[[str], list[int]]) -> int | None:
    number = token.removeprefix(_ID)
    if number != token and number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS:
        return int(number)
    ids = encode(token)
    return ids[0] if len(ids) == 1 else None
