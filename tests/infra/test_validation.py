"""Whatever pydantic refuses is explained in plain words, wherever a user meets it."""

import pytest
from pydantic import TypeAdapter, ValidationError

from flows.cli.options import choose
from flows.compare.candidates import parse_sampler
from flows.run.request import QuestionOptions
from flows.runs import classify
from infra.settings import NightlySettings, Settings, load_settings
from infra.settings.types import fields_of
from infra.validation import describe_fault
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
    told = set()
    for name in (*fields_of(model), "unknown_field"):
        for junk in JUNK:
            try:
                TypeAdapter(model).validate_python({name: junk})
            except ValidationError as error:
                told |= {describe_fault(fault) for fault in error.errors()}

    assert told
    assert [clause for clause in told if any(raw in clause for raw in RAW)] == []


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("REELABEL_EXTRACT_PROCESSES", "many", "extract.processes: 'many' must be a whole number"),
        ("REELABEL_SERVE_MAX_REQUESTS", "0", "serve.max_requests: '0' must be at least 1"),
        ("REELABEL_STORE_ENCODING", "zip", "store.encoding: 'zip' must be 'raw', 'zstd' or 'sparse'"),
        ("REELABEL_STORE_URI", "ftp://x", "store.uri: 'ftp://x' has the wrong format"),
    ],
)
def test_a_refused_setting_says_what_it_must_be(monkeypatch, variable, value, told):
    monkeypatch.setenv(variable, value)

    with pytest.raises(ConfigurationError) as refused:
        load_settings()

    assert told in refused.value.message
    assert not any(raw in refused.value.message for raw in RAW)


@pytest.mark.parametrize(
    ("refuse", "told"),
    [
        (lambda: parse_sampler("uniform,colour=3"), "colour 3: unknown option"),
        (lambda: parse_sampler("uniform:9999"), "num_frames 9999: must be at most 2048"),
        (lambda: choose(Selection, {"margin_below": 3.0}), "--margin-below 3.0: must be at most 1"),
        (lambda: choose(Selection, {"since": "soon"}), "--since soon: not a time; write 2026-11-01"),
        (lambda: PrepareVideo(retries=99), "retries: must be at most 19"),
        (lambda: choose(NightlySettings, {"when_running": "stop"}), "--when-running stop: must be 'queue' or 'skip'"),
    ],
)
def test_a_refused_option_says_what_it_must_be(refuse, told):
    with pytest.raises(ConfigurationError) as refused:
        refuse()

    assert told in refused.value.message
    assert not any(raw in refused.value.message for raw in RAW)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"overrides": {"sampling": {"num_frames": 0}}}, "must be at least 1"),
        ({"overrides": {"colour": 1}}, "unknown option"),
        ({"manifest": ""}, "Manifest: must not be empty."),
    ],
)
def test_a_flow_refuses_in_the_same_words(values, told):
    with pytest.raises(ConfigurationError) as refused:
        classify.fn(**{"manifest": "m"} | values)

    assert told in refused.value.message
    assert not any(raw in refused.value.message for raw in RAW)
