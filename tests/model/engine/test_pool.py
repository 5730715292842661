import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from reelabel.errors import DiskFullError
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import EngineConfig
from tasks.model.engine.process import EngineProcess
from tasks.model.engine.recovery import RecoveringEngine
from tasks.model.engine.vllm_backend import EnginePool
from tests.model.factories import batch_about, frame_file, question
from tests.stub_engine import COMMAND, answer_to

BATCHES = [batch_about(question(), seed=seed) for seed in range(4)]
ANSWERS = [[answer_to(question(), frame_file(seed))] for seed in range(4)]


@pytest.fixture
def engines(make_engine, tmp_path):
    """Two engines, whose models are at `tmp_path / "0"` and `tmp_path / "1"`."""
    return [make_engine(model=str(tmp_path / str(number))) for number in range(2)]


@pytest.fixture
def pool(engines):
    with EnginePool([RecoveringEngine(engine) for engine in engines]) as pool:
        yield pool


def test_a_lost_engine_is_restarted_while_the_other_goes_on(pool, engines, tmp_path):
    info = pool.wait_ready()
    assert (info.device, info.gpus, pool.engines) == ("cpu", 0, 2)
    first, other = (engine.pid for engine in engines)
    os.mkfifo(tmp_path / "0")

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(pool.answer, BATCHES)) == ANSWERS
        # Nothing else is asked meanwhile, so that the first of the idle ones takes the batch.
        os.kill(first, signal.SIGKILL)
        lost = threads.submit(pool.answer, BATCHES[0])
        with (tmp_path / "0").open("wb"):  # opens once the engine is loading again
            assert [pool.answer(batch) for batch in BATCHES] == ANSWERS
            assert not lost.done()
        assert lost.result() == ANSWERS[0]

    assert [engine.starts for engine in engines] == [2, 1]
    assert engines[1].pid == other
    pool.close()
    assert [engine.pid for engine in engines] == [None, None]


def test_if_one_cannot_start_none_goes_on(tmp_path):
    class Unstartable(EngineProcess):
        def start(self):
            raise DiskFullError("The disk is full.")

    engines = [
        EngineProcess(EngineConfig(model="a"), log_path=tmp_path / "a.log", start_timeout_s=60, command=COMMAND),
        Unstartable(EngineConfig(model="b"), log_path=tmp_path / "b.log", start_timeout_s=60, command=COMMAND),
    ]

    with pytest.raises(DiskFullError), EnginePool([RecoveringEngine(engine) for engine in engines]):
        pass

    assert (engines[0].starts, engines[0].pid) == (1, None)


def test_the_others_go_on_without_an_engine_that_fails_to_reload(pool, engines, tmp_path):
    pool.wait_ready()
    (tmp_path / "0").write_text("Its GPU fell off the bus.")
    os.kill(engines[0].pid, signal.SIGKILL)

    assert [pool.answer(batch) for batch in BATCHES] == ANSWERS

    (tmp_path / "1").write_text("This one, too.")
    os.kill(engines[1].pid, signal.SIGKILL)
    with pytest.raises(ModelError, match="fell off the bus"):
        pool.answer(BATCHES[0])
