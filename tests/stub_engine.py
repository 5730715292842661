"""An engine without a model, in the real process with the real protocol and renderers; it starts in half a second.

Tests start it instead of vLLM: `EngineProcess(config, command=COMMAND, ...)`. An answer depends only on the question
and its frame file: see `answer_to`. Trigger words in the question make it fail as real engines do: see `Trigger`. The
file at `EngineConfig.model` controls loading: without one, it loads immediately; with a FIFO, it waits until the test
has opened and closed it; with a regular file, it fails with the file's text as the message; with a link to /dev/full,
it fails to write there.

With `live_sessions`, it takes live sessions, and does one thing a step: see `StubScheduler`.
"""

import json
import os
import pickle
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path

from reelabel_engine.__main__ import Implementation, main
from reelabel_engine.errors import InferenceError, ModelError, PromptTooLongError
from reelabel_engine.live.scheduler import ItemCache
from reelabel_engine.protocol import (
    EngineInfo,
    LiveDone,
    LiveText,
    Question,
    QuestionAnswer,
    Rejected,
    RequestRef,
)
from tasks.domain import Answer, Words

COMMAND = (sys.executable, "-P", __file__)
_HUNGRY_BYTES = 1024**3
_PREFIX_S = 0.02
_OF_WORDS = ("text", "finish_reason", "output_tokens")
LEFT_BY_ENGINE = "vllm_dist_stub"  # a file as vLLM leaves one


class Trigger(StrEnum):
    """Words in a question that trigger a failure."""

    POISON = "poison"  # kills the engine process
    HANG = "hang"  # the engine stops responding
    ENDLESS = "endless"  # the engine works on nothing else, until the question is cancelled
    HUNGRY = "hungry"  # the engine tries to allocate a gibibyte
    TOO_LONG = "too long"  # the renderer rejects the question
    REFUSED = "refused"  # the engine rejects the question
    DISK_FULL = "disk full"  # the engine fails to write a file
    JSON_BROKEN = "broken JSON"  # the answer by a schema is no JSON
    RENDERER_POISON = "renderer dies"  # kills the renderer process


@dataclass(frozen=True)
class StubReady:
    """A rendered question."""

    text: str
    answer: Answer


def words_for(question):
    """Return an answer in words: the question backwards; with a schema, as JSON."""
    words = " ".join(reversed(question.text.split()))
    return words if question.schema is None else json.dumps({"answer": words})


def answer_to(question: Question, *frame_files: bytes) -> Answer:
    """Return the deterministic answer to a question."""
    key = repr((question.text, question.system_prompt, question.choices, question.scoring)).encode()
    if not question.choices:
        words = f"{Trigger.JSON_BROKEN} {{" if Trigger.JSON_BROKEN in question.text else words_for(question)
        count = min(question.max_tokens, len(words.split()))
        return Answer(
            words=Words(
                text=" ".join(words.split()[:count]) if question.schema is None else words,
                finish_reason="stop" if count == len(words.split()) else "length",
                output_tokens=count,
            ),
            prompt_tokens=len(question.text),
            cached_tokens=0,
            preprocess_ms=0.0,
            inference_ms=0.0,
        )
    digest = blake2b(key + b"".join(frame_files), digest_size=len(question.choices)).digest()
    probabilities = tuple((byte + 1) / (sum(digest) + len(digest)) for byte in digest)
    return Answer(
        choice_index=max(range(len(probabilities)), key=probabilities.__getitem__),
        probabilities=probabilities,
        prompt_tokens=len(question.text),
        cached_tokens=0,
        preprocess_ms=0.0,
        inference_ms=0.0,
    )


class StubWorker:
    """Renders questions to their answers, and live requests to their items."""

    def __init__(self, _config=None):
        pass

    def render(self, videos):
        return [pickle.dumps([_render_question(one, *files) for one in questions]) for files, questions in videos]

    def render_live(self, request):
        return pickle.dumps((request.items, None))  # an item is its own rendering


def _render_question(question, *frame_files):
    if Trigger.RENDERER_POISON in question.text:
        os.kill(os.getpid(), signal.SIGKILL)
    if Trigger.TOO_LONG in question.text:
        return Rejected.of(PromptTooLongError("The prompt is too long."))
    return StubReady(text=question.text, answer=answer_to(question, *frame_files))


