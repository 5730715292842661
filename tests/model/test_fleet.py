import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest

from tasks.model.fleet import EngineFleet
from tasks.model.identity import TINY_MODEL
from tasks.model.process import EngineProcess
from tasks.model.questions import Batch, EngineConfig
from tasks.model.recovery import RecoveringEngine
from tests.model.test_process import frame_file, question


def test_engines_share_the_batches_and_a_lost_one_is_started_again_while_the_other_goes_on(tmp_path):
    config = EngineConfig(model=str(TINY_MODEL))
    engines = [EngineProcess(config, log_path=tmp_path / f"{number}.log", start_timeout_s=240) for number in range(2)]
    batches = [Batch(frame_files={"v": frame_file(seed)}, questions=(question(),)) for seed in range(4)]
    with EngineFleet([RecoveringEngine(engine) for engine in engines]) as fleet, ThreadPoolExecutor(5) as threads:
        info = fleet.wait_ready()
        assert (info.device, info.gpus, fleet.engines) == ("cpu", 0, 2)
        together = list(threads.map(fleet.ask, batches))

        # Nothing else is asked meanwhile, so that the first of the idle ones takes the batch.
        os.kill(engines[0].pid, signal.SIGKILL)
        lost = threads.submit(fleet.ask, batches[0])
        while engines[0].starts == 1:
            time.sleep(0.01)
        other = engines[1].pid
        while_loading = [fleet.ask(batch) for batch in batches]
        assert not lost.done()
        recovered = [lost.result()[0], *(engines[0].ask(batch)[0] for batch in batches[1:])]

        assert [engine.starts for engine in engines] == [2, 1]
        assert engines[1].pid == other

    assert [engine.pid for engine in engines] == [None, None]
    answers = zip(chain.from_iterable(together), chain.from_iterable(while_loading), recovered, strict=True)
    for first, *others in answers:
        assert all(one.probabilities == pytest.approx(first.probabilities, abs=1e-4) for one in others)
