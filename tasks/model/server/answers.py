"""The parts of a server's responses that are used; everything else is ignored, since servers differ in it."""

from __future__ import annotations

import math
from typing import Annotated, Any, TypeVar

from pydantic import (
    AliasPath,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

T = TypeVar("T")

_MOST_TOKENS = 10_000_000  # beyond any model's context, and sums of them fit into their columns


def _read_or_none(value: object, read: ValidatorFunctionWrapHandler) -> object:
    try:
        return read(value)
    except ValidationError:
        return None


# What an answer is as good without: whatever cannot be read is unknown.
Extra = Annotated[T | None, WrapValidator(_read_or_none)]
Count = Extra[Annotated[int, Field(ge=0, le=_MOST_TOKENS)]]


class ServedModel(BaseModel):
    """A model in the server's list."""

    id: str  # the model's name in requests
    root: Extra[str] = None  # folder or hub name from which vLLM loaded it; None if the server does not say
    created: Extra[int] = None  # when the model was made, in Unix time; vLLM says the time of the request
    max_model_len: Count = None  # maximum tokens of a prompt and its answer; None if the server does not say


class Models(BaseModel):
    data: list[ServedModel]


class TopLogprob(BaseModel):
    """A candidate token and its logprob; JSON has no minus infinity, so null stands for it."""

    token: str
    logprob: Annotated[float, BeforeValidator(lambda value: -math.inf if value is None else value)]


class Choice(BaseModel):
    """One completion of a request, of which only one is asked for, and the candidates for its first token."""

    content: str | None = Field(default=None, validation_alias=AliasPath("message", "content"))
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


class ChunkChoice(BaseModel):
    """What one event of a stream adds to a completion; speech is 16-bit PCM in base64, with what it says."""

    delta: dict[str, Any]
    content: str | None = Field(default=None, validation_alias=AliasPath("delta", "content"))
    speech: str | None = Field(default=None, validation_alias=AliasPath("delta", "audio", "data"))
    transcript: str | None = Field(default=None, validation_alias=AliasPath("delta", "audio", "transcript"))
    finish_reason: str | None = None


class CompletionChunk(BaseModel):
    """Event of a streamed `/chat/completions`; the last one has the usage, and no choice."""

    choices: list[ChunkChoice] = []
    usage: Extra[Usage] = None


class Tokens(BaseModel):
    tokens: list[int]


class Detokenized(BaseModel):
    prompt: str


class Version(BaseModel):
    version: str
