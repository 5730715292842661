"""A manifest of real clips."""

import polars as pl
import pytest

from tests.clips import make_clip

__all__ = ["make_clip"]


@pytest.fixture
def write_manifest(tmp_path):
    """Return a function that writes jobs, given by their video and tags, as a manifest."""
    return lambda *jobs: write_jobs(tmp_path / "jobs.parquet", *jobs)


def write_jobs(path, *jobs):
    complete = [{"start_s": None, "end_s": None, "task": None, "subtask": None} | job for job in jobs]
    rows = [{"job_id": f"job-{at}", "prompt": "?", "choices": ["a", "b"]} | job for at, job in enumerate(complete)]
    types = {"start_s": pl.Float64, "end_s": pl.Float64, "task": pl.String, "subtask": pl.String}
    pl.DataFrame(rows, schema_overrides=types).write_parquet(path)
    return str(path)
