"""The options that change a run's spec: one model, of which every command that asks has all fields."""

import math
import re
from typing import Annotated

import pytest
import typer
from pydantic import BaseModel, Field
from typer.main import get_command
from typer.testing import CliRunner

from flows.cli.main import app
from flows.cli.options import choose, with_option_group
from flows.run.request import (
    BackfillRequest,
    ClassifyRequest,
    DescribeRequest,
    EvaluateRequest,
    QuestionOptions,
    SurveyRequest,
)
from flows.run.spec import resolve_spec
from flows.runs import backfill, classify
from infra.settings import ChunkOptions, PromptOptions, SamplingOptions, Settings
from reelabel.errors import ConfigurationError
from tasks.domain import RunSpec
from tests.command_line import reelabel

OPTIONS = {
    name: field
    for model in (QuestionOptions, SamplingOptions, PromptOptions, ChunkOptions)
    for name, field in model.model_fields.items()
    if name not in {"sampling", "prompts", "chunks"}
}
# A value of each option other than its default, and what must be set for the option to have a meaning.
VALUES = {
    "video_pruning_rate": (0.5, {}),
    "max_tokens": (32, {}),
    "sampler": ("uniform", {}),
    "num_frames": (5, {}),
    "fps": (3.0, {"sampler": "fps"}),
    "max_duration_s": (50.0, {"sampler": "dynamic"}),
    "min_frames": (6, {"sampler": "qwen2_vl"}),
    "max_frames": (66, {"sampler": "qwen2_vl"}),
    "frame_sample_mode": ("fps", {"sampler": "molmo2"}),
    "frame_recovery": (False, {"sampler": "fps"}),
    "drop_similar": (0.5, {}),
    "jpeg_quality": (70, {}),
    "hdr": ("as_decoded", {}),
    "dense_sampler": ("fps", {"sampler": "auto"}),
    "min_keyframes": (7, {"sampler": "auto"}),
    "max_gap_s": (7.0, {"sampler": "auto"}),
    "coverage_radius_s": (0.7, {"sampler": "auto"}),
    "min_coverage": (0.7, {"sampler": "auto"}),
    "motion_tasks": ("order,count", {"sampler": "auto"}),
    "still_tasks": ("colour", {"sampler": "auto"}),
    "escalate_below": (0.3, {}),
    "template": ("{prompt} {choices}", {}),
    "system_prompt": ("Be brief.", {}),
    "examples": ("Q: one.", {}),
    "choice_scoring": ("text", {}),
    "permutations": (3, {}),
    "chunk_s": (60.0, {}),
    "chunk_rule": ("any:red", {"chunk_s": 60.0}),
}
PANELS = {"ids": "Job selection", "ids_file": "Job selection", "failed": "Job selection", "force": None, "fps": None}


def options_of(*command):
    found = get_command(app)
    for name in command:
        found = found.get_command(typer.Context(found), name)
    return {parameter.name: parameter for parameter in found.params}


@pytest.mark.parametrize("command", [("classify",), ("backfill",), ("prompt",), ("route", "fit")])
def test_every_command_that_asks_a_model_has_an_option_for_each_field(command):
    has = options_of(*command)

    assert OPTIONS.keys() <= has.keys()
    for name in OPTIONS:
        assert has[name].opts == [f"--{name.replace('_', '-')}"]
        assert has[name].help


@pytest.mark.parametrize(
    ("command", "request_model"),
    [
        (("classify",), ClassifyRequest),
        (("describe",), DescribeRequest),
        (("backfill",), BackfillRequest),
        (("evaluate",), EvaluateRequest),
        (("manifest", "survey"), SurveyRequest),
    ],
)
def test_every_field_of_a_request_is_an_option_of_its_command(command, request_model):
    def fields_of(model):
        for name, field in model.model_fields.items():
            is_group = isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
            yield from fields_of(field.annotation) if is_group else [name]

    missing = {*fields_of(request_model)} - {*options_of(*command), "may_be_empty"}
    by_another_name = {("classify",): {"manifest"}, ("evaluate",): {"samplers", "models"}}
    assert missing <= by_another_name.get(command, set())


def test_options_of_a_section_have_its_title_as_their_panel():
    panels = {name: option.rich_help_panel for name, option in options_of("backfill").items() if name in PANELS}

    assert panels == PANELS


