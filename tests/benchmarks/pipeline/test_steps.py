"""Steps of a long benchmark: what is kept, what fails, and what is left."""

import pytest

from benchmarks.pipeline.gpu import Steps
from reelabel_engine.errors import ModelError


@pytest.fixture
def begin(tmp_path):
    return lambda minutes=None: Steps(tmp_path / "new" / "figures.json", minutes=minutes, on_progress=lambda _: None)


def never():
    pytest.fail("measured twice")


def test_a_step_is_measured_once(begin):
    assert begin().take("a", lambda: {"ms": (1, 2)}) == {"ms": [1, 2]}

    assert begin().take("a", never) == {"ms": [1, 2]}


def test_a_step_that_failed_is_tried_again(begin):
    def fail():
        raise ModelError("no GPU")

    first = begin()
    assert first.take("a", fail) is None
    assert first.failures == {"a": "no GPU"}

    assert begin().take("a", lambda: 2) == 2


def test_no_step_begins_late_but_what_is_known_is_reported(begin):
    begin().take("a", lambda: 1)
    late = begin(minutes=0)

    assert (late.take("a", never), late.take("b", never)) == (1, None)
    assert late.left == ["b"]
