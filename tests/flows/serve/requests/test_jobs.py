"""A request's job, by the rules of manifests."""

import math

import polars as pl
import pytest

from flows.serve.errors import RequestError
from flows.serve.requests.classify import ClassifyRequest
from flows.serve.requests.jobs import job_from
from infra.settings import ChunkOptions, PromptOptions, SamplingOptions
from reelabel.sources.object_store import ObjectStore
from tasks.manifest.check import check_row, check_rows
from tasks.manifest.schema import COLUMNS
from tasks.manifest.schema import ROW as ROW_NUMBER
from tasks.manifest.table import read_jobs

ROW = {"video_uri": "s3://videos/a.mp4", "prompt": "What?", "choices": ["a", "b"]}


def test_a_job_is_that_of_the_row_of_a_manifest(tmp_path):
    manifest = tmp_path / "jobs.parquet"
    pl.DataFrame(
        {name: [value] for name, value in (ROW | {"job_id": "request", "start_s": 1.5}).items()}
    ).write_parquet(manifest)

    [of_manifest] = read_jobs(str(manifest), ObjectStore())

    assert job_from(ROW | {"start_s": 1.5}, upload=None) == of_manifest


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"choices": ["a"]}, "fewer than two answers"),
        ({"prompt": " "}, "prompt is empty"),
        ({"video_uri": "s3://videos"}, "no bucket or no key"),
        ({"start_s": 2.0, "end_s": 1.0}, "end_s is not after start_s"),
        ({"template": "{prompt}"}, "{choices}"),
        ({"video_uri": None}, "Pass a video_uri"),
    ],
)
def test_a_job_that_breaks_a_rule_is_refused_by_that_rule(changed, message):
    with pytest.raises(RequestError) as raised:
        job_from(ROW | changed, upload=None)

    assert message in raised.value.message
    assert "row" not in raised.value.message


def test_an_upload_and_a_uri_are_one_too_many():
    with pytest.raises(RequestError, match="not both"):
        job_from(ROW, upload="/uploads/x")


def test_a_description_needs_a_video_alone():
    assert job_from({"video_uri": None}, upload="/uploads/x", questions=False).video_uri == "/uploads/x"


def test_every_option_of_runs_can_be_an_option_of_a_request():
    request = ClassifyRequest(
        **ROW, sampler="uniform", num_frames=3, permutations=2, chunk_s=5, template="{prompt}{choices}"
    )

    overrides = request.overrides()

    assert overrides.sampling == SamplingOptions(sampler="uniform", num_frames=3)
    assert overrides.prompts == PromptOptions(permutations=2)
    assert overrides.chunks == ChunkOptions(chunk_s=5)
    assert request.job_values()["template"] == "{prompt}{choices}"
    hash(overrides)


@pytest.mark.parametrize("questions", [True, False])
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"video_uri": "/videos/a.mp4"},
        {"video_uri": "https://host/a.mp4"},
        {"video_uri": "s3://"},
        {"video_uri": "//a"},
        {"job_id": "j\0"},
        {"prompt": "\u2003"},
        {"choices": ["a", "a"]},
        {"choices": ["a", " "]},
        {"choices": None, "prompt": None},
        {"choices": ["a", "b\0"]},
        {"video_uri": "ftp://a/b"},
        {"video_uri": "https:///b", "start_s": -1.0},
        {"video_uri": "data:video/mp4"},
        {"start_s": math.nan, "end_s": 0.0},
        {"template": "{prompt}", "task": "t\0"},
        {"answer": "c"},
        {"job_id": "x" * 2000},
    ],
)
def test_one_row_breaks_the_rules_that_it_breaks_in_a_manifest(changed, questions):
    row = ROW | {"job_id": "request"} | changed
    frame = pl.DataFrame({name: [row.get(name)] for name in COLUMNS}, schema=COLUMNS).with_row_index(ROW_NUMBER)

    _, faults = check_rows(frame, questions=questions)

    assert check_row(row, questions=questions) == faults["rule"].to_list()