def test_forms_take_the_same_model_as_commands():
    for flow in (classify, backfill):
        groups = flow.parameters.model_dump()["definitions"]
        assert list(groups["QuestionOptions"]["properties"]) == list(QuestionOptions.model_fields)


def test_these_tests_cover_every_option():
    assert VALUES.keys() == OPTIONS.keys() - {"model"}


@pytest.mark.parametrize("name", VALUES)
def test_an_option_reaches_the_spec_as_a_parameter_of_the_flow(name):
    value, needs = VALUES[name]
    request = ClassifyRequest(manifest="m", overrides=choose(QuestionOptions, needs | {name: value}))
    received = ClassifyRequest(**request.parameters)

    _, spec = resolve_spec(received.overrides, Settings())
    by_default = resolve_spec(QuestionOptions(), Settings())[1]

    holder = spec if name in RunSpec.model_fields else spec.sampling
    assert getattr(holder, name) == (tuple(value.split(",")) if name.endswith("tasks") else value)
    assert spec.spec_id != by_default.spec_id


@pytest.mark.parametrize("name", ["template", "system_prompt"])
def test_a_prompt_option_is_a_setting_and_part_of_the_spec(name):
    value, _ = VALUES[name]

    _, spec = resolve_spec(QuestionOptions(), Settings(model={name: value}))

    assert getattr(spec, name) == value


class WiderOverrides(QuestionOptions):
    """With an option more."""

    patience: Annotated[int | None, Field(ge=0, description="How patient the model is.")] = None


def test_a_new_field_becomes_an_option():
    received = []

    def command(overrides: WiderOverrides) -> None:
        received.append(overrides)

    wider = typer.Typer()
    wider.command()(with_option_group(command, "overrides", WiderOverrides))
    shown = CliRunner().invoke(wider, ["--help"], env={"COLUMNS": "160"})
    CliRunner().invoke(wider, ["--patience", "3", "--sampler", "uniform"], catch_exceptions=False)

    assert "How patient the model is." in shown.output
    [chosen] = received
    assert (chosen.patience, chosen.sampling.sampler) == (3, "uniform")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sampler": "keyframe"}, "Unknown sampler keyframe; did you mean keyframes"),
        ({"num_frames": 0}, "--num-frames 0: must be at least 1"),
        ({"permutations": 27}, "--permutations 27: must be at most 26"),
        ({"chunk_s": 0.001}, "--chunk-s 0.001: use at least 1 second, or 0 to cut nothing"),
        ({"chunk_s": -1}, "--chunk-s -1: must be at least 0"),
        ({"chunk_s": 1e9}, "--chunk-s 1000000000.0: must be at most 86400"),
        ({"chunk_s": math.nan}, "--chunk-s nan: must be at most 86400"),
        ({"choice_scoring": "words"}, "--choice-scoring words: must be 'letter' or 'text'"),
    ],
)
def test_an_impossible_value_is_refused_by_its_option(values, message):
    with pytest.raises(ConfigurationError, match=message):
        choose(QuestionOptions, values)


def test_a_bad_value_is_a_usage_error():
    refused = reelabel({}, "classify", "m.parquet", "--permutations", "27")

    assert refused.returncode == 2
    assert "--permutations 27" in refused.stderr


def test_help_says_which_options_are_numbers():
    shown = reelabel({"COLUMNS": "160"}, "classify", "--help-all").stdout

    for option, kind in (("--fps", "<float>"), ("--num-frames", "<int>"), ("--escalate-below", "<float>|fitted")):
        assert re.search(f"{option} +{re.escape(kind)} ", shown)


def test_help_shows_the_options_that_most_runs_need_and_help_all_every_one():
    short = reelabel({"COLUMNS": "80"}, "classify", "--help").stdout
    full = reelabel({"COLUMNS": "160"}, "classify", "--help-all").stdout

    assert len(short.splitlines()) <= 40
    assert all(
        option in short for option in ("--model", "--sampler", "--num-frames", "--chunk-s", "--dry-run", "--set")
    )
    hidden = OPTIONS.keys() - {"model", "sampler", "num_frames", "chunk_s"}
    flags = [f"--{name.replace('_', '-')} " for name in hidden]
    assert not any(flag in short for flag in flags)
    assert all(flag in full for flag in flags)
