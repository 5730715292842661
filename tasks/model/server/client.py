"""Talking to an OpenAI-compatible server, by OpenAI's own client; what goes wrong is said in our words."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from infra.errors import (
    ConfigurationError,
    InferenceError,
    JobError,
    PromptTooLongError,
    ReelabelError,
    ServerUnavailableError,
)

if TYPE_CHECKING:
    import openai
    from openai.types.chat import ChatCompletion

    from infra.server_settings import ServerSettings

_REFUSED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
# What the client itself tries again, besides server errors and lost connections.
_LATER = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS}
_TOO_LONG = ("context length", "max_model_len", "context_length_exceeded")
_NO_KEY = "none"  # the client insists on one


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model, as the server tells of it.

    Attributes:
        name: By which it is asked.
        max_model_len: Most tokens of a prompt and its answer; 0 where the server does not tell.
    """

    name: str
    max_model_len: int


class ServerClient:
    """One server; safe to use from many threads.

    Lost connections, time-outs, 408, 409, 429 and server errors are tried again, each time after a longer
    pause, or after the one that the server asks for.
    """

    def __init__(self, settings: ServerSettings) -> None:
        """Prepare the client; nothing is sent yet.

        Raises:
            ConfigurationError: No server is set, or no client is installed.
        """
        if settings.url is None:
            raise ConfigurationError("No server is set; set server.url (REELABEL_SERVER_URL) to its API.")
        try:
            import openai  # noqa: PLC0415 - an extra, which takes most of a second to import
        except ImportError:
            raise ConfigurationError("OpenAI's client is not installed; install 'reelabel[server]'.") from None
        self.url = settings.url.rstrip("/")
        self._model = settings.model
        self._max_attempts = settings.max_attempts
        self._openai = openai
        self._client = openai.OpenAI(
            base_url=self.url,
            api_key=settings.api_key.get_secret_value() if settings.api_key else _NO_KEY,
            timeout=openai.Timeout(settings.timeout_s, connect=settings.connect_timeout_s),
            max_retries=settings.max_attempts - 1,
        )

    def find_model(self) -> ServedModel:
        """Find the model to ask: the one that is set, or the only one.

        Raises:
            ConfigurationError: There is none, or there are several; or the server is not there, or refuses.
        """
        try:
            found = list(self._client.models.list())
        except self._openai.OpenAIError as error:
            raise self._explain_absence(error) from None
        names = [model.id for model in found]
        if self._model is None and len(names) != 1:
            raise ConfigurationError(
                f"The server at {self.url} serves {len(names)} models ({', '.join(names)}); set server.model to one."
            )
        if self._model is not None and self._model not in names:
            raise ConfigurationError(
                f"The server at {self.url} serves no {self._model}; set server.model to one of: {', '.join(names)}."
            )
        chosen = next(model for model in found if self._model in {None, model.id})
        return ServedModel(name=chosen.id, max_model_len=int(getattr(chosen, "max_model_len", None) or 0))

    def complete(self, body: dict[str, Any]) -> ChatCompletion:
        """Ask one question.

        Args:
            body: Of the request; may hold what the server knows beyond OpenAI's API.

        Raises:
            JobError: The server refuses the question, or fails on it but not on others.
            ServerUnavailableError: It does not answer, after every attempt.
            ConfigurationError: It refuses the key, or serves the model no more.
        """
        try:
            return self._client.post("/chat/completions", body=body, cast_to=_completion())
        except self._openai.InternalServerError as error:
            if error.status_code != HTTPStatus.INTERNAL_SERVER_ERROR or not self._is_there():
                raise self._explain(error) from None
            raise InferenceError(
                f"The server at {self.url} failed {self._max_attempts} times on this question and is well "
                f"otherwise: {_message(error)}."
            ) from None
        except self._openai.OpenAIError as error:
            raise self._explain(error) from None

    def tokenize(self, text: str) -> list[int]:
        """Tokenize a text by vLLM's `/tokenize`, without special tokens.

        Raises:
            JobError: The server refuses it, or does not know how.
            ServerUnavailableError: It does not answer, after every attempt.
            ConfigurationError: It refuses the key, or has no such service.
        """
        body = {"model": self._model, "prompt": text, "add_special_tokens": False}
        try:
            answer: Any = self._client.post(f"{self._root}/tokenize", body=body, cast_to=object)
        except self._openai.OpenAIError as error:
            raise self._explain(error) from None
        return list(answer["tokens"])

    def find_version(self) -> str | None:
        """Ask for vLLM's version; None for another server."""
        with contextlib.suppress(self._openai.OpenAIError, TypeError, KeyError):
            answer: Any = self._client.get(f"{self._root}/version", cast_to=object)
            return str(answer["version"])
        return None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    @property
    def _root(self) -> str:
        return self.url.removesuffix("/v1")

    def _is_there(self) -> bool:
        try:
            self._client.models.list()
        except self._openai.OpenAIError:
            return False
        return True

    def _explain(self, error: openai.OpenAIError) -> ReelabelError:
        """Say what an error means for the question that met it."""
        if not isinstance(error, self._openai.APIStatusError):
            return ServerUnavailableError(f"The server at {self.url} does not answer: {_message(error)}.")
        status = error.status_code
        if status in _REFUSED:
            return ConfigurationError(
                f"The server at {self.url} refuses the key (HTTP {status}); "
                "set server.api_key (REELABEL_SERVER_API_KEY)."
            )
        if status == HTTPStatus.NOT_FOUND:
            return ConfigurationError(
                f"The server at {self.url} says: {_message(error)}; check server.url and server.model."
            )
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _LATER:
            return ServerUnavailableError(
                f"The server at {self.url} is not able to answer (HTTP {status}): {_message(error)}."
            )
        return _refusal(error)

    def _explain_absence(self, error: openai.OpenAIError) -> ReelabelError:
        """Say what an error means before anything was asked."""
        explained = self._explain(error)
        if not isinstance(explained, ServerUnavailableError | JobError):
            return explained
        return ConfigurationError(f"{explained.message} Start it, or set server.url (REELABEL_SERVER_URL).")


def _completion() -> type[ChatCompletion]:
    from openai.types.chat import ChatCompletion  # noqa: PLC0415 - loaded by openai already

    return ChatCompletion


def _refusal(error: openai.APIStatusError) -> JobError:
    message = _message(error)
    if any(mark in f"{message} {error.code}" for mark in _TOO_LONG):
        return PromptTooLongError(
            f"The prompt with its video is too long for the server: {message}; "
            "shorten the prompt, or lower num_frames or max_pixels."
        )
    return InferenceError(f"The server refuses the question (HTTP {error.status_code}): {message}.")


def _message(error: openai.OpenAIError) -> str:
    """Give the server's own words, on one line, without their full stop."""
    body = getattr(error, "body", None)
    said = body.get("message") if isinstance(body, dict) else None
    cause = error.__cause__ if said is None and error.__cause__ else error
    return " ".join(str(said or cause).split()).rstrip(".")[:500]
