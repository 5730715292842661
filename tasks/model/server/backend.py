"""Answers questions by an OpenAI-compatible server, as an engine of our own does."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from infra.errors import EngineClosedError, ServerFailedError, ServerUnavailableError
from reelabel.errors import ConfigurationError, JobError
from reelabel.unexpected import failing_alone
from reelabel.waiting import LOOK_S, raise_if_abandoned
from reelabel_engine.errors import InferenceError, SpecialTokensError
from reelabel_engine.plain_text import TextTokenizer, find_special_token
from reelabel_engine.prompts import choice_tokens
from reelabel_engine.protocol import Batch, EngineInfo, EngineTimes, Question, QuestionMedium, Rejected
from tasks.domain import ONE_VIDEO, Answer, MediaCounts
from tasks.model.backend import InferenceBackend, Reply
from tasks.model.prompts.thinking import QUESTION, require_answer_first
from tasks.model.prompts.words import read_words
from tasks.model.server.answers import Usage, logprobs_request, read_logprobs, score
from tasks.model.server.capabilities import completion_body, detect_capabilities, probe_bodies
from tasks.model.server.client import ServerClient
from tasks.model.server.frame_transport import EncodedFrames, encode_media
from tasks.model.server.model_watch import ModelWatch, require_named
from tasks.model.shared_lock import SharedLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from infra.settings import ServerSettings
    from reelabel_engine.protocol import FinishReason
    from tasks.domain import Words
    from tasks.domain.job import MediumKind
    from tasks.model.server.answers import Completion


@dataclass(slots=True)
class Share:
    """One request's share of the time; all shares add up to the time with any request in flight."""

    ms: float = 0.0


