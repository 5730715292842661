"""The parts of a server's responses that are used; everything else is ignored, since servers differ in it."""

from __future__ import annotations

from pydantic import BaseModel


class ServedModel(BaseModel):
    """A model in the server's list.

    Attributes:
        id: The model's name in requests.
        root: Folder or hub name from which vLLM loaded it; None if the server does not say.
        max_model_len: Maximum tokens of a prompt and its answer; None if the server does not say.
    """

    id: str
    root: str | None = None
    max_model_len: int | None = None


class Models(BaseModel):
    """Response of `/models`."""

    data: list[ServedModel]


class TopLogprob(BaseModel):
    """A candidate token and its logprob."""

    token: str
    logprob: float


class TokenLogprobs(BaseModel):
    """The candidates at one position."""

    top_logprobs: list[TopLogprob] | None = None


class Logprobs(BaseModel):
    """Logprobs of an answer's tokens."""

    content: list[TokenLogprobs] | None = None


class Choice(BaseModel):
    """One completion of a request; only one is asked for."""

    logprobs: Logprobs | None = None


class PromptTokensDetails(BaseModel):
    """How many of the prompt's tokens were cached."""

    cached_tokens: int | None = None


class Usage(BaseModel):
    """Token counts of a request."""

    prompt_tokens: int
    completion_tokens: int | None = None
    prompt_tokens_details: PromptTokensDetails | None = None


class Completion(BaseModel):
    """Response of `/chat/completions`."""

    choices: list[Choice]
    usage: Usage | None = None


class SpokenDelta(BaseModel):
    """The next piece of an answer in speech: 16-bit PCM in base64, and what it says."""

    data: str | None = None
    transcript: str | None = None


class AnswerDelta(BaseModel):
    """The next piece of an answer."""

    content: str | None = None
    audio: SpokenDelta | None = None


class ChunkChoice(BaseModel):
    """What one event of a stream adds to a completion."""

    delta: AnswerDelta
    finish_reason: str | None = None


class CompletionChunk(BaseModel):
    """Event of a streamed `/chat/completions`; the last one has the usage, and no choice."""

    choices: list[ChunkChoice] = []
    usage: Usage | None = None


class Tokens(BaseModel):
    """Response of vLLM's `/tokenize`."""

    tokens: list[int]


class Version(BaseModel):
    """Response of vLLM's `/version`."""

    version: str
