"""Work in progress: how much at a time, and in which order it is waited for."""

import pytest

from flows.run.pipeline import in_flight


@pytest.mark.parametrize(
    ("items", "limit", "happened"),
    [
        pytest.param([*"abc"], 1, "AaBbCc", id="one at a time"),
        pytest.param([*"abcd"], 3, "ABCaDbcd", id="the oldest is waited for to make room"),
        pytest.param([*"ab"], 3, "ABab", id="fewer than there is room for"),
        pytest.param(["a", "b", None, "c"], 3, "ABaCbc", id="the oldest is waited for if nothing comes"),
        pytest.param([None, "a", None, None], 3, "-Aa-", id="nothing to wait for"),
    ],
)
def test_the_oldest_work_is_waited_for_when_there_is_no_room_or_nothing_to_start(items, limit, happened):
    """An item is started in upper case, and waited for in lower case."""
    steps = []

    def start(item):
        steps.append(item.upper())
        return item

    steps.extend(oldest or "-" for oldest in in_flight(items, start, limit=limit))

    assert "".join(steps) == happened