class SharedClock:
    """Divides each moment equally among the requests in flight."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_flight = 0
        self._since_s = 0.0
        self._each_s = 0.0  # the share of a request in flight since the start
        self.busy_ms = 0.0

    @contextmanager
    def share(self) -> Iterator[Share]:
        share = Share()
        began_s = self._change(+1)
        try:
            yield share
        finally:
            share.ms = (self._change(-1) - began_s) * 1e3

    def _change(self, by: int) -> float:
        with self._lock:
            now_s = time.perf_counter()
            if self._in_flight:
                self._each_s += (now_s - self._since_s) / self._in_flight
                self.busy_ms += (now_s - self._since_s) * 1e3
            self._since_s = now_s
            self._in_flight += by
            return self._each_s


_CACHED_TEXTS = 65_536
# Tells tokenizers apart by what they merge: scripts, digits, white space and case.
_PROBE_TEXT = "A (yes) or B (no)?\n\n  1234567 METERS, naïve Größe, 東京の天気, привет, def f(x):\n\treturn x**2"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    model: str
    frames: str  # encoding of frames
    exact: bool  # it returns logprobs of requested tokens
    watch: ModelWatch
    info: EngineInfo


@dataclass(slots=True)
class _BatchState:
    """The state of a batch: its questions by index."""

    replies: dict[int, Reply] = field(default_factory=dict)  # answers and failures
    faults: dict[int, list[ServerUnavailableError]] = field(default_factory=lambda: defaultdict(list))
    outage: ServerUnavailableError | None = None  # set once the server answers nothing any more
    attempts: int = 1  # at most, for each question in this pass

    def so_far(self, outage: ServerUnavailableError) -> ServerUnavailableError:
        """Add the replies received before an outage to it, and the faults of the questions without one."""
        outage.replies = self.replies
        outage.faults = {index: faults for index, faults in self.faults.items() if index not in self.replies}
        return outage


def _split_attempts(attempts: int) -> tuple[int, ...]:
    """Return the attempts of a question at first, and after all others: the last one, if there are several."""
    return (attempts - 1, 1) if attempts > 2 else (attempts,)  # noqa: PLR2004 - a pause comes first


class ServerBackend(InferenceBackend):
    """Answers batches through a server; a context manager that closes its connections.

    Different videos are asked about concurrently, and the questions that show the same one after another, so that
    all but the first hit the server's prefix cache.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        encode: Callable[[str], list[int]] | None = None,
        media: MediaCounts = ONE_VIDEO,
        named: str | None = None,
        template_args: Mapping[str, Any] | None = None,
    ) -> None:
        """Create the client, which raises a ConfigurationError if there cannot be one; nothing is sent yet."""
        self._settings = settings
        self._media, self._named = media, named
        self._client = ServerClient(settings, template_args=template_args)
        self._uses_server_tokenizer = encode is None
        self._encode = encode or lru_cache(_CACHED_TEXTS)(self._client.tokenize)
        self._batch_clock, self._request_clock = SharedClock(), SharedClock()
        self._server_lock = SharedLock()
        self._lock = threading.Lock()
        self._ready: _Ready | None = None
        self._closed = Future[None]()
        self._threads = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="ask-server")

    @property
    def times(self) -> EngineTimes:
        """Time with requests in flight, and time spent only on preparing frames for them."""
        busy_ms = self._request_clock.busy_ms
        return EngineTimes(busy_ms=busy_ms, waiting_for_input_ms=max(0.0, self._batch_clock.busy_ms - busy_ms))

    def start(self) -> None:
        """Do nothing: the server is not ours to start."""

    def wait_ready(self) -> EngineInfo:
        if self._ready is not None:
            self._client.reach()
            self._ready.watch.confirm()
        return self._get_ready().info

    def confirm_model(self) -> None:
        self._get_ready().watch.confirm()

    def answer(self, batch: Batch) -> list[Reply]:
        """Answer a batch.

        A question that the server does not answer, though it answers others, is asked for the last time after them, and
        fails if it is not answered then either.
        """
        self._check_open()
        ready, state = self._get_ready(), _BatchState()
        lost = self._client.connections_lost
        ready.watch.confirm_if_due()
        with self._server_lock.exclusive() if batch.is_alone else self._server_lock.shared(), self._batch_clock.share():
            self._check_open()  # it may have been closed while this batch waited for others
            if batch.is_alone:
                self._client.reach()  # otherwise it would be blamed for the fault of another question
            for state.attempts in _split_attempts(self._settings.max_attempts):
                self._ask_all(ready, batch, state)
        if self._client.connections_lost > lost:  # another server may have taken its place
            try:
                ready.watch.confirm()
            except ServerUnavailableError as error:
                raise state.so_far(error) from None
        for index, faults in state.faults.items():
            state.replies.setdefault(index, Rejected.of(ServerFailedError.after(faults)))
        return [state.replies[index] for index in range(len(batch.questions))]

    def _ask_all(self, ready: _Ready, batch: Batch, state: _BatchState) -> None:
        indices_by_shown: dict[tuple[QuestionMedium, ...], list[int]] = defaultdict(list)
        for index, question in enumerate(batch.questions):
            if index not in state.replies:
                indices_by_shown[question.shown].append(index)
        requests = [
            self._threads.submit(
                self._ask,
                ready,
                [(each.kind, batch.frame_files[each.file_id]) for each in shown],
                {index: batch.questions[index] for index in indices},
                state,
            )
            for shown, indices in indices_by_shown.items()
        ]
        try:
            for request in requests:
                self._wait(request)
        finally:
            for request in requests:
                request.cancel()
        if state.outage:
            raise state.so_far(state.outage)

    def close(self) -> None:
        if not self._closed.done():
            self._closed.set_result(None)
        self._client.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _wait(self, request: Future[None]) -> None:
        """Wait for answers, which may take minutes, or until this backend is closed."""
        ends: list[Future[Any]] = [request, self._closed]
        while not wait(ends, LOOK_S, return_when=FIRST_COMPLETED).done:
            raise_if_abandoned()
        self._check_open()
        request.result()

    def _check_open(self) -> None:
        if self._closed.done():
            raise EngineClosedError("The connection to the server was closed; the run is ending.")

    def _get_ready(self) -> _Ready:
        with self._lock:
            if self._ready is None:
                try:
                    self._ready = self._probe()
                except ServerUnavailableError as error:
                    raise ConfigurationError(f"{error.message} Check the server, then run again.") from None
            return self._ready

    def _probe(self) -> _Ready:
        started = time.perf_counter()
        model = self._client.find_model()
        if self._named:
            require_named(model.root, self._named)
        self._check_tokenizer()
        require_answer_first(model.id, self._client.render_ending(QUESTION))
        frames, exact = detect_capabilities(
            self._client, model=model.id, frames=self._settings.frames, encode=self._encode, media=self._media
        )
        version = self._client.find_version()
        watch = ModelWatch(
            self._client,
            probes=probe_bodies(model=model.id, frames=frames, exact=exact, encode=self._encode),
            encode=self._encode,
            version=version,
            tolerance=self._settings.probe_tolerance,
        )
        software = f"vLLM {version}" if version else "not vLLM"
        shown = "logprobs of any token" if exact else "top logprobs only"
        info = EngineInfo(
            device=f"server {urlsplit(self._client.url).netloc}",
            gpus=self._settings.gpus,
            max_model_len=model.max_model_len or 0,
            start_ms=(time.perf_counter() - started) * 1e3,
            versions={"vllm": version} if version else {},
            tuning=f"{model.id} at {self._client.url} ({software}), frames as {frames}, {shown}",
        )
        return _Ready(model=model.id, frames=frames, exact=exact, watch=watch, info=info)

    def _check_tokenizer(self) -> None:
        try:
            server_ids = self._client.tokenize(_PROBE_TEXT)
        except (JobError, ConfigurationError):
            server_ids = None
        if self._uses_server_tokenizer and server_ids is None:
            raise ConfigurationError(
                f"The server at {self._client.url} has no /tokenize endpoint, and there is no local tokenizer; "
                "set model.name to the model's folder or hub name."
            )
        if server_ids not in (None, self._encode(_PROBE_TEXT)):
            raise ConfigurationError(
                f"The tokenizer of the server at {self._client.url} differs from that of model.name; "
                "set model.name to the model that it serves."
            )

    def _ask(
        self, ready: _Ready, shown: list[tuple[MediumKind, bytes]], questions: dict[int, Question], state: _BatchState
    ) -> None:
        started = time.perf_counter()
        try:
            carried = encode_media(ready.frames, shown)
        except JobError as error:
            state.replies |= dict.fromkeys(questions, Rejected.of(error))
            return
        encode_ms = (time.perf_counter() - started) * 1e3 / len(questions)
        for index, question in questions.items():
            if state.outage:
                return
            try:
                state.replies[index] = self._answer_question(
                    ready, question, carried, encode_ms, attempts=state.attempts
                )
            except ServerUnavailableError as error:
                state.faults[index].append(error)
                if not state.outage:
                    try:
                        self._client.reach()
                    except ServerUnavailableError as outage:
                        state.outage = outage

    def _answer_question(
        self, ready: _Ready, question: Question, carried: EncodedFrames, encode_ms: float, *, attempts: int
    ) -> Reply:
        try:
            refuse_special_tokens(self._encode, question.text, question.system_prompt)
            tokens = choice_tokens(question.choices, scoring=question.scoring, encode=self._encode)
            body = completion_body(
                model=ready.model, text=question.text, system_prompt=question.system_prompt, carried=carried
            )
            with self._request_clock.share() as share, failing_alone("A question", stage=InferenceError.stage):
                extra = logprobs_request(tokens, exact=ready.exact) if tokens else _words_request(question)
                completion = self._client.complete(body | extra, attempts=attempts)
                if tokens:
                    (probabilities, mass), words = score(tokens, read_logprobs(completion, self._encode)), None
                else:
                    probabilities, mass, words = (), None, _read_words(question, completion)
        except JobError as error:
            return Rejected.of(error)
        usage = completion.usage or Usage()
        return Answer(
            choice_index=max(range(len(probabilities)), key=probabilities.__getitem__, default=None),
            probabilities=probabilities,
            words=words,
            choice_mass=mass,
            prompt_tokens=usage.prompt_tokens or 0,
            cached_tokens=usage.cached_tokens or 0,
            preprocess_ms=encode_ms,
            inference_ms=share.ms,
        )


