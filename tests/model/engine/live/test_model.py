"""Sessions on an engine's process with the stub engine in it: what is sent, read, dropped and answered."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from infra.errors import EngineLostError
from reelabel.errors import InternalError
from reelabel_engine.errors import InferenceError, PromptTooLongError
from reelabel_engine.live_items import FramePair
from reelabel_engine.protocol import EngineConfig, LiveDrop, LiveQuery, LiveRequest, LiveText, encode
from tasks.live.model import Prefix
from tasks.model import running_process
from tasks.model.engine.live.model import EngineLiveModel
from tasks.model.engine.process import EngineProcess
from tasks.model.identity import TINY_MODEL, read_model_info
from tests import stub_engine
from tests.model.factories import batch_about, frame_file, live_answer, question
from tests.stub_engine import Trigger, answer_to
from tests.wait import until

CARD = read_model_info(str(TINY_MODEL))


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("live")
    config = EngineConfig(model=str(folder / "model"), live_sessions=4)
    command = stub_engine.COMMAND
    with EngineProcess(config, log_path=folder / "log", start_timeout_s=60, command=command) as engine:
        yield engine


@pytest.fixture
def model(engine):
    return EngineLiveModel([engine], CARD, max_frame_px=5000)


def stream(count, *, value=0, start_s=0.0):
    images = np.full((2, 4, 4, 3), value, np.uint8)
    return [FramePair(images=images, times_s=(start_s + k, start_s + k + 0.5)) for k in range(count)]


def prefix(session, items):
    return Prefix(session=session, items=tuple(items))


def read(model, session, items, *following):
    """Have prefixes read; return what each step has read."""
    goal, steps = [prefix(session, each) for each in (items, *following)], []
    while step := model.prefill(goal):
        steps.append(step)
    return steps


def ask(model, session, items, text="What?", **options):
    pieces = model.ask(prefix(session, items), LiveQuery(text=text, **options))
    return live_answer(pieces, options.get("choices", ()))


def test_a_prefix_that_grows_is_read_from_where_it_was_read(model):
    model.open("one")
    items = stream(3)

    [first], [second] = read(model, "one", items[:2]), read(model, "one", items)

    assert (first.prompt_tokens, first.cached_tokens) == (2, 0)
    assert (second.prompt_tokens, second.cached_tokens) == (3, 2)
    assert read(model, "one", items) == []


def test_an_answer_in_free_text_comes_in_pieces_and_one_with_choices_at_once(model):
    model.open("one")
    items = stream(3)
    read(model, "one", items)

    deltas, answer = ask(model, "one", items)
    none, label = ask(model, "one", items, choices=("red", "green", "blue"))

    assert deltas == [LiveText(text="6 "), LiveText(text="0 "), LiveText(text="What?")]
    assert answer.text == "6 0 What?"
    assert (answer.prompt_tokens, answer.cached_tokens, answer.output_tokens) == (3, 3, 3)
    assert none == []
    assert (label.text, label.choice_index) == ("blue", 2)


def test_a_question_about_a_prefix_that_was_never_read_is_answered(model):
    model.open("one")

    _, answer = ask(model, "one", stream(2))

    assert (answer.text, answer.cached_tokens) == ("4 0 What?", 0)


def test_a_long_prefix_is_read_in_steps_and_the_next_one_goes_on_towards_the_goal_of_then(model):
    model.open("one")
    items = stream(30)

    first = model.prefill([prefix("one", items[:20])])
    rest = read(model, "one", items)

    assert first.prompt_tokens == 8
    assert [(each.cached_tokens, each.prompt_tokens) for each in rest] == [(8, 16), (16, 24), (24, 30)]


def test_a_question_goes_before_the_rest_of_a_long_prefix(model):
    model.open("one")
    model.open("other")
    model.wait_ready()
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(read, model, "one", stream(200))

        _, answer = ask(model, "other", stream(1))

        assert not reading.done()
        assert answer.cached_tokens == 0
        assert reading.result(20)[-1].prompt_tokens == 200


def test_the_following_prefix_is_read_after_the_current_one_and_takes_over(model):
    model.open("one")
    items = stream(10)
    read(model, "one", items[:9], items[5:9])

    [taken_over] = read(model, "one", items[5:])

    assert (taken_over.prompt_tokens, taken_over.cached_tokens) == (5, 4)


def test_items_are_sent_once_and_dropped_once_no_prompt_has_them(model, monkeypatch):
    sent, dropped = [], []

    def record_sent(message):
        if isinstance(message, LiveRequest):
            sent.extend(message.items)
        elif isinstance(message, LiveDrop):
            dropped.extend(message.hashes)
        return encode(message)

    monkeypatch.setattr(running_process, "encode", record_sent)
    model.open("one")
    items = stream(6)

    for n in range(1, 5):
        read(model, "one", items[:n])
    ask(model, "one", items[:4])
    for n in (5, 6, 6):
        read(model, "one", items[2:n])

    assert sorted(sent) == sorted(item.hash for item in items)
    assert sorted(dropped) == sorted(item.hash for item in items[:2])


def test_a_question_that_cannot_be_sent_fails_alone(model):
    model.open("one")
    items = stream(2)

    with pytest.raises(InternalError):
        ask(model, "one", items, text="\ud800")

    assert ask(model, "one", items)[1].text == "4 0 What?"


def test_sessions_have_salts_of_their_own(model):
    items = stream(2)
    model.open("one")
    model.open("other")
    read(model, "one", items)

    _, answer = ask(model, "other", items)

    assert answer.cached_tokens == 0


def test_batches_are_answered_beside_live_sessions(engine, model):
    model.open("one")
    one = question()
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(read, model, "one", stream(100))

        [answer] = engine.answer(batch_about(one))

        assert answer == answer_to(one, frame_file(1))
        assert reading.result(20)[-1].prompt_tokens == 100


def test_a_refused_question_is_reported_in_a_sentence_and_the_session_goes_on(model):
    model.open("one")

    with pytest.raises(PromptTooLongError, match="The prompt is too long"):
        ask(model, "one", stream(1), text=Trigger.REFUSED)

    assert ask(model, "one", stream(1))[1].text == "2 0 What?"


@pytest.mark.parametrize("killed", ["by a question", "from outside"])
def test_a_lost_engine_is_reported_and_everything_is_read_and_asked_again(make_engine, killed):
    engine = make_engine(live_sessions=4)
    model = EngineLiveModel([engine], CARD, max_frame_px=5000)
    model.open("one")
    items = stream(3)
    read(model, "one", items)
    if killed == "by a question":
        with pytest.raises(EngineLostError, match="The engine failed: its process died; see the log"):
            ask(model, "one", items, text=Trigger.POISON)
    else:
        model.open("other")
        os.kill(engine.pid, signal.SIGSTOP)  # else it might answer first
        with ThreadPoolExecutor(2) as threads:
            reading = [threads.submit(read, model, name, stream(400)) for name in ("one", "other")]
            until(lambda: all(each.open for each in model._sessions.values()))
            os.kill(engine.pid, signal.SIGKILL)
            for each in reading:
                with pytest.raises(EngineLostError, match="its process died"):
                    each.result(20)

    [again] = read(model, "one", items)
    _, answer = ask(model, "one", items)

    assert (again.cached_tokens, again.prompt_tokens) == (0, 3)
    assert (answer.text, answer.cached_tokens) == ("6 0 What?", 3)
    assert engine.starts == 2


def test_a_full_disk_loses_the_engine_and_the_next_question_is_answered(make_engine):
    model = EngineLiveModel([make_engine(live_sessions=4)], CARD, max_frame_px=5000)
    model.open("one")
    items = stream(2)

    with pytest.raises(EngineLostError, match=r"The engine failed: The disk of .* is full"):
        ask(model, "one", items, text=Trigger.DISK_FULL)

    assert ask(model, "one", items)[1].text == "4 0 What?"


def test_a_session_that_ended_is_refused_and_is_read_no_further(model):
    model.open("one")
    items = stream(100)
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(read, model, "one", items)
        until(lambda: model._sessions["one"].open)

        model.close_session("one")
        model.close_session("one")

        with pytest.raises(InferenceError, match="has ended"):
            reading.result(20)
    with pytest.raises(InferenceError, match="has ended"):
        read(model, "one", items)
    with pytest.raises(InferenceError, match="has ended"):
        ask(model, "one", items)
    model.open("next")
    assert ask(model, "next", items[:1])[1].text == "2 0 What?"


def test_a_question_that_is_open_when_its_session_ends_is_refused_at_once(engine, model):
    model.open("one")
    model.wait_ready()
    os.kill(engine.pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(1) as threads:
            asking = threads.submit(ask, model, "one", stream(1))
            until(lambda: model._sessions["one"].open)
            model.close_session("one")
            with pytest.raises(InferenceError, match="has ended"):
                asking.result(60)
    finally:
        os.kill(engine.pid, signal.SIGCONT)

    model.open("next")
    assert ask(model, "next", stream(1))[1].text == "2 0 What?"


def test_a_question_that_is_given_up_does_not_disturb_others(model):
    model.open("one")
    items = stream(2)
    given_up = model.ask(prefix("one", items), LiveQuery(text="Never?"))
    next(given_up)

    given_up.close()

    assert ask(model, "one", items)[1].text == "4 0 What?"


def test_many_sessions_at_once_get_their_own_answers(model):
    model.wait_ready()
    answers = {}

    def run(number):
        name, items = f"session {number}", stream(number + 3, value=number, start_s=number)
        model.open(name)
        for n in range(1, len(items) + 1):
            read(model, name, items[:n])
        answers[number] = ask(model, name, items, text=f"{number}?")[1].text
        model.close_session(name)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert answers == {number: f"{2 * (number + 3)} {number} {number}?" for number in range(8)}


def test_info_names_the_model_and_its_limits(model):
    info = model.wait_ready()

    assert info.model == "reelabel-tiny"
    assert (info.size_multiple_px, info.max_frame_px) == (28, 5000)


def test_one_name_is_one_session(model):
    model.open("one")

    with pytest.raises(ValueError, match="one already"):
        model.open("one")
