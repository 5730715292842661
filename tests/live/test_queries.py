"""Conversation, cancelled questions, deadlines and standing questions, with a scripted model."""

import json
import threading
import time

import pytest

from reelabel_engine.errors import InferenceError, PromptTooLongError
from tasks.live.messages import ProtocolError, parse_message
from tests.live.client import Client, ask, config, frame, send_frames, start
from tests.live.scripted_model import ScriptedModel
from tests.wait import until

pytestmark = pytest.mark.xdist_group("live_sessions")
CHOICES = ["yes", "no"]


class LoadingModel(ScriptedModel):
    """A model whose engine loads until a test lets it go on."""

    def __init__(self):
        super().__init__()
        self.may_load = threading.Event()

    def ask(self, prefix, query):
        self.requests.append((prefix, query))
        assert self.may_load.wait(60)
        yield from super().ask(prefix, query)


def query(text="?", **fields):
    return {"type": "video.query", "text": text, **fields}


def turns_of(model):
    return [[question for question, _ in query.turns] for _, query in model.requests]


def test_a_question_in_words_sees_the_last_ones_with_their_answers(begin):
    model = ScriptedModel()
    client = start(begin, model, history=2)
    send_frames(client, [0])
    ask(client, "a")
    ask(client, "choose", choices=CHOICES)
    ask(client, "b")
    assert [ask(client, name)["turns"] for name in "cd"] == [2, 2]
    assert turns_of(model) == [[], [], ["a"], ["a", "b"], ["b", "c"]]
    assert model.requests[2][1].turns == (("a", "0"),)
    assert model.requests[1][1].text.startswith("choose\n")


def test_without_a_history_each_question_stands_alone_and_by_default_eight_are_seen(begin):
    model = ScriptedModel()
    client = start(begin, model, history=0)
    send_frames(client, [0])
    assert [ask(client)["turns"] for _ in range(3)] == [0, 0, 0]
    client = start(begin, model)
    send_frames(client, [0])
    assert [ask(client)["turns"] for _ in range(10)] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 8]


def test_a_history_that_does_not_fit_is_shortened(begin):
    class Narrow(ScriptedModel):
        def ask(self, prefix, query):
            if len(query.turns) > 1:
                raise PromptTooLongError("The prompt has 9 tokens.")
            yield from super().ask(prefix, query)

    client = start(begin, Narrow())
    send_frames(client, [0])
    assert [ask(client, name)["turns"] for name in "abcde"] == [0, 1, 1, 1, 1]


def test_a_tokenizer_is_given_no_more_text_at_once_than_one_question_may_have(begin):
    client = start(begin, system_prompt="s" * 5_000)
    send_frames(client, [0])
    assert [ask(client, name * 30_000)["turns"] for name in "abcd"] == [0, 1, 2, 2]
    for fields in ({}, {"choices": CHOICES}):
        with pytest.raises(ProtocolError, match="100,000 are allowed"):
            client.send(query("x" * 99_000, **fields))


def test_a_question_that_is_too_long_does_not_wait_for_its_turn(begin):
    model = ScriptedModel()
    model.may_answer.clear()
    client = start(begin, model)
    send_frames(client, [0])
    client.send(query("a"))
    long = {"choices": ["x" * 3_990 + str(number) for number in range(26)], "query_id": "q"}
    for fields in (long, long | {"every_s": 1}):
        with pytest.raises(ProtocolError, match="100,000 are allowed") as raised:
            client.send(query("?", **fields))
        assert raised.value.code == "prompt_too_long"
    stats = client.session.stats()
    assert (stats.queries, stats.waiting) == (1, 1)
    model.may_answer.set()


def test_a_question_that_failed_is_not_part_of_the_conversation(begin):
    model = ScriptedModel()
    model.fails_with = InferenceError("No.")
    client = start(begin, model)
    send_frames(client, [0])
    client.exchange(query("a"), "error")
    model.fails_with = None
    assert ask(client, "b")["turns"] == 0


def test_an_answer_that_is_being_written_is_cancelled_with_the_text_so_far(begin):
    records, model = {}, ScriptedModel()
    model.may_go_on.clear()
    client = Client(begin(model, None, 4, records).open(config()))
    send_frames(client, [0, 60])
    client.exchange(query("a", query_id="q"), "response.text.delta")
    done = client.exchange({"type": "response.cancel"}, "response.done")
    assert (done["finish_reason"], done["text"], done["query_id"], done["frames_used"]) == ("cancelled", "0", "q", 2)
    assert client.last("response.text.done")["text"] == "0"
    [row] = records[client.session.session_id].rows
    assert (row["question"], row["query"], row["code"], row["frames"]) == ("a", 0, "cancelled", (0, 1))
    model.may_go_on.set()
    assert ask(client, "b")["turns"] == 0


