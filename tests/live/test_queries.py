"""Conversation, cancelled questions, deadlines and standing questions, with a scripted model."""

import json
import threading

import pytest

from reelabel_engine.errors import InferenceError, PromptTooLongError
from tasks.live.messages import ProtocolError, parse_message
from tests.live.client import Told, ask, config, frame, send_frames, start
from tests.live.scripted_model import ScriptedModel
from tests.wait import until

pytestmark = pytest.mark.xdist_group("live_sessions")
CHOICES = ["yes", "no"]


def query(text="?", **fields):
    return {"type": "video.query", "text": text, **fields}


def turns_of(model):
    return [[question for question, _ in asked.turns] for _, asked in model.asked]


def test_a_question_in_words_sees_the_last_ones_with_their_answers(begin):
    model = ScriptedModel()
    told = start(begin, model, history=2)
    send_frames(told, [0])
    ask(told, "a")
    ask(told, "choose", choices=CHOICES)
    ask(told, "b")
    assert [ask(told, name)["turns"] for name in "cd"] == [2, 2]
    assert turns_of(model) == [[], [], ["a"], ["a", "b"], ["b", "c"]]
    assert model.asked[2][1].turns == (("a", "0"),)
    assert model.asked[1][1].text.startswith("choose\n")


def test_without_a_history_each_question_stands_alone_and_by_default_eight_are_seen(begin):
    model = ScriptedModel()
    told = start(begin, model, history=0)
    send_frames(told, [0])
    assert [ask(told)["turns"] for _ in range(3)] == [0, 0, 0]
    told = start(begin, model)
    send_frames(told, [0])
    assert [ask(told)["turns"] for _ in range(10)] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 8]


def test_a_history_that_does_not_fit_is_shortened(begin):
    class Narrow(ScriptedModel):
        def ask(self, prefix, query):
            if len(query.turns) > 1:
                raise PromptTooLongError("The prompt has 9 tokens.")
            yield from super().ask(prefix, query)

    told = start(begin, Narrow())
    send_frames(told, [0])
    assert [ask(told, name)["turns"] for name in "abcde"] == [0, 1, 1, 1, 1]


def test_a_question_that_failed_is_not_part_of_the_conversation(begin):
    model = ScriptedModel()
    model.fails_with = InferenceError("No.")
    told = start(begin, model)
    send_frames(told, [0])
    told.exchange(query("a"), "error")
    model.fails_with = None
    assert ask(told, "b")["turns"] == 0


def test_an_answer_that_is_being_written_is_cancelled_with_the_text_so_far(begin):
    records, model = {}, ScriptedModel()
    model.may_go_on.clear()
    told = Told(begin(model, None, 4, records).open(config()))
    send_frames(told, [0, 60])
    told.exchange(query("a", query_id="q"), "response.text.delta")
    done = told.exchange({"type": "response.cancel"}, "response.done")
    assert (done["finish_reason"], done["text"], done["query_id"], done["frames_used"]) == ("cancelled", "0", "q", 2)
    assert told.last("response.text.done")["text"] == "0"
    [row] = records[told.session.session_id].rows
    assert (row["question"], row["query"], row["code"], row["frames"]) == ("a", 0, "cancelled", (0, 1))
    model.may_go_on.set()
    assert ask(told, "b")["turns"] == 0


def test_a_question_that_waits_is_cancelled_by_its_id_and_the_others_are_answered(begin):
    model = ScriptedModel()
    model.may_answer.clear()
    told = start(begin, model)
    send_frames(told, [0])
    for name in "abc":
        told.send(query(name, query_id=name))
    until(lambda: model.asked)
    told.send({"type": "response.cancel", "query_id": "b"})
    model.may_answer.set()
    done = [event for event in told.until("response.done", 3) if event["type"] == "response.done"]
    assert [(each["query_id"], each["finish_reason"]) for each in done] == [
        ("a", "stop"),
        ("b", "cancelled"),
        ("c", "stop"),
    ]
    assert done[1]["first_token_ms"] is None
    assert [asked.text for _, asked in model.asked] == ["a", "c"]


def test_a_new_question_interrupts_those_before_it(begin):
    model = ScriptedModel()
    model.may_answer.clear()
    told = start(begin, model)
    send_frames(told, [0])
    for name in "ab":
        told.send(query(name, query_id=name))
    until(lambda: model.asked)
    told.send(query("c", query_id="c", interrupt=True))
    told.until("response.done", 2, finish_reason="cancelled")
    model.may_answer.set()
    assert told.last("response.done")["query_id"] == "c"


def test_nothing_to_cancel_is_told(begin):
    told = start(begin)
    for more in ({}, {"query_id": "x"}):
        notice = told.exchange({"type": "response.cancel", **more}, "session.notice")
        assert (notice["code"], notice["query_id"]) == ("nothing_cancelled", more.get("query_id"))


def test_a_client_that_leaves_ends_its_answer(begin):
    model = ScriptedModel()
    model.may_go_on.clear()
    told = start(begin, model)
    send_frames(told, [0])
    told.exchange(query(), "response.text.delta")
    told.session.end("client_left")
    assert told.last("session.closed")["reason"] == "client_left"
    until(lambda: not [each for each in threading.enumerate() if each.name == "live-answer"])


def test_all_pieces_of_an_answer_are_awaited_in_one_thread(begin):
    threads = set()

    class Noting(ScriptedModel):
        def ask(self, prefix, query):
            for piece in super().ask(prefix, query):
                threads.add(threading.current_thread())
                yield piece

    told = start(begin, Noting())
    send_frames(told, [0, 120, 240])
    assert ask(told)["text"] == "0 1 2"
    assert len(threads) == 1


