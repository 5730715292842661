"""Talking to an OpenAI-compatible server, by OpenAI's own client; what goes wrong is said in our words."""

from __future__ import annotations

import contextlib
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from infra.errors import (
    ConfigurationError,
    InferenceError,
    JobError,
    PromptTooLongError,
    ReelabelError,
    ServerUnavailableError,
)
from tasks.model.server.answers import Completion, Models, ServedModel, Tokens, Version

if TYPE_CHECKING:
    import openai

    from infra.server_settings import ServerSettings

M = TypeVar("M", bound=BaseModel)

_REFUSED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
# What the client itself tries again, besides server errors and lost connections.
_LATER = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS}
_TOO_LONG = ("context length", "max_model_len", "context_length_exceeded")
_NO_KEY = "none"  # the client insists on one


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
        self._answered: dict[str, Any] | None = None
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
            ConfigurationError: There is none, or there are several; or the server is not there, or refuses,
                or is none of this kind.
        """
        try:
            found = self._list_models(self._client)
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
        return next(model for model in found if self._model in {None, model.id})

    def complete(self, body: dict[str, Any]) -> Completion:
        """Ask one question.

        Args:
            body: Of the request; may hold what the server knows beyond OpenAI's API.

        Raises:
            JobError: The server refuses the question, or fails on it but not on others.
            ServerUnavailableError: It does not answer, after every attempt.
            ConfigurationError: It refuses the key, serves the model no more, or answers otherwise than it should.
        """
        try:
            answer = self._client.post("/chat/completions", body=body, cast_to=str)
        except self._openai.InternalServerError as error:
            if error.status_code != HTTPStatus.INTERNAL_SERVER_ERROR or not self._is_well():
                raise self._explain(error) from None
            raise InferenceError(
                f"The server at {self.url} failed {self._max_attempts} times on this question and is well "
                f"otherwise: {_message(error)}."
            ) from None
        except self._openai.OpenAIError as error:
            raise self._explain(error) from None
        completion = self._read(Completion, answer)
        self._answered = self._answered or body  # the first one, which is about a grey video, and small
        return completion

    def tokenize(self, text: str) -> list[int]:
        """Tokenize a text by vLLM's `/tokenize`, without special tokens.

        Raises:
            JobError: The server refuses it, or does not know how.
            ServerUnavailableError: It does not answer, after every attempt.
            ConfigurationError: It refuses the key, or has no such service, or another.
        """
        body = {"model": self._model, "prompt": text, "add_special_tokens": False}
        try:
            answer = self._client.post(f"{self._root}/tokenize", body=body, cast_to=str)
        except self._openai.OpenAIError as error:
            raise self._explain(error) from None
        return self._read(Tokens, answer).tokens

    def find_version(self) -> str | None:
        """Ask for vLLM's version; None for another server."""
        with contextlib.suppress(self._openai.OpenAIError, ConfigurationError):
            return self._read(Version, self._client.get(f"{self._root}/version", cast_to=str)).version
        return None

    def reach(self) -> None:
        """See that it answers what it answered before.

        Raises:
            ServerUnavailableError: It does not answer.
            ConfigurationError: It refuses the key, or serves the model no more.
        """
        try:
            self._ask_what_is_known(self._client.with_options(max_retries=0))
        except self._openai.OpenAIError as error:
            explained = self._explain(error)
            if not isinstance(explained, JobError):  # which is an answer
                raise explained from None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    @property
    def _root(self) -> str:
        return self.url.removesuffix("/v1")

    def _is_well(self) -> bool:
        """Whether it answers what it answered before."""
        try:
            self._ask_what_is_known(self._client)
        except (self._openai.OpenAIError, ConfigurationError):
            return False
        return True

    def _ask_what_is_known(self, client: openai.OpenAI) -> None:
        """Ask what it answered before: its models may be listed by what stands before a dead engine."""
        self._list_models(client)
        if self._answered is not None:
            client.post("/chat/completions", body=self._answered, cast_to=str)

    def _list_models(self, client: openai.OpenAI) -> list[ServedModel]:
        return self._read(Models, client.get("/models", cast_to=str)).data

    def _read(self, kind: type[M], answer: str) -> M:
        """Read an answer; anything may stand at a URL, and say that all is well."""
        try:
            return kind.model_validate_json(answer)
        except ValidationError:
            raise ConfigurationError(
                f"The server at {self.url} answers, but not as an OpenAI API does ({_one_line(answer)[:100]!r}); "
                "does server.url (REELABEL_SERVER_URL) end in /v1?"
            ) from None

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
    return _one_line(str(said or cause)).rstrip(".")[:500]


def _one_line(text: str) -> str:
    return " ".join(text.split())
