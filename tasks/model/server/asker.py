"""A server, asked as an engine of our own is."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from infra.errors import ConfigurationError, JobError, ServerUnavailableError
from tasks.domain import Answer
from tasks.model.choices import choice_tokens
from tasks.model.lifetime import Lifetime
from tasks.model.questions import EngineInfo, EngineTimes, Refusal
from tasks.model.server.client import ServerClient
from tasks.model.server.clock import SharedClock
from tasks.model.server.frames import WAYS
from tasks.model.server.manner import chat_body, find_manner
from tasks.model.server.scoring import ask_for_logprobs, read_logprobs, score

if TYPE_CHECKING:
    from collections.abc import Callable

    from infra.server_settings import ServerSettings
    from tasks.model.questions import Batch, Question, Reply
    from tasks.model.server.frames import Carried
    from tasks.model.server.manner import Manner

_REMEMBERED = 65_536
_TEXT = "A (yes) or B (no)?"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """What is known of the server once it was tried."""

    model: str
    manner: Manner
    info: EngineInfo


class ServerAsker(Lifetime):
    """Asks a server; a context manager that closes its connections.

    Videos are asked about side by side, the questions on one video one after the other, so that all but
    the first find it in the server's prefix cache.
    """

    def __init__(self, settings: ServerSettings, *, encode: Callable[[str], list[int]] | None = None) -> None:
        """Prepare to ask; nothing is sent yet.

        Args:
            settings: Which server, and how.
            encode: The model's tokenizer, without special tokens; None asks vLLM's `/tokenize`.

        Raises:
            ConfigurationError: No server is set, or no client is installed.
        """
        self._settings = settings
        self._client = ServerClient(settings)
        self._asks_for_tokens = encode is None
        self._encode = encode or lru_cache(_REMEMBERED)(self._client.tokenize)
        self._asking, self._answering = SharedClock(), SharedClock()
        self._lock = threading.Lock()
        self._ready: _Ready | None = None
        self._threads = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="ask-server")

    @property
    def engines(self) -> int:
        """One, as far as can be seen from here."""
        return 1

    @property
    def times(self) -> EngineTimes:
        """What went on while it was asked: requests under way, or frames being made ready for the next."""
        answering_ms = self._answering.busy_ms
        return EngineTimes(busy_ms=answering_ms, waited_ms=max(0.0, self._asking.busy_ms - answering_ms))

    def start(self) -> None:
        """Do nothing: a server is not ours to start."""

    def wait_ready(self) -> EngineInfo:
        """Find the model, and how the server can be asked; once that is known, see that it still answers.

        Raises:
            ConfigurationError: The server is not there, refuses, or takes no video.
            ServerUnavailableError: It was there, and does not answer any more.
        """
        if self._ready is not None:
            self._client.reach()
        return self._get_ready().info

    def ask(self, batch: Batch) -> list[Reply]:
        """Answer a batch, in its order; several threads may ask at once.

        Raises:
            ServerUnavailableError: The server does not answer, after every attempt.
            ConfigurationError: It refuses, or takes no video.
        """
        ready = self._get_ready()
        places: dict[str, list[int]] = defaultdict(list)
        for place, question in enumerate(batch.questions):
            places[question.video_id].append(place)
        asking = [
            self._threads.submit(
                self._ask_video, ready, batch.frame_files[video_id], [batch.questions[place] for place in those]
            )
            for video_id, those in places.items()
        ]
        try:
            with self._asking.share():
                replies = [future.result() for future in asking]
        finally:
            for future in asking:
                future.cancel()
        by_place = {
            place: reply
            for those, given in zip(places.values(), replies, strict=True)
            for place, reply in zip(those, given, strict=True)
        }
        return [by_place[place] for place in range(len(batch.questions))]

    def close(self) -> None:
        """Close the connections; answers under way are waited for, but not tried again. Safe to call again."""
        self._client.close()
        self._threads.shutdown(cancel_futures=True)

    def _get_ready(self) -> _Ready:
        with self._lock:
            if self._ready is None:
                try:
                    self._ready = self._try()
                except ServerUnavailableError as error:
                    raise ConfigurationError(f"{error.message} See to it, and run again.") from None
            return self._ready

    def _try(self) -> _Ready:
        started = time.perf_counter()
        model = self._client.find_model()
        self._check_tokenizer()
        manner = find_manner(self._client, model=model.id, frames=self._settings.frames, encode=self._encode)
        version = self._client.find_version()
        software = f"vLLM {version}" if version else "not vLLM"
        shown = "any token's probability" if manner.exact else "its likeliest tokens alone"
        info = EngineInfo(
            device=f"server {urlsplit(self._client.url).netloc}",
            gpus=self._settings.gpus,
            max_model_len=model.max_model_len or 0,
            start_ms=(time.perf_counter() - started) * 1e3,
            versions={"vllm": version} if version else {},
            tuning=f"{model.id} at {self._client.url} ({software}), frames as {manner.frames}, shows {shown}",
        )
        return _Ready(model=model.id, manner=manner, info=info)

    def _check_tokenizer(self) -> None:
        """Hold the model's tokenizer, as far as it is known here, against the server's, where that can be asked."""
        try:
            theirs = self._client.tokenize(_TEXT)
        except (JobError, ConfigurationError):
            theirs = None
        if self._asks_for_tokens and theirs is None:
            raise ConfigurationError(
                f"The server at {self._client.url} has no /tokenize, and no tokenizer is at hand; "
                "set model.name to the model's folder or hub name."
            )
        if theirs not in (None, self._encode(_TEXT)):
            raise ConfigurationError(
                f"The server at {self._client.url} has another tokenizer than model.name; set that to the model served."
            )

    def _ask_video(self, ready: _Ready, frame_file: bytes, questions: list[Question]) -> list[Reply]:
        started = time.perf_counter()
        try:
            carried = WAYS[ready.manner.frames](frame_file)
        except JobError as error:
            return [Refusal.of(error)] * len(questions)
        carried_ms = (time.perf_counter() - started) * 1e3 / len(questions)
        return [self._answer(ready, question, carried, carried_ms) for question in questions]

    def _answer(self, ready: _Ready, question: Question, carried: Carried, carried_ms: float) -> Reply:
        try:
            tokens = choice_tokens(question.choices, scoring=question.scoring, encode=self._encode)
            body = chat_body(
                model=ready.model, text=question.text, system_prompt=question.system_prompt, carried=carried
            )
            with self._answering.share() as share:
                completion = self._client.complete(body | ask_for_logprobs(tokens, exact=ready.manner.exact))
            probabilities = score(tokens, read_logprobs(completion, self._encode))
        except JobError as error:
            return Refusal.of(error)
        usage = completion.usage
        details = usage.prompt_tokens_details if usage else None
        return Answer(
            choice_index=max(range(len(probabilities)), key=probabilities.__getitem__),
            probabilities=probabilities,
            prompt_tokens=usage.prompt_tokens if usage else 0,
            cached_tokens=(details.cached_tokens or 0) if details else 0,
            preprocess_ms=carried_ms,
            inference_ms=share.ms,
        )
