"""The real engine: answers in words and by a schema, beside answers with choices."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from reelabel_engine.protocol import Batch, EngineConfig
from tasks.model.engine.process import EngineProcess
from tasks.model.identity import TINY_MODEL
from tests.model.factories import batch_about, frame_file, in_words, question

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("engine")]

SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green", "blue"]}, "is_round": {"type": "boolean"}},
    "required": ["colour", "is_round"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    log_path = tmp_path_factory.mktemp("engine") / "engine.log"
    config = EngineConfig(model=str(TINY_MODEL), dtype="float32")
    with EngineProcess(config, log_path=log_path, start_timeout_s=240) as engine:
        yield engine


def test_words_end_at_their_bound_or_when_the_model_is_done(engine):
    one, five, many = engine.answer(batch_about(*(in_words(max_tokens=count) for count in (1, 5, 64))))

    assert (one.words.output_tokens, one.words.finish_reason) == (1, "length")
    assert (five.words.output_tokens, five.words.finish_reason) == (5, "length")
    assert many.words.finish_reason == ("length" if many.words.output_tokens == 64 else "stop")
    assert many.words.text.startswith(five.words.text)
    assert [each.choice_index for each in (one, five, many)] == [None] * 3
    assert many.prompt_tokens > 8 * 4


def test_an_answer_by_a_schema_is_json_of_it(engine):
    [answer] = engine.answer(batch_about(in_words(schema=json.dumps(SCHEMA))))

    found = json.loads(answer.words.data)
    assert found["colour"] in SCHEMA["properties"]["colour"]["enum"]
    assert type(found["is_round"]) is bool
    assert answer.words.text is None
    assert answer.words.finish_reason == "stop"


def test_an_answer_by_a_schema_that_is_cut_short_is_a_failure_of_its_question(engine):
    short, whole = engine.answer(
        batch_about(in_words(schema=json.dumps(SCHEMA), max_tokens=3), in_words(schema=json.dumps(SCHEMA)))
    )

    assert (short.code, short.stage) == ("answer_cut_short", "inference")
    assert "3 tokens" in short.message
    assert whole.words.data


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"type": "wat"}, id="an unknown type"),
        pytest.param({"type": "integer", "minimum": -(10**40)}, id="a number beyond 64 bits"),
        pytest.param({"type": "string", "pattern": "("}, id="no regular expression"),
        pytest.param({"type": "string", "pattern": "^(a|b)*c(a|b){200}$"}, id="one that crashes the compiler"),
        pytest.param({"type": "integer", "multipleOf": 7}, id="a keyword that is not supported"),
        pytest.param({"type": "array", "items": {"$ref": "#/nowhere"}}, id="a reference to nothing"),
        pytest.param([1], id="no schema"),
    ],
)
def test_a_hostile_schema_costs_its_question_alone(engine, schema):
    pid = engine.pid

    first, failure, last = engine.answer(
        batch_about(question(), in_words(schema=json.dumps(schema)), in_words(schema=json.dumps(SCHEMA)))
    )

    assert (failure.code, failure.stage) == ("schema_refused", "prompt"), failure
    assert "schema" in failure.message
    assert first.probabilities
    assert last.words.data
    assert engine.pid == pid


def test_choices_get_the_same_probabilities_beside_words_as_alone(engine):
    files = {str(seed): frame_file(seed) for seed in range(100, 108)}
    questions = [replace(question(), video_id=name) for name in files]
    alone = [engine.answer(Batch(frame_files=files, questions=(each,)))[0] for each in questions]
    mixed = tuple(each for name, one in zip(files, questions, strict=True) for each in (in_words(video_id=name), one))

    with ThreadPoolExecutor(2) as threads:
        batches = threads.map(engine.answer, [Batch(frame_files=files, questions=mixed)] * 2)
        found = [[each for each in replies if not each.words] for replies in batches]

    for each in found:
        assert [one.choice_index for one in each] == [one.choice_index for one in alone]
        assert [one.probabilities for one in each] == [pytest.approx(one.probabilities, abs=1e-5) for one in alone]
