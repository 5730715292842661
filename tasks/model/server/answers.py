"""The responses of a server, and the probabilities of choices by them.

Fields that are not used are ignored, since servers differ in them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from reelabel_engine.errors import InferenceError
from reelabel_engine.prompts import ChoiceScores, ChoiceTokens, score_choices
from reelabel_engine.protocol import MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_HALF = re.compile("[\ud800-\udfff]")


def _read_or_none(value: object, read: ValidatorFunctionWrapHandler) -> object:
    try:
        return read(value)
    except ValidationError:
        return None


# An optional field; a value that cannot be read counts as missing.
Extra = Annotated[T | None, WrapValidator(_read_or_none)]
Count = Extra[Annotated[int, Field(ge=0, le=MAX_TOKENS)]]


# What is written to the database, which stores no NUL.
Name = Annotated[str, Field(min_length=1, max_length=1000, pattern="^[^\0]*$")]


class ServedModel(BaseModel):
    """A model in the server's list."""

    id: Name  # in requests
    root: Extra[str] = None  # folder or hub name from which vLLM loaded it; None if the server does not say
    created: Extra[int] = None  # when the model was made, in Unix time; vLLM says the time of the request
    max_model_len: Count = None  # maximum tokens of a prompt and its answer; None if the server does not say


class Models(BaseModel):
    data: list[ServedModel]


class TopLogprob(BaseModel):
    """A candidate token and its logprob; JSON has no minus infinity, so null stands for it."""

    token: str
    logprob: Annotated[float, BeforeValidator(lambda value: -math.inf if value is None else value)]


def _content_field(*path: str) -> Any:  # noqa: ANN401 - of any field
    """Return a field that is read from `message`, or from `delta` in an event of a stream."""
    return Field(default=None, validation_alias=AliasChoices(*(AliasPath(at, *path) for at in ("message", "delta"))))


# A stream may split a character outside the basic plane: its halves have no encoding, and are replaced.
Text = Annotated[str, AfterValidator(lambda text: _HALF.sub("\N{REPLACEMENT CHARACTER}", text))]


class Choice(BaseModel):
    """One completion of a request, of which only one is asked for, and the candidates for its first token.

    Speech is 16-bit PCM in base64, with what it says.
    """

    content: Text | None = _content_field("content")
    speech: str | None = _content_field("audio", "data")
    transcript: Text | None = _content_field("audio", "transcript")
    finish_reason: str | None = None
    top_logprobs: list[TopLogprob] | None = Field(
        default=None, validation_alias=AliasPath("logprobs", "content", 0, "top_logprobs")
    )


class Usage(BaseModel):
    """Token counts of a request; None if the server does not say."""

    prompt_tokens: Count = None
    completion_tokens: Count = None
    cached_tokens: Count = Field(default=None, validation_alias=AliasPath("prompt_tokens_details", "cached_tokens"))


class Completion(BaseModel):
    """Response of `/chat/completions`."""

    choices: list[Choice]
    usage: Extra[Usage] = None
    model: Extra[str] = None  # which answered, under a name that may be longer than that in the request


class CompletionChunk(Completion):
    """Event of a streamed `/chat/completions`; the last one has the usage, and no choice."""

    choices: list[Choice] = []


class Tokens(BaseModel):
    tokens: list[int]


class Detokenized(BaseModel):
    prompt: str


class Version(BaseModel):
    version: Name


# The maximum of OpenAI's API, and of vLLM by default.
_TOP_LOGPROBS = 20
# Share of the choices' probability that tokens without a logprob may have.
_NEGLIGIBLE = 1e-3
# Of a probability of 1, with what rounding may add.
_HIGHEST = 0.01
_ID = "token_id:"
_MAX_DIGITS = 18  # of an id; longer texts are texts


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
    """Read the logprobs of the first token, of tokens by id or by text; an InferenceError says that they are none."""
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
    needed = frozenset().union(*tokens)
    missing = needed - shown.logprobs.keys()
    known = sum(math.exp(shown.logprobs[token]) for token in needed - missing)
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
    if number != token and number.isascii() and number.isdecimal() and len(number) <= _MAX_DIGITS:
        return int(number)
    ids = encode(token)
    return ids[0] if len(ids) == 1 else None
