"""How a fatal question is found; `test_recovery` kills real processes."""

from dataclasses import replace

import pytest

from infra.errors import EngineLostError
from reelabel_engine.protocol import Batch, Rejected
from tasks.domain import Answer
from tasks.model.engine.recovery import CrashingQuestions, RecoveringEngine
from tasks.model.prompts.prompt import answer_permuted
from tests.model.factories import question

ANSWER = Answer(
    choice_index=0, probabilities=(1.0,), prompt_tokens=1, cached_tokens=0, preprocess_ms=0.0, inference_ms=0.0
)
REFUSAL = Rejected(code="prompt_too_long", stage="inference", message="Too long.")
TWICE = "This question crashed the engine twice. Killed."
OTHER_ORDER = "This question with its choices in another order crashed the engine twice."
UNASKED = "Skipped: 2 other questions about this video crashed the engine."


class MortalEngine:
    """Dies on some questions."""

    def __init__(self, is_deadly):
        self.is_deadly = is_deadly
        self.deaths = 0

    def answer(self, batch):
        if any(map(self.is_deadly, batch.questions)):
            self.deaths += 1
            raise EngineLostError("Killed.")
        return [REFUSAL if "refused" in one.text else ANSWER for one in batch.questions]


def ask(engine, questions, ask=RecoveringEngine.answer):
    files = {one.video_id: b"" for one in questions}
    replies = ask(RecoveringEngine(engine), Batch(frame_files=files, questions=tuple(questions)))
    return [reply.message if isinstance(reply, Rejected) else "" for reply in replies]


def about(video_id, count):
    return [question(f"Number {number}?", video_id=video_id) for number in range(count)]


@pytest.mark.parametrize("count", [1, 2, 5, 1000])
def test_a_fatal_question_is_refused_wherever_it_stands(count):
    questions = about("v", count)
    for index in {0, count // 3, count // 2, count - 1}:
        engine = MortalEngine(lambda one, deadly=questions[index]: one is deadly)

        replies = ask(engine, questions)

        assert [at for at, message in enumerate(replies) if message] == [index]
        assert replies[index] == TWICE
        assert engine.deaths <= count.bit_length() + 3


@pytest.mark.parametrize(("before", "deadly", "after"), [(0, 8, 8), (0, 300, 0), (7, 300, 2), (500, 3, 500)])
def test_a_fatal_video_costs_only_its_own_questions_and_at_most_two_are_tried(before, deadly, after):
    engine = MortalEngine(lambda one: one.video_id == "deadly")

    replies = ask(engine, [*about("first", before), *about("deadly", deadly), *about("last", after)])

    assert replies == [""] * before + [TWICE] * 2 + [UNASKED] * (deadly - 2) + [""] * after


def test_many_fatal_videos_are_no_reason_to_give_up():
    engine = MortalEngine(lambda one: int(one.video_id) % 3)

    replies = ask(engine, [one for number in range(60) for one in about(str(number), 3)])

    assert [message == "" for message in replies] == [number % 3 == 0 for number in range(60) for _ in range(3)]


def test_other_choice_orders_of_a_fatal_question_are_not_asked_and_count_as_one_job():
    first, deadly, last = about("v", 3)
    deadly = replace(deadly, permutations=tuple(question("Otherwise?", choices=("b", "a")) for _ in range(3)))
    engine = MortalEngine(lambda one: one in {deadly, *deadly.permutations})

    assert ask(engine, [first, deadly, *deadly.permutations, last]) == ["", TWICE, *[OTHER_ORDER] * 3, ""]
    in_every_order = ask(engine, [first, deadly, last], lambda engine, batch: answer_permuted(engine.answer, batch))
    assert in_every_order == ["", TWICE, ""]


def test_no_question_is_blamed_if_the_engine_dies_of_something_else():
    engine = MortalEngine(lambda _: False)
    recovering = RecoveringEngine(engine)
    batch = Batch(frame_files={"v": b""}, questions=tuple(about("v", 1)))
    assert recovering.answer(batch) == [ANSWER]

    engine.is_deadly = lambda _: True  # from now on it dies of what it answered before

    with pytest.raises(EngineLostError):
        recovering.answer(batch)
    assert engine.deaths < 10


def test_a_refusal_does_not_prove_that_the_engine_works():
    """What is refused may never have come to the model, and an engine that is broken refuses it all the same."""
    engine = MortalEngine(lambda one: "refused" not in one.text)
    recovering = RecoveringEngine(engine)
    too_long = Batch(frame_files={"v": b""}, questions=(question("To be refused?"),))
    assert recovering.answer(too_long) == [REFUSAL]

    with pytest.raises(EngineLostError):
        recovering.answer(Batch(frame_files={"v": b""}, questions=tuple(about("v", 1))))


def test_an_engine_that_survives_only_small_frames_is_given_up():
    engine = MortalEngine(lambda one: one.video_id != "grey")
    videos = [one for number in range(500) for one in about(str(number), 1)]

    with pytest.raises(EngineLostError):
        ask(engine, videos)

    assert engine.deaths < 30


def shards_of(questions, *, frames=b""):
    return [Batch(frame_files={one.video_id: frames}, questions=(one,)) for one in questions]


def messages_of(engine, batches):
    return [reply.message if isinstance(reply, Rejected) else "" for each in batches for reply in engine.answer(each)]


def test_a_fatal_video_is_not_asked_about_again_in_other_shards():
    engine = MortalEngine(lambda one: one.video_id == "deadly")
    recovering = RecoveringEngine(engine)

    replies = messages_of(recovering, shards_of([*about("deadly", 5), *about("harmless", 2)]))

    assert replies == [TWICE] * 2 + [UNASKED] * 3 + ["", ""]
    assert engine.deaths <= 2 * 3
    other_frames = messages_of(recovering, shards_of(about("deadly", 1), frames=b"fewer"))
    assert other_frames == [TWICE]


def test_a_fatal_video_is_known_to_all_engines_and_a_repeated_question_counts_once():
    engines = [MortalEngine(lambda one: one.video_id == "deadly") for _ in range(2)]
    crashing = CrashingQuestions()
    one, other = (RecoveringEngine(each, crashing=crashing) for each in engines)
    first, second, third = shards_of(about("deadly", 3))

    assert messages_of(one, [first, first]) == [TWICE, "This question crashed the engine twice."]
    assert messages_of(other, [second, third]) == [TWICE, UNASKED]
    assert messages_of(one, [third]) == [UNASKED]
