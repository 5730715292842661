"""A client for OpenAI-compatible servers: OpenAI's own, with errors translated to ours."""

from __future__ import annotations

import contextlib
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from infra.errors import ServerFailedError, ServerUnavailableError
from infra.program import APPLICATION
from reelabel.errors import ConfigurationError, JobError, ReelabelError
from reelabel.optional import install_command
from reelabel.text import escape_controls, quoted, read_error
from reelabel_engine.errors import InferenceError, PromptTooLongError, SchemaRefusedError
from tasks.model.server.answers import Completion, CompletionChunk, Detokenized, Models, ServedModel, Tokens, Version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import openai

    from infra.settings import ServerSettings

M = TypeVar("M", bound=BaseModel)

_UNAUTHORIZED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
# Statuses that the client retries itself, besides server errors and lost connections.
_RETRIED = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS}
# Statuses of a request that is not valid.
_INVALID = {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}
_TOO_LONG = ("context length", "max_model_len", "context_length_exceeded")
_CONNECT_S = 10.0
_NO_KEY = "none"  # the client requires one
_RETRIES_SO_FAR = "x-stainless-retry-count"  # the client's own header
_TAG = re.compile(r"<[^>]*>")
_READ_CHARS = 2000  # of an invalid response, for a message


class ServerClient:
    """One server; thread-safe.

    Lost connections, timeouts, 408, 409, 429 and server errors are retried with exponential backoff, or after
    the delay that the server asks for.

    Raises:
        JobError: The server rejects the question, or its response is no answer, though it answers others.
        ServerUnavailableError: The server did not respond after every attempt, or no longer answers any question.
        ConfigurationError: The server cannot be reached at first, rejects the API key, does not serve the model, or has
            no such API.
    """

    def __init__(self, settings: ServerSettings, *, template_args: Mapping[str, Any] | None = None) -> None:
        if settings.url is None:
            raise ConfigurationError("No server is configured; set server.url (REELABEL_SERVER_URL) to its API.")
        try:
            import httpx2  # noqa: PLC0415 - comes with it
            import openai  # noqa: PLC0415 - an extra, which takes most of a second to import

            from tasks.model.server import bounded_client  # noqa: PLC0415 - imports them, too
        except ImportError:
            raise ConfigurationError(
                f"The OpenAI client is not installed: `{install_command('server', of=APPLICATION)}`."
            ) from None
        self.url = settings.url.rstrip("/")
        self._model = settings.model
        self._template = {"chat_template_kwargs": dict(template_args)} if template_args else {}
        self.known_good: dict[str, Any] | None = None  # the body of a question that the server has answered
        self._has_answered = False
        self._answering_model: str | None = None
        self._openai, self._too_large = openai, bounded_client.ResponseTooLargeError
        try:
            self._connections = bounded_client.BoundedClient(settings.ca_file)
        except OSError as error:
            raise ConfigurationError(
                f"server.ca_file {settings.ca_file} cannot be used ({read_error(error)}); name a file of certificates."
            ) from None
        self._timeouts = {
            httpx2.ConnectTimeout: f"no connection within {_CONNECT_S:g} s",
            httpx2.TimeoutException: f"server.timeout_s is {settings.timeout_s:g}",
        }
        try:
            self._client = openai.OpenAI(
                base_url=self.url,
                api_key=settings.api_key.get_secret_value() if settings.api_key else _NO_KEY,
                timeout=openai.Timeout(settings.timeout_s, connect=_CONNECT_S),
                max_retries=settings.max_attempts - 1,
                http_client=self._connections,
            )
        except httpx2.InvalidURL as error:
            raise ConfigurationError(f"server.url {self.url} is not an address ({error}); correct it.") from None

    def find_model(self) -> ServedModel:
        """Find the model to ask: the configured one, or the only one; it is an error if there are several."""
        try:
            found = self._list_models(self._client)
        except self._openai.OpenAIError as error:
            raise self._translate_first(error) from None
        names = [model.id for model in found]
        if self._model is None and len(names) != 1:
            raise ConfigurationError(
                f"The server at {self.url} serves {len(names)} models ({', '.join(names)}); set server.model to one."
            )
        if self._model is not None and self._model not in names:
            raise ConfigurationError(
                f"The server at {self.url} does not serve {self._model}; set server.model to one of: "
                f"{', '.join(names)}."
            )
        return next(model for model in found if self._model in {None, model.id})

    def current_model(self) -> ServedModel:
        """Return the current entry of the model that `find_model` has found."""
        try:
            found = self._list_models(self._client)
        except self._openai.OpenAIError as error:
            raise self._translate(error) from None
        if model := next((model for model in found if self._model in {None, model.id}), None):
            return model
        raise ConfigurationError(f"The server at {self.url} no longer serves the model; check what it serves.")

    def complete(self, body: dict[str, Any], *, attempts: int | None = None) -> Completion:
        """Ask one question; the body may contain the server's extensions of OpenAI's API."""
        completion = self._ask("/chat/completions", body | self._template, Completion, attempts=attempts)
        self._has_answered = True
        self._answering_model = self._answering_model or completion.model
        if completion.model and completion.model != self._answering_model:
            raise ServerFailedError(
                f"The server at {self.url} answered this question with the model {quoted(completion.model)}, in place "
                f"of {quoted(self._answering_model)}; set server.url to a server of one model."
            )
        return completion

    def stream(self, body: dict[str, Any]) -> Iterator[CompletionChunk]:
        """Ask one question, and yield the chunks of its answer; closing the iterator cancels it."""
        body = body | self._template | {"stream": True, "stream_options": {"include_usage": True}}
        kind: Any = self._openai.Stream[object]
        try:
            with self._client.post(
                "/chat/completions", body=body, cast_to=object, stream=True, stream_cls=kind
            ) as chunks:
                for chunk in chunks:
                    read = CompletionChunk.model_validate(chunk)
                    self._has_answered = True
                    yield read
        except self._openai.OpenAIError as error:
            raise self._translate_for_question(error) from None
        except ValueError as error:  # of what came over the connection
            raise InferenceError(f"The server at {self.url} broke off its answer ({type(error).__name__}).") from None

    def tokenize(self, text: str) -> list[int]:
        """Tokenize a text with vLLM's `/tokenize`, without special tokens."""
        body = {"model": self._model, "prompt": text, "add_special_tokens": False}
        return self._ask(f"{self._root}/tokenize", body, Tokens).tokens

    def render_ending(self, text: str) -> str | None:
        """Return what the model's chat template puts after a text; None if the server cannot tell, as vLLM's can."""
        messages = [{"role": "user", "content": [{"type": "text", "text": text}]}]
        prompt = {"model": self._model, "messages": messages, "add_generation_prompt": True} | self._template
        with contextlib.suppress(self._openai.OpenAIError, ReelabelError):
            client = self._client.with_options(max_retries=0)
            tokens = self._read(Tokens, client.post(f"{self._root}/tokenize", body=prompt, cast_to=str)).tokens
            body = {"model": self._model, "tokens": tokens}
            shown = self._read(Detokenized, client.post(f"{self._root}/detokenize", body=body, cast_to=str)).prompt
            _, found, ending = shown.rpartition(text)
            return ending if found else None
        return None

    def find_version(self) -> str | None:
        with contextlib.suppress(self._openai.OpenAIError, ReelabelError):
            return self._read(Version, self._client.get(f"{self._root}/version", cast_to=str)).version
        return None

    def reach(self) -> None:
        """Check that the server still answers a question that it answered before."""
        try:
            self._ask_known_good(self._client.with_options(max_retries=0))
        except self._openai.OpenAIError as error:
            translated = self._translate(error)
            if not isinstance(translated, JobError):  # even a rejection proves that it responds
                raise translated from None

    def close(self) -> None:
        self._client.close()

    @property
    def connections_lost(self) -> int:
        return self._connections.lost

    @property
    def _root(self) -> str:
        return self.url.removesuffix("/v1")

    def _ask(self, path: str, body: dict[str, Any], kind: type[M], *, attempts: int | None = None) -> M:
        options: Any = {} if attempts is None else {"max_retries": attempts - 1}
        try:
            answer = self._client.post(path, body=body, cast_to=str, options=options)
        except self._openai.OpenAIError as error:
            raise self._translate_for_question(error, has_schema="response_format" in body) from None
        try:
            return self._read(kind, answer)
        except ServerUnavailableError as error:
            self.reach()
            raise ServerFailedError(
                f"The server at {self.url} returned no answer to this question, but answers others: {error.cause}."
            ) from None

    def _ask_known_good(self, client: openai.OpenAI) -> None:
        """Repeat a question: a list of models alone may come from a front end whose engine is dead."""
        self._list_models(client)
        if self.known_good is not None:
            self._read(Completion, client.post("/chat/completions", body=self.known_good | self._template, cast_to=str))

    def _list_models(self, client: openai.OpenAI) -> list[ServedModel]:
        return self._read(Models, client.get("/models", cast_to=str)).data

    def _read(self, kind: type[M], answer: str) -> M:
        """Parse a response; anything may answer at a URL with status 200."""
        try:
            return kind.model_validate_json(answer)
        except ValidationError:
            if self._has_answered:
                raise self._unavailable("no longer answers", _words(answer) or "an empty response") from None
            raise ConfigurationError(
                f"The response of {self.url} is not that of an OpenAI API ({_one_line(answer)[:100]!r}); "
                "does server.url (REELABEL_SERVER_URL) end in /v1?"
            ) from None

    def _translate(self, error: openai.OpenAIError) -> ReelabelError:
        if isinstance(error, self._openai.APIConnectionError):
            return self._unavailable("does not respond", self._why_lost(error), error)
        if isinstance(error, self._too_large):
            return ServerFailedError(
                f"The server at {self.url} sent {error}, which is no answer; check what is in front of it."
            )
        if isinstance(error, self._openai.APIStatusError):
            return self._translate_status(error, error.status_code)
        # An error that a server sends in the middle of an answer.
        return InferenceError(f"The server at {self.url} broke off its answer: {_message(error)}.")

    def _translate_status(self, error: openai.APIStatusError, status: int) -> ReelabelError:
        if error.response.history and status in {*_UNAUTHORIZED, HTTPStatus.METHOD_NOT_ALLOWED}:
            return ConfigurationError(
                f"The server at {self.url} redirects to {error.response.url}, without the key or the question (HTTP "
                f"{status}); set server.url (REELABEL_SERVER_URL) to the address of the API there."
            )
        if status in _UNAUTHORIZED:
            return ConfigurationError(
                f"The server at {self.url} rejects the API key (HTTP {status}); "
                "set server.api_key (REELABEL_SERVER_API_KEY)."
            )
        if status == HTTPStatus.NOT_FOUND:
            return ConfigurationError(
                f"The server at {self.url} returned HTTP {status}: {_message(error)}; check server.url and "
                "server.model."
            )
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _RETRIED:
            return self._unavailable("is unavailable", f"HTTP {status}: {_message(error)}", error)
        return _rejection(error)

    def _why_lost(self, error: openai.OpenAIError) -> str:
        cause = error.__cause__
        for kind, limit in self._timeouts.items():
            if isinstance(cause, kind):
                return f"{_message(error)}; {limit}"
        if "CERTIFICATE_VERIFY_FAILED" in str(cause):
            return f"{_message(error)}; if its certificate is your own, set server.ca_file"
        return _message(error)

    def _translate_for_question(self, error: openai.OpenAIError, *, has_schema: bool = False) -> ReelabelError:
        """Translate an error of a question; if another one is still answered, the settings are right."""
        translated = self._translate(error)
        if isinstance(translated, ConfigurationError) and self._has_answered:
            self.reach()
            return _rejection(error)
        status = getattr(error, "status_code", None)
        if has_schema and status in _INVALID and not isinstance(translated, PromptTooLongError):
            return SchemaRefusedError(
                f"The server rejects the question with its schema (HTTP {status}): {_message(error)}; change it."
            )
        return translated

    def _unavailable(self, what: str, cause: str, error: openai.APIError | None = None) -> ServerUnavailableError:
        unavailable = ServerUnavailableError(f"The server at {self.url} {what} ({cause}).")
        unavailable.server, unavailable.cause = self.url, cause
        unavailable.status = getattr(error, "status_code", None)
        if error is not None:
            unavailable.attempts = 1 + int(error.request.headers.get(_RETRIES_SO_FAR, 0))
        return unavailable

    def _translate_first(self, error: openai.OpenAIError) -> ReelabelError:
        """Translate an error of the first request, before any question was asked."""
        translated = self._translate(error)
        if getattr(error, "status_code", None) == HTTPStatus.NOT_FOUND and not self.url.endswith("/v1"):
            return ConfigurationError(
                f"There is no API at server.url {self.url}, which does not end in /v1; set it (REELABEL_SERVER_URL) to "
                f"{self.url}/v1."
            )
        if not isinstance(translated, ServerUnavailableError | JobError):
            return translated
        return ConfigurationError(f"{translated.message} Start the server, or set server.url (REELABEL_SERVER_URL).")


def _rejection(error: openai.OpenAIError) -> JobError:
    message, status = _message(error), getattr(error, "status_code", None)
    if any(mark in f"{message} {getattr(error, 'code', None)}" for mark in _TOO_LONG):
        return PromptTooLongError(
            f"The prompt with its video is too long for the server: {message}; "
            "shorten the prompt, or lower num_frames or max_pixels."
        )
    return InferenceError(f"The server rejects the question (HTTP {status}): {message}.")


def _message(error: openai.OpenAIError) -> str:
    """Return the server's own message on one line, without a full stop."""
    body = getattr(error, "body", None)
    message = body.get("message") if isinstance(body, dict) else body
    return _words(str(message or error.__cause__ or error))


def _words(text: str) -> str:
    """Return the text of a response on one line, without tags and a full stop."""
    return _one_line(_TAG.sub(" ", text[:_READ_CHARS])).rstrip(".")[:500]


def _one_line(text: str) -> str:
    return escape_controls(" ".join(text.split()))
