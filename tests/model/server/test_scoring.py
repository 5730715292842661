import json
import math

import pytest

from reelabel_engine.errors import InferenceError
from tasks.model.server.answers import Completion, read_logprobs, score

LETTERS = {"A": [1], "B": [2], " A": [3], " B": [4], "Answer": [7, 8]}
TOKENS = (frozenset({1, 3}), frozenset({2, 4}))


def answer(shares):
    """Make a server's answer that shows tokens as text, with these probabilities."""
    top = [{"token": token, "logprob": math.log(share)} for token, share in shares]
    return Completion.model_validate({"choices": [{"logprobs": {"content": [{"top_logprobs": top}] if top else []}}]})


def encode(text):
    return LETTERS[text]


def test_tokens_of_a_choice_add_up_whether_given_as_text_or_ids():
    shown = read_logprobs(answer([("A", 0.5), ("token_id:3", 0.1), (" B", 0.2), ("B", 0.05), ("Answer", 0.01)]), encode)

    probabilities, mass = score(TOKENS, shown)

    assert probabilities == pytest.approx((0.6 / 0.85, 0.25 / 0.85))
    assert mass == pytest.approx(0.85)


def test_tokens_with_the_same_text_add_up():
    shown = read_logprobs(answer([("A", 0.25), ("A", 0.25), ("B", 0.5)]), encode)

    assert math.exp(shown.logprobs[1]) == pytest.approx(0.5)


def test_a_choice_that_is_not_returned_is_zero_if_it_cannot_matter():
    shown = read_logprobs(answer([("A", 0.9), ("Answer", 1e-5)]), encode)

    assert score(TOKENS, shown).probabilities == (1.0, 0.0)


def test_a_choice_that_is_not_returned_but_may_matter_is_a_failure():
    shown = read_logprobs(answer([("A", 0.5), ("Answer", 0.2)]), encode)

    with pytest.raises(InferenceError, match="top logprobs"):
        score(TOKENS, shown)
    with pytest.raises(InferenceError, match="no logprobs"):
        read_logprobs(answer([("A", 1.0)]).model_copy(update={"choices": []}), encode)


@pytest.mark.parametrize("logprob", [math.nan, math.inf, 1000.0, 0.5])
def test_an_invalid_log_probability_is_a_failure_of_its_question(logprob):
    shown = answer([("A", 0.5), ("Answer", 0.2)])
    shown.choices[0].top_logprobs[1].logprob = logprob

    with pytest.raises(InferenceError, match="NaN, or above 0"):
        read_logprobs(shown, encode)


def test_a_text_that_only_looks_like_the_id_of_a_token_is_a_text():
    shown = read_logprobs(answer([("token_id:3", 0.5), ("token_id:x", 0.2)]), {"token_id:x": [4]}.get)

    assert shown.logprobs == pytest.approx({3: math.log(0.5), 4: math.log(0.2)})


def test_null_stands_for_minus_infinity_and_is_a_probability_of_zero():
    top = [{"token": "A", "logprob": -0.5}, {"token": "B", "logprob": None}, {"token": "Answer", "logprob": None}]

    def shown(top):
        body = json.dumps({"choices": [{"logprobs": {"content": [{"top_logprobs": top}]}}]})
        return read_logprobs(Completion.model_validate_json(body), encode)

    assert score(TOKENS, shown(top)).probabilities == (1.0, 0.0)
    with pytest.raises(InferenceError, match="no probability to any choice") as raised:
        score(TOKENS, shown(top[1:]))
    assert "dtype" not in raised.value.message  # which only an engine of our own has
