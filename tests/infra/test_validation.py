"""Whatever pydantic refuses is explained in plain words, wherever a user meets it."""

from datetime import date, datetime
from typing import Annotated
from uuid import UUID

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from flows.cli.options import choose
from flows.compare.candidates import parse_sampler
from flows.run.request import QuestionOptions
from flows.runs import classify
from infra.settings import NightlySettings, Settings, load_settings
from infra.settings.types import fields_of
from infra.validation import describe_fault, first_fault, too_intricate, too_many_faults
from reelabel.errors import ConfigurationError
from reelabel.integrations.ray_data.prepare import PrepareVideo
from tasks.domain import RunSpec
from tasks.results.selection import Selection

RAW = ("Value error", "Input should", "Extra inputs", "Field required", "unable to", "should have", "is not valid")
JUNK = ("junk", "", -1, 0, 1e12, 0.5, float("nan"), [1], {"a": 1}, True, None, "x" * 100_000, object())
SECTIONS = [field.annotation for field in Settings.model_fields.values()]
MODELS = [model for model in SECTIONS if isinstance(model, type) and fields_of(model)]


@pytest.mark.parametrize("model", [*MODELS, QuestionOptions, Selection, RunSpec], ids=lambda model: model.__name__)
def test_no_refusal_uses_pydantics_wording(model):
    messages = set()
    for name in (*fields_of(model), "unknown_field"):
        for junk in JUNK:
            try:
                TypeAdapter(model).validate_python({name: junk})
            except ValidationError as error:
                messages |= {describe_fault(fault) for fault in error.errors()}

    assert messages
    assert [clause for clause in messages if any(raw in clause for raw in RAW)] == []


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("REELABEL_EXTRACT_PROCESSES", "many", "extract.processes: 'many' must be a whole number"),
        ("REELABEL_SERVE_MAX_REQUESTS", "0", "serve.max_requests: '0' must be at least 1"),
        ("REELABEL_STORE_ENCODING", "zip", "store.encoding: 'zip' must be 'raw', 'zstd' or 'sparse'"),
        ("REELABEL_STORE_URI", "ftp://x", "store.uri: 'ftp://x' has the wrong format"),
    ],
)
def test_a_refused_setting_says_what_it_must_be(monkeypatch, variable, value, message):
    monkeypatch.setenv(variable, value)

    with pytest.raises(ConfigurationError) as raised:
        load_settings()

    assert message in raised.value.message
    assert not any(raw in raised.value.message for raw in RAW)


@pytest.mark.parametrize(
    ("refuse", "message"),
    [
        (lambda: parse_sampler("uniform,colour=3"), "colour 3: unknown option"),
        (lambda: parse_sampler("uniform:9999"), "num_frames 9999: must be at most 2048"),
        (lambda: choose(Selection, {"margin_below": 3.0}), "--margin-below 3.0: must be at most 1"),
        (lambda: choose(Selection, {"since": "soon"}), "--since soon: not a time; write 2026-11-01"),
        (lambda: PrepareVideo(retries=99), "retries: must be at most 19"),
        (lambda: choose(NightlySettings, {"when_running": "stop"}), "--when-running stop: must be 'queue' or 'skip'"),
    ],
)
def test_a_refused_option_says_what_it_must_be(refuse, message):
    with pytest.raises(ConfigurationError) as raised:
        refuse()

    assert message in raised.value.message
    assert not any(raw in raised.value.message for raw in RAW)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"overrides": {"sampling": {"num_frames": 0}}}, "must be at least 1"),
        ({"overrides": {"colour": 1}}, "unknown option"),
        ({"manifest": ""}, "Manifest: must not be empty."),
    ],
)
def test_a_flow_refuses_in_the_same_words(values, message):
    with pytest.raises(ConfigurationError) as raised:
        classify.fn(**{"manifest": "m"} | values)

    assert message in raised.value.message
    assert not any(raw in raised.value.message for raw in RAW)


def refusal(kind, value):
    with pytest.raises(ValidationError) as raised:
        TypeAdapter(kind).validate_python(value)
    return raised.value


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (Annotated[str, Field(min_length=1)], "", "must not be empty"),
        (Annotated[str, Field(min_length=2)], "a", "must have at least 2 characters"),
        (Annotated[str, Field(max_length=1000)], "a" * 1001, "must have at most 1,000 characters"),
        (Annotated[list[int], Field(min_length=2)], [1], "must have at least 2 entries"),
        (Annotated[float, Field(gt=1)], 1, "must be greater than 1.0"),
        (Annotated[float, Field(lt=1)], 1, "must be less than 1.0"),
        (float, "inf?", "must be a number"),
        (Annotated[float, Field(allow_inf_nan=False)], "inf", "must be a finite number"),
        (bool, "maybe", "must be true or false"),
        (datetime, "soon", "must be a time, such as 2026-11-01T02:00:00+01:00"),
        (date, "soon", "must be a date, such as 2026-11-01"),
        (UUID, "last", "must be a UUID"),
    ],
)
def test_a_bound_and_a_kind_have_their_own_words(kind, value, message):
    assert first_fault(refusal(kind, value)) == ("", value, message)


@pytest.mark.parametrize("as_bytes", [True, False])
def test_a_text_of_too_many_parts_is_not_even_parsed(as_bytes):
    text = "," * 100_000
    allowed, too_many = (text, f"{text},")
    if as_bytes:
        allowed, too_many = allowed.encode(), too_many.encode()

    assert too_intricate(allowed) is None
    assert too_intricate(too_many) == "has 100,001 commas; 100,000 are allowed"


def test_only_so_many_faults_are_named():
    assert too_many_faults(refusal(list[int], ["a"] * 100)) is None
    assert too_many_faults(refusal(list[int], ["a"] * 101)) == "has 101 faults, too many to name"
