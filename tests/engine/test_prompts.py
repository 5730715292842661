"""Tokens and probabilities of choices, and the chat messages that carry a question."""

import math

import pytest
from tokenizers import Tokenizer
from tokenizers.models import Unigram
from tokenizers.normalizers import Prepend, Replace, Sequence

from reelabel_engine.errors import ChoicesAmbiguousError, InferenceError
from reelabel_engine.prompts import chat_messages, choice_tokens, score_choices
from tasks.model.identity import TINY_MODEL


@pytest.fixture(scope="module")
def encode():
    tokenizer = Tokenizer.from_file(str(TINY_MODEL / "tokenizer.json"))
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def test_letters_count_with_and_without_a_leading_space(encode):
    tokens = choice_tokens(["red", "green"], scoring="letter", encode=encode)

    assert tokens[0] == {encode("A")[0], *(encode(" A") if len(encode(" A")) == 1 else [])}
    assert not tokens[0] & tokens[1]


def test_texts_are_distinguished_by_their_first_token(encode):
    tokens = choice_tokens(["yes", "no"], scoring="text", encode=encode)

    assert encode("yes")[0] in tokens[0]
    assert encode("no")[0] in tokens[1]


def test_texts_with_the_same_first_token_are_ambiguous(encode):
    with pytest.raises(ChoicesAmbiguousError, match="'yes' and 'yes, always'"):
        choice_tokens(["yes", "yes, always"], scoring="text", encode=encode)


def test_more_choices_than_letters_are_ambiguous(encode):
    with pytest.raises(ChoicesAmbiguousError, match="27 choices"):
        choice_tokens([str(number) for number in range(27)], scoring="letter", encode=encode)


def test_the_probability_of_a_choice_is_the_sum_of_its_tokens():
    tokens = (frozenset({1, 2}), frozenset({3}))
    logprobs = {1: math.log(0.2), 2: math.log(0.1), 3: math.log(0.3)}

    assert score_choices(tokens, logprobs).probabilities == pytest.approx((0.5, 0.5))
    assert score_choices(tokens, logprobs).mass == pytest.approx(0.6)


def test_a_token_that_was_not_returned_has_no_probability():
    assert score_choices((frozenset({1}), frozenset({9})), {1: 0.0}).probabilities == (1.0, 0.0)


@pytest.fixture
def encode_like_sentencepiece():
    """A tokenizer that puts a space before whatever opens a text, as Llama's and InternLM's do."""
    words = ["\n", "\u2581", "\u2581yes", "\u2581no", "yes", "no", "A", "\u2581A", "B", "\u2581B", *"yeson"]
    tokenizer = Tokenizer(Unigram([("<unk>", 0.0), *((word, -float(rank)) for rank, word in enumerate(words))], 0))
    tokenizer.normalizer = Sequence([Prepend("\u2581"), Replace(" ", "\u2581")])
    return lambda text: tokenizer.encode(text, add_special_tokens=False).tokens


@pytest.mark.parametrize(("scoring", "choices"), [("letter", ["x", "y"]), ("text", ["yes", "no"])])
def test_a_leading_space_added_by_the_tokenizer_hides_no_bare_token(encode_like_sentencepiece, scoring, choices):
    first, second = choice_tokens(choices, scoring=scoring, encode=encode_like_sentencepiece)

    written = ["A", "B"] if scoring == "letter" else choices
    assert (first, second) == tuple(frozenset({text, f"\u2581{text}"}) for text in written)


@pytest.mark.parametrize(
    ("scoring", "encode", "fault"),
    [
        ("text", lambda text: [1] if text.strip() else [], "'b' start with the same token"),
        (
            "text",
            lambda text: [7] if "b" in text or not text.strip() else [1],
            "Choice 'b' has no first token to score",
        ),
        ("letter", lambda text: [*text.encode(), 0], "no single token for some letter; use choice_scoring 'text'"),
    ],
    ids=["the same", "only a space", "letters of several tokens"],
)
def test_choices_that_the_tokenizer_does_not_tell_apart_are_refused(scoring, encode, fault):
    with pytest.raises(ChoicesAmbiguousError, match=fault):
        choice_tokens(["a", "b"], scoring=scoring, encode=encode)


def test_there_may_be_a_choice_for_every_letter(encode):
    assert len(choice_tokens([str(number) for number in range(26)], scoring="letter", encode=encode)) == 26


@pytest.mark.parametrize("logprobs", [{}, {5: 0.0}, {1: -math.inf}, {1: math.nan}])
def test_choices_without_any_probability_are_no_answer(logprobs):
    with pytest.raises(InferenceError, match="assigns no probability to any choice"):
        score_choices((frozenset({1}), frozenset({2})), logprobs)


def test_the_mass_of_all_choices_is_at_most_one():
    assert score_choices((frozenset({1}), frozenset({2})), {1: 0.0, 2: -10.0}).mass == 1.0


def test_the_video_comes_before_the_question():
    assert chat_messages("Which?", None) == [
        {"role": "user", "content": [{"type": "video"}, {"type": "text", "text": "Which?"}]},
    ]


def test_what_is_shown_comes_before_the_first_of_several_turns():
    messages = chat_messages("And now?", None, turns=[("Which?", "Red.")], shown=("image", "video"))

    assert messages == [
        {"role": "user", "content": [{"type": "image"}, {"type": "video"}, {"type": "text", "text": "Which?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Red."}]},
        {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
    ]


def test_a_system_prompt_comes_first():
    system, _ = chat_messages("Which?", "Be brief.")

    assert system == {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}


def test_a_text_only_chat_template_has_the_video_named_in_the_text():
    assert chat_messages("Which?", "Be brief.", placeholders=["<video>"]) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "<video>\nWhich?"},
    ]
