"""How long an unavailable service is waited for."""

import contextvars

import prefect.main  # noqa: F401 - sets up logging, which would enable what is disabled here
import pytest
from prefect.logging import disable_run_logger

from flows.shard import retry
from flows.shard.retry import cancel_waits_at_exit, retry_faults, retry_outage
from infra.errors import DatabaseUnavailableError, EngineLostError
from reelabel.errors import DiskFullError, StoreUnavailableError


@pytest.fixture(autouse=True)
def slept_s(monkeypatch):
    """Let time pass by sleeping alone; gives for how long it was slept."""
    slept = []
    monkeypatch.setattr(retry.time, "monotonic", lambda: sum(slept))
    monkeypatch.setattr(retry.threading.Event, "wait", lambda event, delay_s: slept.append(delay_s) or event.is_set())
    with disable_run_logger():
        yield slept


class Service:
    """Answers once `away_s` seconds have passed."""

    def __init__(self, slept_s, away_s):
        self._slept_s, self._away_s = slept_s, away_s

    def __call__(self):
        if sum(self._slept_s) < self._away_s:
            raise StoreUnavailableError("The store is away.")
        return "here"


def test_a_service_is_waited_for_ten_minutes_and_asked_ever_less_often(slept_s):
    assert retry_outage(Service(slept_s, 570)) == "here"
    assert slept_s[:5] == [2, 10, 30, 30, 30]
    assert sum(slept_s) < 600


def test_a_service_that_stays_away_is_waited_for_no_longer(slept_s):
    with pytest.raises(StoreUnavailableError) as raised:
        retry_outage(Service(slept_s, 700))

    assert raised.value.retries_exhausted
    assert 560 < sum(slept_s) <= 600


def test_an_error_after_which_a_call_waited_in_vain_is_not_waited_for_again(slept_s):
    with pytest.raises(StoreUnavailableError):
        retry_outage(lambda: retry_outage(Service(slept_s, 1e6)))

    assert sum(slept_s) <= 600


def test_a_call_with_a_fault_of_its_own_is_tried_four_times_and_may_be_tried_later(slept_s):
    tries = []

    def fail():
        tries.append(1)
        raise StoreUnavailableError("One object is broken.")

    with pytest.raises(StoreUnavailableError, match="One object") as raised:
        retry_faults(fail, {StoreUnavailableError: Service(slept_s, 0)})

    assert (len(tries), slept_s) == (4, [2, 10, 30])
    assert not raised.value.retries_exhausted


def test_a_call_is_done_again_once_its_service_is_back(slept_s):
    assert retry_faults(Service(slept_s, 300), {StoreUnavailableError: Service(slept_s, 300)}) == "here"

    slept_s.clear()
    with pytest.raises(StoreUnavailableError) as raised:
        retry_faults(Service(slept_s, 700), {StoreUnavailableError: Service(slept_s, 700)})
    assert raised.value.retries_exhausted


def test_nobody_waits_on_once_the_work_that_waits_is_over(slept_s):
    tries = []

    def fail():
        tries.append(1)
        raise StoreUnavailableError("The store is away.")

    with cancel_waits_at_exit():
        waiting = contextvars.copy_context()  # as Prefect's tasks take theirs along
    for wait in (lambda: retry_outage(fail), lambda: retry_faults(fail, {StoreUnavailableError: Service(slept_s, 0)})):
        with pytest.raises(StoreUnavailableError):
            waiting.run(wait)
    assert len(tries) == 2


def fail_always(error):
    def fail():
        raise error

    return fail


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(EngineLostError("The engine died."), id="no service"),
        pytest.param(DatabaseUnavailableError("Not asked here."), id="another service"),
        pytest.param(DiskFullError("The disk of /x is full."), id="a full disk"),
    ],
)
def test_a_service_that_is_not_at_fault_is_not_asked(slept_s, error):
    with pytest.raises(type(error), match=str(error)):
        retry_faults(fail_always(error), {StoreUnavailableError: lambda: pytest.fail("asked")})

    assert slept_s == [2, 10, 30]


def test_a_fault_of_our_own_is_raised_at_once(slept_s):
    with pytest.raises(ValueError, match="Our own"):
        retry_faults(fail_always(ValueError("Our own fault.")), {})

    assert slept_s == []


def test_the_last_failure_is_raised_once_its_service_is_back(slept_s):
    with pytest.raises(StoreUnavailableError, match="A part") as raised:
        retry_faults(
            fail_always(StoreUnavailableError("A part of a video was not read.")),
            {StoreUnavailableError: Service(slept_s, 300)},
        )

    assert sum(slept_s) >= 300
    assert not raised.value.retries_exhausted  # the work is worth another try