@pytest.mark.parametrize("of", ["query", "session"])
def test_a_question_that_takes_too_long_ends(begin, of):
    records, model = {}, ScriptedModel()
    model.may_answer.clear()
    limit = {"deadline_s": 0.2}
    told = Told(begin(model, None, 4, records).open(config(**limit if of == "session" else {})))
    send_frames(told, [0])
    error = told.exchange(query(query_id="q", **limit if of == "query" else {}), "error")
    assert (error["code"], error["query_id"], error["is_fatal"]) == ("deadline_exceeded", "q", False)
    assert records[told.session.session_id].rows[0]["code"] == "deadline_exceeded"
    model.may_answer.set()
    assert ask(told, "b", deadline_s=60)["query"] == 1


def test_a_query_that_is_sent_again_is_answered_once(begin):
    told = start(begin)
    send_frames(told, [0])
    told.send(query("a", query_id="a", again=True))
    told.until("response.text.done")
    told.send(query("a", query_id="a", again=True))
    assert ask(told, "b", query_id="b")["query"] == 1
    assert ask(told, "c", query_id="a")["query"] == 2, "only what says so is a repetition"


def standing_answers(told, count):
    return [event for event in told.until("response.done", count) if event["type"] == "response.done"]


def test_a_standing_question_is_asked_as_the_frames_time_goes_on(begin):
    records = {}
    told = Told(begin(None, None, 4, records).open(config(enable_frame_filter=False)))
    told.send(query("a", query_id="s", every_s=2))  # before there is a frame
    done = []
    for at in range(7):
        told.send(frame(0, time_s=at))
        told.until("frame.ack")
        done += standing_answers(told, 1) if at % 2 == 0 else []
    assert [(each["query_id"], each["query"], each["last_frame_s"]) for each in done] == [
        ("s", number, 2 * number) for number in range(4)
    ]
    assert [row["query"] for row in records[told.session.session_id].rows] == [0, 1, 2, 3]
    notice = told.exchange({"type": "response.cancel", "query_id": "s"}, "session.notice")
    assert (notice["code"], notice["query_id"]) == ("standing_ended", "s")
    send_frames(told, [0] * 3, first_s=7)
    assert ask(told)["query"] == 4


def test_similar_frames_move_the_time_of_a_standing_question(begin):
    told = start(begin)
    told.send(query("a", query_id="s", every_s=1, choices=CHOICES))
    for at in range(3):
        told.send(frame(0, time_s=at))
        assert told.last("response.done")["query"] == at


def test_a_standing_question_is_answered_only_when_its_label_changes_clearly(begin):
    records, model = {}, ScriptedModel()
    model.probabilities = [(p, 1 - p) for p in (0.9, 0.8, 0.45, 0.52, 0.3, 0.45, 0.55, 0.7)]
    told = Told(begin(model, None, 4, records).open(config()))
    told.send(query("a", query_id="s", on_change=True, every_s=1, choices=CHOICES))
    events = []
    for at in range(8):
        told.send(frame(0, time_s=at))
        events += told.until("frame.ack")
        until(lambda seen=at: len(model.asked) == seen + 1 and not told.session.stats().waiting)
    assert model.probabilities == []
    told.send({"type": "video.done"})
    events += told.until("session.closed")
    done = [event for event in events if event["type"] == "response.done"]
    assert [(each["text"], each["query"], each["last_frame_s"]) for each in done] == [
        ("yes", 0, 0),
        ("no", 1, 0),
        ("yes", 2, 0),
    ]
    assert [event["type"] for event in events].count("response.start") == 3
    assert [row["query"] for row in records[told.session.session_id].rows] == [0, 1, 2]
    assert told.session.stats().queries == 3


def test_a_standing_question_that_fails_says_so_once_and_goes_on(begin):
    model = ScriptedModel()
    model.fails_with = InferenceError("No.")
    told = start(begin, model)
    told.send(query("a", query_id="s", every_s=1, choices=CHOICES))
    events = []
    for at in range(6):
        model.fails_with = InferenceError("No.") if at != 3 else None
        told.send(frame(0, time_s=at))
        events += told.until("frame.ack")
        until(lambda seen=at: len(model.asked) == seen + 1 and not told.session.stats().waiting)
    told.send({"type": "video.done"})
    events += told.until("session.closed")
    ends = [event.get("code", "done") for event in events if event["type"] in {"error", "response.done"}]
    assert ends == ["query_failed", "done", "query_failed"]


def test_a_slow_model_is_not_asked_a_standing_question_twice_at_once(begin):
    model = ScriptedModel()
    model.may_answer.clear()
    told = start(begin, model)
    told.send(query("a", query_id="s", every_s=1, choices=CHOICES))
    send_frames(told, [0] * 20)
    assert told.session.stats().waiting == 1
    model.may_answer.set()


def test_standing_questions_have_a_limit(begin):
    told = start(begin)
    for number in range(16):
        told.send(query(query_id=str(number), every_s=1))
    told.send(query("another text", query_id="3", every_s=1))  # replaces
    with pytest.raises(ProtocolError, match="16 standing questions already; cancel one first"):
        told.send(query(query_id="16", every_s=1))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"every_s": 1}, "needs a query_id"),
        ({"on_change": True, "query_id": "q"}, "a question with on_change needs choices"),
        ({"change_margin": 0.1}, "change_margin needs on_change"),
        ({"every_s": 0.01, "query_id": "q"}, "every_s must be"),
    ],
)
def test_what_is_no_standing_question_is_named(fields, says):
    with pytest.raises(ProtocolError, match=says):
        parse_message(json.dumps(query(**fields)))
