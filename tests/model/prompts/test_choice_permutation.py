"""One question in several choice orders: what is asked, and how the answers are combined."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.text_bounds import MAX_TEXT
from reelabel_engine.protocol import Batch, Question, Rejected
from tasks.domain import Answer
from tasks.model.prompts.prompt import answer_permuted, rotate_choices

REFUSED = Rejected(code="prompt_too_long", stage="prompt", message="Too long.")
choices_of_any_number = st.integers(2, 26).map(lambda count: tuple(map(str, range(count))))


def question(choices, permutations):
    facts = {"video_id": "v", "text": "?", "system_prompt": None, "scoring": "letter"}
    first, *others = (Question(choices=order, **facts) for order in rotate_choices(choices, permutations))
    return replace(first, permutations=tuple(others))


def answer(*probabilities):
    index = probabilities.index(max(probabilities))
    costs = {"prompt_tokens": 100, "cached_tokens": 64, "preprocess_ms": 1.0, "inference_ms": 2.0}
    return Answer(choice_index=index, probabilities=probabilities, **costs)


def ask(answer_of, *questions):
    """Ask by a function from the choices as they are shown to a reply."""
    batch = Batch(frame_files={"v": b""}, questions=questions)
    return answer_permuted(lambda part: [answer_of(one.choices) for one in part.questions], batch)


@given(choices_of_any_number)
def test_with_all_rotations_every_choice_takes_every_position_once(choices):
    orders = rotate_choices(choices, 26)

    assert orders[0] == choices
    assert all(set(position) == set(choices) for position in zip(*orders, strict=True))


@given(choices_of_any_number, st.integers(1, 26))
def test_there_are_as_many_orders_as_requested_up_to_the_number_of_choices(choices, permutations):
    assert len(set(rotate_choices(choices, permutations))) == min(permutations, len(choices))


def test_few_rotations_are_spread_over_the_choices():
    assert rotate_choices("abcd", 2) == [tuple("abcd"), tuple("cdab")]


def test_a_model_that_reads_the_choices_answers_equally_in_every_order():
    [reply] = ask(lambda shown: answer(*(0.7 if one == "b" else 0.1 for one in shown)), question("abcd", 4))

    assert reply.probabilities == pytest.approx((0.1, 0.7, 0.1, 0.1))
    assert (reply.choice_index, reply.order.permutations) == (1, 4)
    assert (reply.order.agreement, reply.order.spread, reply.order.same_position) == (1, 0, False)


def test_a_model_that_always_says_a_is_detected_and_averaged_away():
    [reply] = ask(lambda _: answer(0.7, 0.1, 0.1, 0.1), question("abcd", 4))

    assert reply.probabilities == pytest.approx((0.25, 0.25, 0.25, 0.25))
    assert (reply.order.agreement, reply.order.same_position) == (0.25, True)
    assert reply.order.spread == pytest.approx(0.6)


def test_a_question_asked_once_keeps_its_answer_unchanged():
    original = answer(0.7, 0.3)

    assert ask(lambda _: original, question("ab", 1)) == [original]


def test_the_costs_of_all_orders_are_added_up():
    [reply] = ask(lambda _: answer(0.6, 0.4), question("ab", 2))

    assert (reply.prompt_tokens, reply.cached_tokens, reply.preprocess_ms, reply.inference_ms) == (200, 128, 2, 4)


def test_a_question_refused_in_one_order_is_refused_and_other_questions_are_answered():
    refused, answered = ask(
        lambda shown: REFUSED if shown == ("b", "a") else answer(0.6, 0.4), question("ab", 2), question("cd", 2)
    )

    assert refused == REFUSED
    assert answered.probabilities == pytest.approx((0.5, 0.5))


def test_a_question_that_is_too_long_is_refused_unasked_and_the_others_are_answered():
    questions = []
    long, one = (replace(question("ab", 2), text=text) for text in ("x" * (MAX_TEXT + 1), "?"))
    batch = Batch(frame_files={"v": b""}, questions=(long, one))

    refused, answered = answer_permuted(
        lambda part: questions.extend(part.questions) or [answer(0.6, 0.4) for _ in part.questions], batch
    )

    assert refused.code == "prompt_too_long"
    assert f"has {MAX_TEXT + 1:,} characters" in refused.message
    assert answered.order.permutations == 2
    assert questions == [one, *one.permutations]
    assert answer_permuted(None, batch.only((long,)))[0].code == "prompt_too_long"


def test_the_system_prompt_counts_towards_the_longest_text():
    for text, is_refused in (("x" * (MAX_TEXT - 1), False), ("x" * MAX_TEXT, True)):
        [reply] = ask(lambda _: answer(0.6, 0.4), replace(question("ab", 1), text=text, system_prompt="y"))
        assert isinstance(reply, Rejected) is is_refused


def test_the_mass_of_choices_is_averaged_over_the_orders_that_have_one():
    replies = iter([replace(answer(0.6, 0.4), choice_mass=0.5), replace(answer(0.6, 0.4), choice_mass=0.7)])
    [known] = ask(lambda _: next(replies), question("ab", 2))
    [unknown] = ask(lambda _: answer(0.6, 0.4), question("ab", 2))

    assert (known.choice_mass, unknown.choice_mass) == (pytest.approx(0.6), None)
