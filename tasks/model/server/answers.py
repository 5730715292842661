"""What is needed of a server's answers; all else in them is ignored, for servers differ in it."""

from __future__ import annotations

from pydantic import BaseModel


class ServedModel(BaseModel):
    """A model, as the server tells of it.

    Attributes:
        id: The name by which it is asked.
        max_model_len: Most tokens of a prompt and its answer; None where the server does not tell.
    """

    id: str
    max_model_len: int | None = None


class Models(BaseModel):
    """The answer of `/models`."""

    data: list[ServedModel]


class TopLogprob(BaseModel):
    """A token that might have come, and the natural logarithm of its probability."""

    token: str
    logprob: float


class TokenLogprobs(BaseModel):
    """What might have come in one token's place."""

    top_logprobs: list[TopLogprob] | None = None


class Logprobs(BaseModel):
    """The tokens of an answer."""

    content: list[TokenLogprobs] | None = None


class Choice(BaseModel):
    """One of the answers to a question; there is but one."""

    logprobs: Logprobs | None = None


class PromptTokensDetails(BaseModel):
    """How many of a prompt's tokens were found in the cache."""

    cached_tokens: int | None = None


class Usage(BaseModel):
    """What a question cost."""

    prompt_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = None


class Completion(BaseModel):
    """The answer of `/chat/completions`."""

    choices: list[Choice]
    usage: Usage | None = None


class Tokens(BaseModel):
    """The answer of vLLM's `/tokenize`."""

    tokens: list[int]


class Version(BaseModel):
    """The answer of vLLM's `/version`."""

    version: str
