import math

import pytest
from tokenizers import Tokenizer
from tokenizers.models import Unigram
from tokenizers.normalizers import Prepend, Replace, Sequence

from reelabel_engine.errors import ChoicesAmbiguousError
from reelabel_engine.prompts import choice_tokens, score_choices
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
