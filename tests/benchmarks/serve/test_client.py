"""Clients of a benchmarked service report what it answers, and what went wrong."""

import json

import pytest

from benchmarks.serve.client import Body, Service, ask_all, summarize
from reelabel.errors import ReelabelError
from tests.http_server import Handler, serve

BODIES = [Body(str(number), b"{}") for number in range(8)]


class _Answering(Handler):
    def do_POST(self):
        self.read_body()
        self.respond(self.server.status, self.server.text)


def test_answers_are_measured_in_the_second_half():
    text = json.dumps({"stage_ms": {"decode": 2, "answer": 3}}).encode()
    with serve(_Answering, status=200, text=text) as server:
        row = summarize(2, ask_all(Service(server.url, "classify"), BODIES, clients=2))

    assert (row["clients"], row["requests"], row["failed"]) == (2, 4, 0)
    assert (row["stages"]["decode"], row["stages"]["answer"]) == (2, 3)


@pytest.mark.parametrize(("status", "text"), [(401, "Unknown token."), (200, "no JSON")])
def test_a_service_that_answers_nothing_is_reported_with_its_error(status, text):
    with serve(_Answering, status=status, text=text.encode()) as server:
        step = ask_all(Service(server.url, "classify"), BODIES, clients=1)

    assert len(step.errors) == len(BODIES)
    with pytest.raises(ReelabelError, match=r"answered 0 requests; its last error: \S+"):
        summarize(1, step)
