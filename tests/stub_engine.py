"""An engine without a model, behind the real process, protocol and renderers; it starts in half a second.

Tests start it in place of vLLM: `EngineProcess(config, command=COMMAND, ...)`. An answer depends on the question
and its frame file alone: see `answer_to`. Words in a question's text make it fail as real engines do: see `Word`.
What it does while it loads depends on what lies at `EngineConfig.model`: nothing lets it load at once; a FIFO makes
it wait until a test has opened and closed it; a file makes it fail with the file's text.
"""

import os
import pickle
import signal
import sys
import time
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path

from infra.errors import InferenceError, ModelError, PromptTooLongError
from tasks.domain import Answer
from tasks.model.engine.engine_main import Implementation, main
from tasks.model.protocol import EngineInfo, Question, QuestionFailure

COMMAND = (sys.executable, "-P", __file__)
_HUNGRY_BYTES = 1024**3


class Word(StrEnum):
    """What a question's text may say."""

    POISON = "poison"  # the engine's process is killed
    HANG = "hang"  # the engine answers nothing more
    HUNGRY = "hungry"  # the engine takes a gibibyte, if it is allowed to
    TOO_LONG = "too long"  # the renderer refuses the question
    REFUSED = "refused"  # the engine refuses it
    RENDERER_POISON = "renderer dies"  # the renderer's process is killed


@dataclass(frozen=True)
class StubReady:
    """A rendered question."""

    text: str
    answer: Answer


def answer_to(question: Question, frame_file: bytes) -> Answer:
    """Answer a question, always in the same way."""
    asked = repr((question.text, question.system_prompt, question.choices, question.scoring)).encode()
    digest = blake2b(asked + frame_file, digest_size=len(question.choices)).digest()
    probabilities = tuple((byte + 1) / (sum(digest) + len(digest)) for byte in digest)
    return Answer(
        choice_index=max(range(len(probabilities)), key=probabilities.__getitem__),
        probabilities=probabilities,
        prompt_tokens=len(question.text),
        cached_tokens=0,
        preprocess_ms=0.0,
        inference_ms=0.0,
    )


def _render(videos):
    return [pickle.dumps([_render_question(one, data) for one in questions]) for data, questions in videos]


def _render_question(question, frame_file):
    if Word.RENDERER_POISON in question.text:
        os.kill(os.getpid(), signal.SIGKILL)
    if Word.TOO_LONG in question.text:
        return QuestionFailure.of(PromptTooLongError("The prompt is too long."))
    return StubReady(text=question.text, answer=answer_to(question, frame_file))


class StubEngine:
    """Answers one question a step, so that batches overlap."""

    def __init__(self, config, *, started):
        model = Path(config.model)
        if model.is_fifo():
            model.read_bytes()
        elif model.is_file():
            raise ModelError(model.read_text())
        self._start_ms = (time.perf_counter() - started) * 1e3
        self._asked = []

    @property
    def is_idle(self):
        return not self._asked

    def describe(self):
        return EngineInfo(device="cpu", gpus=0, max_model_len=2048, start_ms=self._start_ms, versions={"stub": "1"})

    def feed(self, ticket, ready):
        if Word.POISON in ready.text:
            os.kill(os.getpid(), signal.SIGKILL)
        if Word.REFUSED in ready.text:
            raise InferenceError("The engine refuses the question.")
        self._asked.append((ticket, ready))

    def step(self):
        ticket, ready = self._asked.pop()  # the last one first: replies come in another order than questions
        if Word.HANG in ready.text:
            signal.pause()
        if Word.HUNGRY in ready.text:
            bytearray(_HUNGRY_BYTES)
        return [(ticket, ready.answer)]


if __name__ == "__main__":
    main(lambda _config: Implementation(load=StubEngine, start_renderer=lambda _config: None, render=_render))
