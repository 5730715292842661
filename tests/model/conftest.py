"""Processes with the stub engine in them."""

import pytest

from reelabel_engine.protocol import EngineConfig
from tasks.model.engine.process import EngineProcess
from tests import stub_engine


@pytest.fixture
def make_engine(tmp_path):
    """Make processes of the stub engine, which loads `tmp_path / "model"`; each ends with the test."""
    engines = []

    def make(kind=EngineProcess, *, start_timeout_s=60, answer_timeout_s=600, **config):
        engines.append(
            kind(
                EngineConfig(**{"model": str(tmp_path / "model")} | config),
                log_path=tmp_path / "engine.log",
                start_timeout_s=start_timeout_s,
                answer_timeout_s=answer_timeout_s,
                command=stub_engine.COMMAND,
            )
        )
        engines[-1].start()
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()
