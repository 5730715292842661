"""An engine that dies is started again, and only the question that kills it goes without an answer."""

import os
import resource
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.errors import EngineClosedError, EngineLostError
from tasks.domain import Answer
from tasks.model.identity import TINY_MODEL
from tasks.model.process import EngineProcess
from tasks.model.questions import Batch, EngineConfig, Refusal
from tasks.model.recovery import RecoveringEngine
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
        answer, refusal = RecoveringEngine(engine).ask(Batch(frame_files={"v": frame_file(1)}, questions=questions))

        # At first, again after both questions, twice for the deadly one, and to prove that it is to blame.
        assert engine.starts == 5

    assert isinstance(answer, Answer)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.stage) == ("inference_failed", "inference")


def test_who_asks_beside_the_deadly_question_gets_an_answer(tmp_path):
    files = {"v": frame_file(1)}
    innocent = Batch(
        frame_files=files, questions=tuple(question(f"Which colour is it, number {n}?") for n in range(40))
    )
    deadly = Batch(frame_files=files, questions=(question("Is it poison?"),))
    with DeadlyEngine(CONFIG, log_path=tmp_path / "engine.log", start_timeout_s=240) as engine:
        recovery = RecoveringEngine(engine)
        engine.wait_ready()
        with ThreadPoolExecutor(4) as threads:
            asked = [threads.submit(recovery.ask, batch) for batch in (innocent, innocent, deadly, innocent)]
        first, second, refused, third = (each.result() for each in asked)

    assert all(isinstance(reply, Answer) for reply in (*first, *second, *third))
    assert isinstance(refused[0], Refusal)


def test_an_engine_that_runs_out_of_memory_is_started_again(tmp_path):
    files = {str(seed): frame_file(seed) for seed in range(24)}
    batch = Batch(frame_files=files, questions=tuple(question(video_id=video_id) for video_id in files))
    process = EngineProcess(CONFIG, log_path=tmp_path / "engine.log", start_timeout_s=240)
    with RecoveringEngine(process) as engine:
        engine.wait_ready()
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[0])
        resource.prlimit(process.pid, resource.RLIMIT_AS, (pages * resource.getpagesize(),) * 2)

        answers = engine.ask(batch)

        assert process.starts == 2
    assert all(isinstance(answer, Answer) for answer in answers)


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


def test_a_closed_engine_is_not_started_again(tmp_path):
    with EngineProcess(CONFIG, log_path=tmp_path / "engine.log", start_timeout_s=240) as engine:
        batch = Batch(frame_files={"v": frame_file(1)}, questions=(question(),) * 2000)
        engine.wait_ready()
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(RecoveringEngine(engine).ask, batch)
            engine.close()
            with pytest.raises(EngineClosedError):
                asked.result()

    assert engine.starts == 1