def test_a_question_that_waits_is_cancelled_by_its_id_and_the_others_are_answered(begin):
    model = ScriptedModel()
    model.may_answer.clear()
    client = start(begin, model)
    send_frames(client, [0])
    for name in "abc":
        client.send(query(name, query_id=name))
    until(lambda: model.requests)
    client.send({"type": "response.cancel", "query_id": "b"})
    model.may_answer.set()
    done = [event for event in client.until("response.done", 3) if event["type"] == "response.done"]
    assert [(each["query_id"], each["finish_reason"]) for each in done] == [
        ("a", "stop"),
        ("b", "cancelled"),
        ("c", "stop"),
    ]
    assert done[1]["first_token_ms"] is None
    assert [query.text for _, query in model.requests] == ["a", "c"]


def test_a_new_question_interrupts_those_before_it(begin):
    model = ScriptedModel()
    model.may_answer.clear()
    client = start(begin, model)
    send_frames(client, [0])
    for name in "ab":
        client.send(query(name, query_id=name))
    until(lambda: model.requests)
    client.send(query("c", query_id="c", interrupt=True))
    client.until("response.done", 2, finish_reason="cancelled")
    model.may_answer.set()
    assert client.last("response.done")["query_id"] == "c"


def test_nothing_to_cancel_is_reported(begin):
    client = start(begin)
    for more in ({}, {"query_id": "x"}):
        notice = client.exchange({"type": "response.cancel", **more}, "session.notice")
        assert (notice["code"], notice["query_id"]) == ("nothing_cancelled", more.get("query_id"))


def test_a_client_that_leaves_ends_its_answer(begin):
    model = ScriptedModel()
    model.may_go_on.clear()
    client = start(begin, model)
    send_frames(client, [0])
    client.exchange(query(), "response.text.delta")
    client.session.end("client_left")
    assert client.last("session.closed")["reason"] == "client_left"
    until(lambda: not [each for each in threading.enumerate() if each.name == "live-answer"])


def test_all_pieces_of_an_answer_are_awaited_in_one_thread(begin):
    threads = set()

    class Noting(ScriptedModel):
        def ask(self, prefix, query):
            for piece in super().ask(prefix, query):
                threads.add(threading.current_thread())
                yield piece

    client = start(begin, Noting())
    send_frames(client, [0, 120, 240])
    assert ask(client)["text"] == "0 1 2"
    assert len(threads) == 1


@pytest.mark.parametrize("of", ["query", "session"])
def test_a_question_that_takes_too_long_ends(begin, of):
    records, model = {}, ScriptedModel()
    model.may_answer.clear()
    limit = {"deadline_s": 0.2}
    client = Client(begin(model, None, 4, records).open(config(**limit if of == "session" else {})))
    send_frames(client, [0])
    error = client.exchange(query(query_id="q", **limit if of == "query" else {}), "error")
    assert (error["code"], error["query_id"], error["is_fatal"]) == ("deadline_exceeded", "q", False)
    [row] = records[client.session.session_id].rows
    assert (row["code"], row["message"]) == ("deadline_exceeded", "The question was not answered within 0.2 seconds.")
    assert [row[name] for name in ("prompt_tokens", "cached_tokens", "output_tokens")] == [0, 0, 0]
    assert row["total_ms"] >= 200
    model.may_answer.set()
    assert ask(client, "b", deadline_s=60)["query"] == 1


def test_a_query_that_is_sent_again_is_answered_once(begin):
    client = start(begin)
    send_frames(client, [0])
    client.send(query("a", query_id="a", again=True))
    client.until("response.text.done")
    client.send(query("a", query_id="a", again=True))
    assert ask(client, "b", query_id="b")["query"] == 1
    assert ask(client, "c", query_id="a")["query"] == 2, "only what says so is a repetition"


def test_another_question_under_a_known_id_is_no_repetition(begin):
    """As a client sends it that replaces its standing question while the connection is lost."""
    model = ScriptedModel()
    client = start(begin, model, enable_frame_filter=False)
    send_frames(client, [0])
    client.send(query("old", query_id="s", every_s=1, choices=CHOICES))
    client.last("response.text.done")
    client.send(query("new", query_id="s", every_s=1, choices=CHOICES, again=True))
    client.last("response.text.done")
    client.send(query("new", query_id="s", every_s=1, choices=CHOICES, again=True))
    send_frames(client, [0], first_s=1)
    client.last("response.text.done")
    assert [query.text[:3] for _, query in model.requests] == ["old", "new", "new"]
    assert client.session.stats().queries == 3


