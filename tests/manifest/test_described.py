"""Manifests of videos to be described, which need no questions."""

import json

import polars as pl
import pytest

from infra.errors import ManifestError
from tasks.manifest.digests import rows_to_jobs
from tasks.manifest.parquet import open_manifest
from tasks.manifest.table import open_jobs, read_unchecked_batches
from tests.manifest.conftest import manifest_rows

VIDEOS = pl.DataFrame({"job_id": ["a", "b"], "video_uri": ["a.mp4", "b.mp4"]})


def test_a_manifest_to_be_described_needs_only_ids_and_videos(local_objects, tmp_path):
    path = tmp_path / "videos.parquet"
    VIDEOS.with_columns(start_s=pl.Series([1.5, None])).write_parquet(path)

    with open_jobs(str(path), local_objects, questions=False) as jobs:
        [part] = jobs.parts()
        assert part.sort("job_id").select("job_id", "video_uri", "start_s", "prompt", "choices").rows() == [
            ("a", "a.mp4", 1.5, "", []),
            ("b", "b.mp4", None, "", []),
        ]
        expected = [job.digest for job in rows_to_jobs(part)]
        assert part["job_digest"].to_list() == expected
    with pytest.raises(ManifestError, match="Column prompt is missing"), open_jobs(str(path), local_objects):
        pass


def test_questions_do_not_change_what_a_video_is_described_by(local_objects, tmp_path):
    with_questions = manifest_rows(3).with_columns(
        prompt=pl.Series(["?", "What?", None]), answer=pl.lit("maybe"), template=pl.lit("{")
    )
    with_questions.write_parquet(tmp_path / "jobs.parquet")
    with_questions.select("job_id", "video_uri").write_parquet(tmp_path / "plain.parquet")

    found = []
    for name in ("jobs", "plain"):
        with open_jobs(str(tmp_path / f"{name}.parquet"), local_objects, questions=False) as jobs:
            found.append(pl.concat(jobs.parts()).sort("job_id"))
        with open_manifest(str(tmp_path / f"{name}.parquet"), local_objects) as files:
            [unchecked] = read_unchecked_batches(files, questions=False)
            assert unchecked["job_digest"].to_list() == found[-1]["job_digest"].to_list()

    assert found[0].equals(found[1])


def test_videos_of_messages_are_described(local_objects, tmp_path):
    content = [{"type": "video_url", "video_url": {"url": "s3://b/a.mp4"}}, {"type": "text", "text": "?"}]
    rows = {"job_id": ["a"], "messages": [json.dumps([{"role": "user", "content": content}])]}
    pl.DataFrame(rows).write_parquet(tmp_path / "jobs.parquet")

    with open_jobs(str(tmp_path / "jobs.parquet"), local_objects, questions=False) as jobs:
        [part] = jobs.parts()

    assert part.select("video_uri", "prompt", "messages").rows() == [("s3://b/a.mp4", "", None)]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ({"video_uri": ["a.mp4", " "]}, "video_uri is empty"),
        ({"job_id": ["a", None]}, "job_id is null"),
        ({"job_id": ["a", "a"]}, "job_id is not unique"),
        ({"video_uri": ["a.mp4", "ftp://b/c.mp4"]}, "its scheme is not one of"),
        ({"start_s": [3.0, 1.0], "end_s": [2.0, 2.0]}, "end_s is not after start_s"),
    ],
)
def test_a_manifest_to_be_described_is_checked_all_the_same(local_objects, tmp_path, rows, sentence):
    columns = [pl.Series(name, values) for name, values in rows.items()]
    VIDEOS.with_columns(*columns).write_parquet(tmp_path / "videos.parquet")

    with (
        pytest.raises(ManifestError, match=sentence),
        open_jobs(str(tmp_path / "videos.parquet"), local_objects, questions=False),
    ):
        pass
