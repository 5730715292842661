import io

import polars as pl
import pytest

from infra.errors import ManifestError
from tasks.manifest.table import read_jobs


def parquet(job_id):
    row = {"job_id": [job_id], "video_uri": ["s3://b/v.mp4"], "prompt": ["?"], "choices": [["yes", "no"]]}
    buffer = io.BytesIO()
    pl.DataFrame(row).write_parquet(buffer)
    return buffer.getvalue()


def test_a_glob_on_s3_matches_the_files_of_one_folder(objects, store_settings):
    for name in ("day-1", "day-2", "night-1", "old/day-3"):
        objects.write_new(f"{store_settings.uri}/{name}.parquet", parquet(name))

    jobs = read_jobs(f"{store_settings.uri}/day-*.parquet", objects)

    assert [job.job_id for job in jobs] == ["day-1", "day-2"]


def test_an_object_whose_name_looks_like_a_glob_is_taken_literally(objects, store_settings):
    for name in ("jobs[1]", "jobs1"):
        objects.write_new(f"{store_settings.uri}/{name}.parquet", parquet(name))

    jobs = read_jobs(f"{store_settings.uri}/jobs[1].parquet", objects)

    assert [job.job_id for job in jobs] == ["jobs[1]"]


def test_anything_missing_on_s3_is_named(objects, store_settings):
    with pytest.raises(ManifestError, match=r"no manifest file at s3://.*gone\.parquet"):
        read_jobs(f"{store_settings.uri}/gone.parquet", objects)
    with pytest.raises(ManifestError, match="No file matches s3://"):
        read_jobs(f"{store_settings.uri}/*.parquet", objects)
