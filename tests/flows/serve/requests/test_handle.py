"""Slots of requests, work in threads, clients that go away meanwhile, and work that takes too long."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from flows.serve.errors import ClientGoneError, RequestError
from flows.serve.requests.handle import RequestSlots, run_cancellable
from infra.logs import in_context
from reelabel.waiting import raise_if_abandoned


def test_a_request_without_a_slot_is_refused_with_when_to_try_again():
    slots = RequestSlots(1)

    with slots.acquire("classify"), pytest.raises(RequestError) as raised, slots.acquire("classify"):
        pass

    assert (raised.value.code, raised.value.status) == ("busy", 429)
    assert raised.value.retry_after_s >= 1


def test_a_slot_is_free_again_however_its_request_ended():
    slots = RequestSlots(1)

    with pytest.raises(ZeroDivisionError), slots.acquire("classify"):
        raise ZeroDivisionError
    with slots.acquire("classify"):
        assert slots.taken == 1

    assert slots.taken == 0


class Client:
    """The request of a client that is there, or has gone."""

    def __init__(self, *, is_gone=False):
        self._is_gone = is_gone

    async def receive(self):
        if not self._is_gone:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}


@pytest.fixture
def threads():
    with ThreadPoolExecutor(1) as threads:
        yield threads


def working(threads, work, *, timeout_s=60.0, is_gone=False):
    return asyncio.run(run_cancellable(Client(is_gone=is_gone), threads, work, timeout_s=timeout_s))


def endless(ended):
    """Work for ten seconds, if nothing ends it."""
    try:
        for _ in range(200):
            ended.wait(0.05)
            raise_if_abandoned()
    finally:
        ended.set()


def test_work_is_done_in_a_thread_of_its_own(threads):
    assert working(threads, threading.current_thread) is not threading.current_thread()


def test_the_work_of_a_client_that_has_gone_ends_where_it_next_looks_and_not_before(threads):
    ended = threading.Event()

    with pytest.raises(ClientGoneError):
        working(threads, lambda: endless(ended), is_gone=True)
    assert ended.is_set()


def test_work_that_takes_too_long_is_ended_and_refused(threads):
    ended = threading.Event()

    with pytest.raises(RequestError, match=r"longer than 0\.3 seconds") as raised:
        working(threads, lambda: endless(ended), timeout_s=0.3)

    assert (raised.value.code, raised.value.status, ended.is_set()) == ("deadline_exceeded", 504, True)


def test_other_threads_that_work_for_a_request_end_with_it(threads):
    ended = threading.Event()

    def work():
        with ThreadPoolExecutor(1) as other_threads:
            return other_threads.submit(in_context(endless), ended).result()

    with pytest.raises(ClientGoneError):
        working(threads, work, is_gone=True)
    assert ended.is_set()


def test_an_error_of_the_work_is_raised(threads):
    with pytest.raises(ZeroDivisionError):
        working(threads, lambda: 1 / 0)
