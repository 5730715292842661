"""Models that are started before they are opened: taken over, or ended; what is wrong is said by who opens them."""

import os
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import EncoderConfig
from tasks.embedding.encoder import EncoderProcess
from tasks.model.model_process import started_ahead
from tests.embedding.stub_encoder import COMMAND


@pytest.fixture
def opened(tmp_path):
    """Open an encoder as a run does, and keep all that were opened."""
    made = []

    def make(name="model"):
        options = {"log_path": tmp_path / "log", "start_timeout_s": 60, "command": COMMAND}
        made.append(EncoderProcess.of(EncoderConfig(model=str(tmp_path / name)), **options))
        return made[-1]

    make.made = made
    yield make
    for each in made:
        each.close()


def is_running(pid):
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_who_opens_a_model_that_was_started_ahead_gets_its_process(opened):
    with started_ahead(opened):
        encoder = opened()
        assert encoder is opened.made[0]
        with encoder:
            assert encoder.info().dimensions == 3
        assert encoder.starts == 1
    assert opened() is not encoder


@pytest.mark.parametrize("end", [None, KeyboardInterrupt(), SystemExit(), ModelError("another model is faulty")])
def test_a_model_that_nobody_opens_ends(opened, end):
    with pytest.raises(type(end)) if end else nullcontext(), started_ahead(opened):
        pid = opened.made[0].pid
        assert is_running(pid)
        if end:
            raise end
    assert not is_running(pid)


def test_a_model_ends_before_another_one_is_started(opened):
    with started_ahead(opened):
        pid = opened.made[0].pid
        assert opened("another") is not opened.made[0]
        assert not is_running(pid)


def test_what_is_wrong_with_a_model_is_said_to_who_opens_it(opened, tmp_path):
    Path(tmp_path / "model").write_text("its weights are faulty")
    with started_ahead(opened), opened() as encoder, pytest.raises(ModelError, match="its weights are faulty; see"):
        encoder.info()


def test_a_model_that_cannot_be_opened_is_left_to_who_opens_it():
    def refuse():
        raise ModelError("There is no such model.")

    with started_ahead(refuse):
        pass
    with started_ahead(lambda: None):
        pass
