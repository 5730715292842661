"""An extractor of the shard's clips, and attempts without pauses."""

import pytest
from prefect.logging import disable_run_logger

from flows.shard import retry
from tests.clips import make_clip
from tests.factories import make_extractor

__all__ = ["make_clip"]


@pytest.fixture
def extractor(tmp_path, pool):
    return make_extractor(tmp_path, pool)


@pytest.fixture
def no_pauses(monkeypatch):
    monkeypatch.setattr(retry, "RETRY_DELAYS_S", (0.01,) * 3)
    with disable_run_logger():
        yield
