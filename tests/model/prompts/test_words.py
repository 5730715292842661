"""What becomes of an answer in words, with a schema and without."""

import pytest

from reelabel_engine.errors import AnswerCutShortError, AnswerNotJsonError
from tasks.model.prompts.prompt import build_question, rotate_choices
from tasks.model.prompts.words import read_words
from tests.model.factories import in_words
from tests.results.rows import SPEC, job

SCHEMA = '{"type": "object"}'
# As they were before there were answers in words.
KNOWN_SPEC, KNOWN_DIGEST = "fc90c094d93e2c8d", "6db2dde7dcfc206f5d9061c186dd3a50"


def test_words_are_kept_as_they_are():
    found = read_words(in_words(), " A cat. ", finish_reason="length", output_tokens=3)

    assert (found.text, found.data, found.finish_reason, found.output_tokens) == (" A cat. ", None, "length", 3)


def test_json_is_stored_without_blanks_around_it():
    found = read_words(in_words(schema=SCHEMA), ' {"a":\n"\\u00e9"} ', finish_reason="stop", output_tokens=9)

    assert (found.text, found.data) == (None, '{"a": "é"}')


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param('{"a": ', id="a part"),
        pytest.param("{} {}", id="two values"),
        pytest.param('{"a": NaN}', id="no number"),
        pytest.param('{"a": 1e999}', id="a number beyond floats"),
        pytest.param("[" * 100_000, id="too deep"),
        pytest.param("[" * 256 + "]" * 256, id="deeper than can be written again"),
        pytest.param("1" * 10_000, id="too many digits"),
        pytest.param('{"a": "\\u0000"}', id="a character that is not stored"),
        pytest.param('{"\\ud83d": 1}', id="an unpaired surrogate"),
    ],
)
def test_an_answer_that_is_no_json_is_a_failure(text):
    with pytest.raises(AnswerNotJsonError, match=r"The answer by the schema .*\.$"):
        read_words(in_words(schema=SCHEMA), text, finish_reason="stop", output_tokens=9)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        pytest.param('{"a": "\\\\u0000 \\\\ud800"}', '{"a": "\\\\u0000 \\\\ud800"}', id="escaped backslashes"),
        pytest.param('{"a": "\\ud83d\\ude00"}', '{"a": "\N{GRINNING FACE}"}', id="a surrogate pair"),
    ],
)
def test_what_only_looks_unstorable_is_kept(text, data):
    found = read_words(in_words(schema=SCHEMA), text, finish_reason="stop", output_tokens=9)

    assert found.data == data


@pytest.mark.parametrize(
    ("max_tokens", "advice"),
    [
        pytest.param(1234, "; raise max_tokens", id="its bound"),
        pytest.param(2000, ", at the model's limit; shorten the prompt", id="the model's limit"),
    ],
)
def test_an_answer_that_ended_at_a_bound_is_cut_short_even_if_it_reads_as_json(max_tokens, advice):
    with pytest.raises(AnswerCutShortError, match=f"cut short at 1,234 tokens{advice}"):
        read_words(in_words(schema=SCHEMA, max_tokens=max_tokens), "12", finish_reason="length", output_tokens=1234)


def test_a_question_in_words_is_the_prompt_alone_after_the_examples():
    spec = SPEC.model_copy(update={"examples": "Q: A?\nA: B.", "max_tokens": 7, "permutations": 4})

    question = build_question(job("a", choices=(), prompt="What?", schema=SCHEMA), spec)

    assert question.text == "Q: A?\nA: B.\n\nWhat?"
    assert (question.choices, question.max_tokens, question.schema, question.permutations) == ((), 7, SCHEMA, ())
    assert rotate_choices((), 4) == [()]
    assert build_question(job("a"), spec).max_tokens == 1


def test_specs_and_jobs_of_choices_have_the_ids_that_they_had():
    assert SPEC.spec_id == SPEC.model_copy(update={"max_tokens": 64}).spec_id == KNOWN_SPEC
    assert SPEC.spec_id != SPEC.model_copy(update={"max_tokens": 65}).spec_id
    assert job("a").digest == KNOWN_DIGEST
    assert job("a", choices=()).digest != job("a", choices=(), schema=SCHEMA).digest