def _on_the_wire(answer):
    return QuestionAnswer(
        probabilities=answer.probabilities,
        choice_mass=answer.choice_mass,
        prompt_tokens=answer.prompt_tokens,
        cached_tokens=answer.cached_tokens,
        preprocess_ms=answer.preprocess_ms,
        inference_ms=answer.inference_ms,
        **({} if answer.words is None else {name: getattr(answer.words, name) for name in _OF_WORDS}),
    )


class StubScheduler:
    """Answers live questions in words of three: how many frames are shown, since when, and the question.

    Tokens are items, cached ones those of the session's last prefixes. Prefixes are read one a step, questions first.
    """

    def __init__(self):
        self.items = ItemCache()
        self._waiting, self._questions, self._prefixes = [], [], []
        self._read = {}
        self._replies = []

    @property
    def is_idle(self):
        return not (self._questions or self._prefixes)

    def receive(self, request, items, _ends):
        self.items.put(request.session, items)
        self._waiting.append(request)
        for each in [*self._waiting]:
            try:
                found = self.items.find(each.session, each.hashes)
            except InferenceError as error:
                self._waiting.remove(each)
                self._replies.append((RequestRef(each.number), Rejected.of(error)))
                continue
            if found is not None:
                self._waiting.remove(each)
                (self._questions if each.query else self._prefixes).append((each, found))

    def cancel(self, number):
        self._questions = [each for each in self._questions if each[0].number != number]

    def replies(self):
        replies, self._replies = self._replies, []
        return replies

    def step(self):
        request, items = (self._questions or self._prefixes).pop(0)
        read = self._read.setdefault(request.salt, [])
        cached = max((common(each, request.hashes) for each in read), default=0)
        query, number = request.query, request.number
        if query and Trigger.POISON in query.text:
            os.kill(os.getpid(), signal.SIGKILL)
        if query and Trigger.DISK_FULL in query.text:
            Path("/dev/full").write_text("cache")
        if query and Trigger.REFUSED in query.text:
            failure = Rejected.of(PromptTooLongError("The prompt is too long."))
            self._replies.append((RequestRef(number), failure))
            return
        read.append(request.hashes)
        done = {"prompt_tokens": len(items), "cached_tokens": cached}
        if query is None:
            time.sleep(_PREFIX_S)
        elif query.choices:
            count = len(query.choices)
            done["probabilities"] = tuple(2 * (n + 1) / (count * (count + 1)) for n in range(count))
        else:
            for word in (f"{sum(each.frames for each in items)} ", f"{items[0].times_s[0]:g} ", query.text):
                self._replies.append((RequestRef(number), LiveText(text=word)))
            done["output_tokens"] = 3
        self._replies.append((RequestRef(number), LiveDone(**done)))


def common(one, other):
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


class StubEngine:
    """Answers one question per step, so that batches overlap."""

    def __init__(self, config, *, started):
        Path(tempfile.gettempdir(), LEFT_BY_ENGINE).touch()
        model = Path(config.model)
        if model.is_fifo():
            model.read_bytes()
        elif model.is_char_device():
            model.write_text("weights")
        elif model.is_file():
            raise ModelError(model.read_text())
        self._start_ms = (time.perf_counter() - started) * 1e3
        self._pending = []
        self.live = StubScheduler() if config.live_sessions else None

    @property
    def is_idle(self):
        return not self._pending and (self.live is None or self.live.is_idle)

    def describe(self):
        return EngineInfo(device="cpu", gpus=0, max_model_len=2048, start_ms=self._start_ms, versions={"stub": "1"})

    def feed(self, ref, ready):
        if Trigger.POISON in ready.text:
            os.kill(os.getpid(), signal.SIGKILL)
        if Trigger.REFUSED in ready.text:
            raise InferenceError("The engine rejects the question.")
        self._pending.append((ref, ready))

    def cancel(self, number):
        self._pending = [each for each in self._pending if each[0].number != number]
        if self.live:
            self.live.cancel(number)

    def step(self):
        if self.live and not self.live.is_idle:
            self.live.step()
            return []
        if any(Trigger.ENDLESS in ready.text for _, ready in self._pending):
            time.sleep(_PREFIX_S)
            return []
        ref, ready = self._pending.pop()  # last in, first out: replies arrive out of order
        if Trigger.HANG in ready.text:
            signal.pause()
        if Trigger.DISK_FULL in ready.text:
            Path("/dev/full").write_text("cache")
        if Trigger.HUNGRY in ready.text:
            bytearray(_HUNGRY_BYTES)
        return [(ref, _on_the_wire(ready.answer))]


if __name__ == "__main__":
    main(lambda _config: Implementation(load=StubEngine, worker=StubWorker))
