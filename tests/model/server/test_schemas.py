"""Questions whose answers a schema describes."""

import json
import re

import pytest

from tests.model.factories import batch_about, in_words, question
from tests.vllm_server import gate

OBJECT = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}


CLOSED = OBJECT | {"additionalProperties": False}


@pytest.mark.parametrize(
    ("reply", "code", "message"),
    [
        (
            (400, "Invalid schema: 'wat'."),
            "schema_refused",
            r"with its schema \(HTTP 400\): Invalid schema: 'wat'; change it",
        ),
        ((422, b'{"error": "Odd."}'), "schema_refused", r"with its schema \(HTTP 422\): Odd; change it"),
        ((400, "The maximum context length is 9."), "prompt_too_long", "too long for the server"),
    ],
)
def test_a_question_with_a_schema_that_is_rejected_says_that_it_may_be_the_schema(
    stub_server, make_backend, reply, code, message
):
    batch = batch_about(in_words(schema='{"type": "wat"}'), question())

    with gate(stub_server, lambda _path, body: reply if body and "response_format" in body else None) as url:
        refused, chosen = make_backend(url).answer(batch)

    assert (refused.code, refused.stage) == (code, "prompt")
    assert re.search(message, refused.message), refused.message
    assert chosen.probabilities


@pytest.mark.parametrize(
    ("schema", "is_strict"),
    [
        pytest.param(CLOSED, True, id="closed"),
        pytest.param(OBJECT, False, id="open, as in the manual"),
        pytest.param(CLOSED | {"required": []}, False, id="an optional property"),
        pytest.param({"type": "array", "items": CLOSED}, True, id="a list of closed ones"),
        pytest.param(CLOSED | {"properties": {"a": {"anyOf": [CLOSED, OBJECT]}}}, False, id="an open one within"),
        pytest.param({"type": "object"}, False, id="any object"),
        pytest.param({"properties": {"a": {}}}, False, id="properties without a type"),
        pytest.param({"type": "string"}, True, id="no object"),
    ],
)
def test_a_schema_is_strict_only_where_openai_takes_it_as_such(stub_server, make_backend, schema, is_strict):
    sent = []
    reply = {"choices": [{"message": {"content": "{}"}, "finish_reason": "stop"}]}

    def note(_path, body):
        if body and "response_format" in body:
            sent.append(body["response_format"]["json_schema"])
            return 200, json.dumps(reply).encode()
        return None

    with gate(stub_server, note) as url:
        [answer] = make_backend(url).answer(batch_about(in_words(schema=json.dumps(schema))))

    assert answer.words.data == "{}"
    assert sent == [{"name": "answer", "schema": schema, "strict": is_strict}]
