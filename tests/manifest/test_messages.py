import json
from datetime import UTC, datetime

import polars as pl
import pytest

from infra.settings import StoreSettings
from reelabel.sources.object_store import ObjectStore
from tasks.manifest.check import check_manifest
from tasks.manifest.table import read_jobs

VIDEO = {"type": "video_url", "video_url": {"url": "s3://b/v.mp4"}}
TEXT = {"type": "text", "text": "What colour?"}


def chat(*parts, system=None):
    system_messages = [{"role": "system", "content": system}] if system else []
    return [*system_messages, {"role": "user", "content": [*parts]}]


def manifest_rows(*messages, **more):
    columns = {
        "job_id": [f"j{number}" for number in range(len(messages))],
        "choices": [["red", "green"]] * len(messages),
        "messages": [value if isinstance(value, str | None) else json.dumps(value) for value in messages],
    }
    return pl.DataFrame(columns | more)


def jobs_of(frame, tmp_path):
    frame.write_parquet(tmp_path / "jobs.parquet")
    return read_jobs(str(tmp_path / "jobs.parquet"), ObjectStore(StoreSettings()))


@pytest.mark.parametrize(
    "video",
    [
        pytest.param(VIDEO, id="video_url"),
        pytest.param({"type": "video", "video": "s3://b/v.mp4"}, id="video"),
        pytest.param({"type": "video", "video": {"url": "s3://b/v.mp4"}}, id="video with a url"),
    ],
)
def test_messages_give_the_video_the_question_and_the_system_prompt(tmp_path, video):
    (job,) = jobs_of(manifest_rows(chat(video, TEXT, system="Be brief.")), tmp_path)

    assert (job.video_uri, job.prompt, job.system_prompt) == ("s3://b/v.mp4", "What colour?", "Be brief.")
    assert job.digest


def test_messages_may_be_lists_of_structs(tmp_path):
    frame = manifest_rows(None, None).with_columns(messages=pl.Series([chat(VIDEO, TEXT), chat(TEXT, VIDEO)]))

    struct_jobs, text_jobs = (
        jobs_of(frame, tmp_path),
        jobs_of(manifest_rows(chat(VIDEO, TEXT), chat(TEXT, VIDEO)), tmp_path),
    )

    assert isinstance(frame.schema["messages"], pl.List)
    assert struct_jobs[0].video_uri == "s3://b/v.mp4"
    assert [job.digest for job in struct_jobs] == [job.digest for job in text_jobs]


def test_rows_with_and_without_messages_can_be_mixed(tmp_path):
    frame = manifest_rows(chat(VIDEO, TEXT), None, video_uri=[None, "a.mp4"], prompt=[None, "Who?"])

    assert [(job.video_uri, job.prompt) for job in jobs_of(frame, tmp_path)] == [
        ("s3://b/v.mp4", "What colour?"),
        ("a.mp4", "Who?"),
    ]


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        pytest.param("{", "not JSON", id="not JSON"),
        pytest.param("[" * 100_000, "not JSON", id="nested too deeply"),
        pytest.param(chat(VIDEO, {"type": "text", "text": "\ud83d"}), "unpaired surrogate", id="unpaired surrogate"),
        pytest.param({"role": "user"}, "not a list of messages", id="one message"),
        pytest.param(["hello"], "a message has no role or no content", id="text"),
        pytest.param([{"role": "user"}], "a message has no role or no content", id="no content"),
        pytest.param([{"role": "assistant", "content": "A"}], "a message has the role 'assistant'", id="unknown role"),
        pytest.param([{"role": "user", "content": 7}], "neither text nor a list of parts", id="number"),
        pytest.param(chat(TEXT), "expected a video, found none", id="no video"),
        pytest.param(chat({"type": "input_audio"}), "a part has the type 'input_audio'; only text", id="sound"),
        pytest.param(chat({"type": "video", "video": ["a.jpg", "b.jpg"]}), "a list of frames", id="frames"),
        pytest.param(chat({"type": "video_url", "video_url": {}}), "'video_url' without its URL", id="no url"),
        pytest.param(chat(VIDEO), "prompt is empty", id="no text"),
        pytest.param(chat({"type": "video", "video": "ftp://h/v"}, TEXT), "its scheme is not one of", id="scheme"),
    ],
)
def test_each_fault_of_messages_is_named_with_its_rows(messages, message):
    faults = check_manifest(manifest_rows(chat(VIDEO, TEXT), messages, messages))

    assert [message in fault for fault in faults] == [True], faults
    assert faults[0].startswith(("messages", "prompt", "video_uri"))
    assert "2 rows, first row 1 (" in faults[0]


@pytest.mark.parametrize("value", [b"What colour?", datetime(2026, 11, 1, tzinfo=UTC)])
def test_values_that_json_cannot_represent_are_not_text_and_are_ignored_elsewhere(tmp_path, value):
    text = [chat(VIDEO, TEXT | {"text": value})]
    beside = [chat(VIDEO, TEXT | {"seen": value})]

    faults = check_manifest(manifest_rows(None).with_columns(messages=pl.Series(text)))
    (job,) = jobs_of(manifest_rows(None).with_columns(messages=pl.Series(beside)), tmp_path)

    assert faults == ["messages: a part of type 'text' without its text. 1 row, first row 0 (job_id 'j0')."]
    assert job.prompt == "What colour?"


def test_fields_given_by_messages_may_not_be_given_twice():
    frame = manifest_rows(chat(VIDEO, TEXT), video_uri=["a.mp4"], prompt=["Who?"])

    [fault] = check_manifest(frame)
    assert "messages: video_uri and prompt given both in messages and in a column; leave one out. 1 row" in fault


def test_a_system_prompt_may_accompany_messages_without_one(tmp_path):
    (job,) = jobs_of(manifest_rows(chat(VIDEO, TEXT), system_prompt=["Be brief."]), tmp_path)

    assert job.system_prompt == "Be brief."


def test_rows_without_messages_still_need_a_video():
    faults = check_manifest(manifest_rows(chat(VIDEO, TEXT), None, None))

    assert [fault.partition(",")[0] for fault in faults] == ["video_uri is null. 2 rows", "prompt is null. 2 rows"]