def _words_request(question: Question) -> dict[str, Any]:
    """Build the request fields that ask for an answer in words."""
    fields: dict[str, Any] = {"max_tokens": question.max_tokens}
    if question.schema is not None:
        schema = json.loads(question.schema)
        named = {"name": "answer", "schema": schema, "strict": _is_closed(schema)}
        fields["response_format"] = {"type": "json_schema", "json_schema": named}
    return fields


def _is_closed(schema: object) -> bool:
    """Return whether all objects of a JSON schema have exactly the properties that it names.

    OpenAI's strict mode refuses other schemas; without it, OpenAI follows them without a guarantee. vLLM always does.
    """
    if isinstance(schema, list):
        return all(map(_is_closed, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        properties, required = schema.get("properties") or {}, schema.get("required") or []
        if schema.get("additionalProperties") is not False or any(name not in required for name in properties):
            return False
    return all(map(_is_closed, schema.values()))


def _read_words(question: Question, completion: Completion) -> Words:
    choice = completion.choices[0] if completion.choices else None
    if choice is None or choice.content is None or choice.finish_reason not in {"stop", "length"}:
        reason = choice.finish_reason if choice else "no completion"
        raise InferenceError(f"The server returned no answer in words ({reason}).")
    tokens = (completion.usage or Usage()).completion_tokens or 0
    ended: FinishReason = "length" if choice.finish_reason == "length" else "stop"
    return read_words(question, choice.content, finish_reason=ended, output_tokens=tokens)


def refuse_special_tokens(encode: Callable[[str], list[int]], *texts: str | None) -> None:
    """Raise a SpecialTokensError if a text spells one of the model's, or what looks like one: it would be obeyed."""
    for text in filter(None, texts):
        known = encode.find(text) if isinstance(encode, TextTokenizer) else None
        if found := known or find_special_token(text):
            raise SpecialTokensError(
                f"The text contains {found!r}, which the server would take for a special token of its model; "
                "reword it, or set model.backend to vllm, which encodes it as text."
            )