def standing_answers(client, count):
    return [event for event in client.until("response.done", count) if event["type"] == "response.done"]


def test_a_standing_question_is_asked_as_the_frames_time_goes_on(begin):
    records = {}
    client = Client(begin(None, None, 4, records).open(config(enable_frame_filter=False)))
    client.send(query("a", query_id="s", every_s=2))  # before there is a frame
    done = []
    for at in range(7):
        client.send(frame(0, time_s=at))
        client.until("frame.ack")
        done += standing_answers(client, 1) if at % 2 == 0 else []
    assert [(each["query_id"], each["query"], each["last_frame_s"]) for each in done] == [
        ("s", number, 2 * number) for number in range(4)
    ]
    assert [row["query"] for row in records[client.session.session_id].rows] == [0, 1, 2, 3]
    notice = client.exchange({"type": "response.cancel", "query_id": "s"}, "session.notice")
    assert (notice["code"], notice["query_id"]) == ("standing_ended", "s")
    send_frames(client, [0] * 3, first_s=7)
    assert ask(client)["query"] == 4


def test_similar_frames_move_the_time_of_a_standing_question(begin):
    client = start(begin)
    client.send(query("a", query_id="s", every_s=1, choices=CHOICES))
    for at in range(3):
        client.send(frame(0, time_s=at))
        assert client.last("response.done")["query"] == at


def test_a_standing_question_is_answered_only_when_its_label_changes_clearly(begin):
    records, model = {}, ScriptedModel()
    model.probabilities = [(p, 1 - p) for p in (0.9, 0.8, 0.45, 0.52, 0.3, 0.45, 0.55, 0.7)]
    client = Client(begin(model, None, 4, records).open(config()))
    client.send(query("a", query_id="s", on_change=True, every_s=1, choices=CHOICES))
    events = []
    for at in range(8):
        client.send(frame(0, time_s=at))
        events += client.until("frame.ack")
        until(lambda seen=at: len(model.requests) == seen + 1 and not client.session.stats().waiting)
    assert model.probabilities == []
    client.send({"type": "video.done"})
    events += client.until("session.closed")
    done = [event for event in events if event["type"] == "response.done"]
    assert [(each["text"], each["query"], each["last_frame_s"]) for each in done] == [
        ("yes", 0, 0),
        ("no", 1, 0),
        ("yes", 2, 0),
    ]
    assert [event["type"] for event in events].count("response.start") == 3
    assert [row["query"] for row in records[client.session.session_id].rows] == [0, 1, 2]
    assert client.session.stats().queries == 3


def test_a_standing_question_that_fails_says_so_once_and_goes_on(begin):
    model = ScriptedModel()
    model.fails_with = InferenceError("No.")
    client = start(begin, model)
    client.send(query("a", query_id="s", every_s=1, choices=CHOICES))
    events = []
    for at in range(6):
        model.fails_with = InferenceError("No.") if at != 3 else None
        client.send(frame(0, time_s=at))
        events += client.until("frame.ack")
        until(lambda seen=at: len(model.requests) == seen + 1 and not client.session.stats().waiting)
    client.send({"type": "video.done"})
    events += client.until("session.closed")
    ends = [event.get("code", "done") for event in events if event["type"] in {"error", "response.done"}]
    assert ends == ["query_failed", "done", "query_failed"]


def test_a_slow_model_is_not_asked_a_standing_question_twice_at_once(begin):
    model = ScriptedModel()
    model.may_answer.clear()
    client = start(begin, model)
    client.send(query("a", query_id="s", every_s=1, choices=CHOICES))
    send_frames(client, [0] * 20)
    assert client.session.stats().waiting == 1
    model.may_answer.set()


@pytest.mark.parametrize("ending", ["deadline", "cancel"])
def test_a_question_ends_while_an_engine_that_was_lost_still_loads(begin, ending):
    model = LoadingModel()
    client = start(begin, model)
    send_frames(client, [0])
    client.send(query("a", query_id="a", **({"deadline_s": 0.1} if ending == "deadline" else {})))
    until(lambda: model.requests)
    if ending == "cancel":
        client.send({"type": "response.cancel", "query_id": "a"})
        assert client.last("response.done")["finish_reason"] == "cancelled"
    else:
        assert client.last("error")["code"] == "deadline_exceeded"
    model.may_load.set()
    assert ask(client, "b")["query"] == 1


