"""Questions of a batch whose server ends or is away: each is asked until it has a reply, or has ended the server."""

import pytest

from flows.shard.context import answer_through_outages
from infra.errors import ServerUnavailableError
from reelabel_engine.protocol import Batch, Question, Rejected

pytestmark = pytest.mark.usefixtures("no_pauses")


class Server:
    """Ends each time as the next of its faults says, and then answers everything.

    A fault is which questions of the batch are answered nevertheless, and which ones ended the server.
    """

    def __init__(self, *faults):
        self.faults, self.batches, self.waits = [*faults], [], 0

    def wait_ready(self):
        self.waits += 1

    def answer(self, batch):
        names = "".join(question.text for question in batch.questions)
        self.batches.append(f"{names}!" if batch.is_alone else names)
        if not self.faults:
            return [*names.upper()]
        answered, ended = self.faults.pop(0)
        error = ServerUnavailableError("Away.")
        error.replies = {names.index(each): each.upper() for each in answered}
        error.faults = {names.index(each): [ServerUnavailableError("Crashed.")] for each in ended}
        raise error


def ask(server, names="abc"):
    questions = tuple(Question(video_id="v", text=name, system_prompt=None, choices=("x", "y")) for name in names)
    return answer_through_outages(server, Batch(frame_files={"v": b""}, questions=questions))


@pytest.mark.parametrize(
    ("faults", "batches"),
    [
        pytest.param([], ["abc"], id="no outage"),
        pytest.param([("", "")], ["abc", "abc"], id="away"),
        pytest.param([("ac", "")], ["abc", "b"], id="away, with some replies"),
        pytest.param([("a", "b")], ["abc", "c", "b!"], id="ended by one question"),
        pytest.param([("", "ab")], ["abc", "c", "a!", "b!"], id="ended by two questions"),
        pytest.param([("ac", "b"), ("", "b")], ["abc", "b!", "b!"], id="ended by it alone, once"),
        pytest.param([("", "")] * 5, ["abc"] * 6, id="away five times in a row"),
        pytest.param(
            [*[("", "")] * 5, ("a", ""), *[("", "")] * 5],
            [*["abc"] * 6, *["bc"] * 6],
            id="away five times in a row, again",
        ),
    ],
)
def test_what_has_no_reply_is_asked_again(faults, batches):
    server = Server(*faults)

    assert ask(server) == ["A", "B", "C"]
    assert (server.batches, server.waits) == (batches, len(faults))


def test_a_question_that_ends_the_server_twice_while_it_is_alone_fails():
    server = Server(("ac", "b"), ("", "b"), ("", "b"))

    first, second, third = ask(server)

    assert (first, third) == ("A", "C")
    assert isinstance(second, Rejected)
    assert second.code == "server_failed"
    assert server.batches == ["abc", "b!", "b!"]


def test_a_server_that_answers_nothing_six_times_in_a_row_ends_the_shard():
    server = Server(*[("", "")] * 6)

    with pytest.raises(ServerUnavailableError):
        ask(server)

    assert server.batches == ["abc"] * 6
