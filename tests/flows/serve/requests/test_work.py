"""Work in threads, and clients that go away meanwhile."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from flows.serve.refusals import ClientGoneError
from flows.serve.requests.work import in_thread


class Client:
    """The request of a client that is there, or has gone."""

    def __init__(self, *, is_gone):
        self._is_gone = is_gone

    async def is_disconnected(self):
        return self._is_gone


@pytest.fixture
def threads():
    with ThreadPoolExecutor(1) as threads:
        yield threads


def test_work_is_done_in_a_thread_of_its_own(threads):
    def work(go_on):
        go_on()
        return threading.current_thread()

    assert asyncio.run(in_thread(Client(is_gone=False), threads, work)) is not threading.current_thread()


def test_the_work_of_a_client_that_has_gone_ends_at_its_next_stage_and_not_before(threads):
    ended = threading.Event()

    def work(go_on):
        try:
            for _ in range(200):  # ten seconds of stages, if nothing ends them
                ended.wait(0.05)
                go_on()
        finally:
            ended.set()

    with pytest.raises(ClientGoneError):
        asyncio.run(in_thread(Client(is_gone=True), threads, work))
    assert ended.is_set()


def test_an_error_of_the_work_is_raised(threads):
    with pytest.raises(ZeroDivisionError):
        asyncio.run(in_thread(Client(is_gone=False), threads, lambda _: 1 / 0))