def test_abandoned_questions_keep_no_more_than_one_thread(begin):
    model = LoadingModel()
    client = start(begin, model)
    send_frames(client, [0])
    for _ in range(5):
        client.send(query("a", deadline_s=0.1))
        assert client.last("error")["code"] == "deadline_exceeded"
    assert len(model.requests) == 1
    model.may_load.set()
    assert ask(client, "b")["query"] == 5


def test_a_question_whose_time_is_over_when_its_turn_comes_is_not_asked(begin):
    model = ScriptedModel()
    model.may_answer.clear()
    client = start(begin, model)
    send_frames(client, [0])
    client.send(query("a"))
    client.send(query("b", query_id="b", deadline_s=0.05))
    until(lambda: model.requests)
    time.sleep(0.1)
    model.may_answer.set()
    assert client.last("error")["query_id"] == "b"
    assert [query.text for _, query in model.requests] == ["a"]


def test_a_question_interrupts_as_many_as_may_wait(begin):
    model = ScriptedModel()
    model.may_answer.clear()
    client = start(begin, model)
    send_frames(client, [0])
    for _ in range(64):
        client.send(query())
    client.send(query("last", query_id="last", interrupt=True))
    model.may_answer.set()
    assert client.last("response.done", finish_reason="stop")["query_id"] == "last"


def test_a_client_does_not_cancel_a_standing_question_of_which_it_has_not_heard(begin):
    model = ScriptedModel()
    model.may_answer.clear()
    client = start(begin, model)
    client.send(query("a", query_id="s", on_change=True, choices=CHOICES))
    send_frames(client, [0])
    until(lambda: model.requests)
    assert client.exchange({"type": "response.cancel"}, "session.notice")["code"] == "nothing_cancelled"
    client.send(query("b", query_id="b"))
    client.send({"type": "response.cancel"})
    model.may_answer.set()
    done = [event for event in client.until("response.done", 2) if event["type"] == "response.done"]
    assert [(each["query_id"], each["finish_reason"]) for each in done] == [("s", "stop"), ("b", "cancelled")]


def test_a_standing_question_has_its_time_from_when_it_is_asked(begin):
    """However long ago the last frame arrived."""
    client = start(begin)
    send_frames(client, [0])
    time_s, arrived_s = client.session._intake.window.clock
    client.session._intake.window.clock = time_s, arrived_s - 3600
    client.send(query("a", query_id="s", every_s=1, choices=CHOICES, deadline_s=600))
    assert client.last("response.done")["total_ms"] < 600_000


def test_a_standing_question_that_is_replaced_is_answered_no_more(begin):
    model = ScriptedModel()
    model.may_answer.clear()
    client = start(begin, model)
    client.send(query("old", query_id="s", every_s=1, choices=CHOICES))
    send_frames(client, [0])
    until(lambda: model.requests)
    client.send(query("new", query_id="s", every_s=1, choices=CHOICES))
    assert client.last("response.done")["finish_reason"] == "cancelled"
    model.may_answer.set()
    assert client.last("response.done")["finish_reason"] == "stop"
    assert model.requests[-1][1].text.startswith("new")


def test_a_frame_that_cannot_be_read_does_not_move_the_time_of_a_standing_question(begin):
    client = start(begin)
    client.send(query("a", query_id="s", every_s=1, choices=CHOICES))
    send_frames(client, [0])
    client.last("response.done")
    client.exchange({"type": "video.frame", "data": "aGVsbG8=", "time_s": 1e6}, "error")
    send_frames(client, [60], first_s=1)
    assert client.last("response.done")["query"] == 1


def test_standing_questions_have_a_limit(begin):
    client = start(begin)
    for number in range(16):
        client.send(query(query_id=str(number), every_s=1))
    client.send(query("another text", query_id="3", every_s=1))  # replaces
    with pytest.raises(ProtocolError, match="16 standing questions already; cancel one first"):
        client.send(query(query_id="16", every_s=1))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"every_s": 1}, "needs a query_id"),
        ({"on_change": True, "query_id": "q"}, "a question with on_change needs choices"),
        ({"change_margin": 0.1}, "change_margin needs on_change"),
        ({"every_s": 0.01, "query_id": "q"}, "every_s must be"),
    ],
)
def test_an_invalid_standing_question_is_named(fields, message):
    with pytest.raises(ProtocolError, match=message):
        parse_message(json.dumps(query(**fields)))
