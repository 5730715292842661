"""An engine that dies is started again, and only the question that kills it goes without an answer."""

import os
import signal
import time

import pytest

from flows.shards import ask_engine
from infra.errors import EngineLostError
from tasks.domain import Answer
from tasks.model.identity import TINY_MODEL
from tasks.model.process import EngineProcess
from tasks.model.questions import Batch, EngineConfig, Refusal
from tests.model.test_process import frame_file, question

CONFIG = EngineConfig(model=str(TINY_MODEL))


class DeadlyEngine(EngineProcess):
    """A real engine that is killed whenever it is asked about poison."""

    def ask(self, batch):
        if any("poison" in one.text for one in batch.questions):
            self.wait_ready()
            os.kill(self.pid, signal.SIGKILL)
        return super().ask(batch)


def test_the_question_on_which_the_engine_dies_is_refused_and_the_others_answered(tmp_path):
    questions = (question(), question("Is it poison?"))
    with DeadlyEngine(CONFIG, log_path=tmp_path / "engine.log", start_timeout_s=240) as engine:
        answer, refusal = ask_engine(engine, Batch(frame_files={"v": frame_file(1)}, questions=questions))

        assert engine.starts == 5  # at first, twice after both questions, twice after the deadly one

    assert isinstance(answer, Answer)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.stage) == ("inference_failed", "inference")


def test_an_engine_that_hangs_is_ended(tmp_path):
    config = {"log_path": tmp_path / "engine.log", "start_timeout_s": 240, "answer_timeout_s": 1}
    with EngineProcess(CONFIG, **config) as engine:
        engine.wait_ready()
        child = engine.pid
        os.kill(child, signal.SIGSTOP)

        started = time.monotonic()
        with pytest.raises(EngineLostError, match="no answer within 1 s"):
            engine.ask(Batch(frame_files={"v": frame_file(1)}, questions=(question(),)))

        assert engine.pid is None
        assert time.monotonic() - started < 60
