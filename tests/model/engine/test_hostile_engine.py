"""An engine that returns anything but the answers to what it was asked is lost, and replaced like one that dies."""

import time

import pytest

from infra.errors import EngineLostError
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import Batch, EngineConfig, Question
from tasks.model.engine.process import EngineProcess
from tests.model.engine import bad_engine

BATCH = Batch(
    frame_files={"v": b""},
    questions=tuple(
        Question(video_id="v", text=text, system_prompt=None, choices=("red", "blue")) for text in ("Which?", "Why?")
    ),
)


@pytest.fixture
def engine_that(tmp_path):
    """Make an engine that does something."""
    engines = []

    def make(does, **options):
        config = EngineConfig(model=str(tmp_path / does))
        options = {"log_path": tmp_path / "engine.log", "start_timeout_s": 60, "answer_timeout_s": 60.0} | options
        engines.append(EngineProcess(config, command=bad_engine.COMMAND, **options))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


@pytest.mark.parametrize("does", bad_engine.LOADING)
def test_any_invalid_message_of_a_loading_engine_is_an_error_of_its_model(engine_that, does):
    engine = engine_that(does)

    with pytest.raises(ModelError, match="invalid message"):
        engine.wait_ready()

    assert engine.pid is None


@pytest.mark.parametrize("does", [does for does in bad_engine.ANSWERING if does != "half a message"])
def test_a_reply_that_answers_no_question_of_its_batch_loses_the_engine(engine_that, does):
    engine = engine_that(does)
    engine.wait_ready()

    with pytest.raises(EngineLostError, match="invalid message"):
        engine.answer(BATCH)

    assert engine.pid is None


def test_half_a_message_counts_as_silence(engine_that):
    engine = engine_that("half a message", answer_timeout_s=1.0)
    engine.wait_ready()
    started = time.monotonic()

    with pytest.raises(EngineLostError, match="no answer within 1 s"):
        engine.answer(BATCH)

    assert time.monotonic() - started < 20


@pytest.mark.parametrize("does", bad_engine.IGNORED)
def test_replies_to_requests_that_nobody_made_or_that_have_ended_change_no_answer(engine_that, does):
    engine = engine_that(does)

    for _ in range(2):
        assert [reply.choice_index for reply in engine.answer(BATCH)] == [1, 0]
