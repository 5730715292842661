from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from reelabel.errors import ConfigurationError
from tasks.manifest.location import (
    check_date_placeholders,
    fill_date_placeholders,
    has_date_placeholders,
    is_one_file,
    nightly_dataset,
)

NIGHT = datetime(2026, 11, 1, 2, tzinfo=ZoneInfo("Europe/Berlin"))


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("s3://b/dt={scheduled_date}/*.parquet", "s3://b/dt=2026-11-01/*.parquet"),
        ("s3://b/{scheduled_date:%Y/%m}/{scheduled_date:%d}.parquet", "s3://b/2026/11/01.parquet"),
        ("{scheduled_time:%H}", "02"),
        ("{scheduled_time}", "2026-11-01T02:00:00+01:00"),
        ("s3://b/{part}.parquet", "s3://b/{part}.parquet"),
    ],
)
def test_dates_are_filled_in_and_other_braces_unchanged(text, rendered):
    assert fill_date_placeholders(text, NIGHT) == rendered
    assert has_date_placeholders(text) == (text != rendered)


@pytest.mark.parametrize(
    "text",
    [
        "{schedule_date}",
        "{date}",
        "{scheduled_date.year}",
        "{Scheduled_Date}",
        "{scheduled_dat}",
        "{scheduled_dat:%Y/%m}",
        "{part}",
        "{scheduled_date",
    ],
)
def test_a_misspelt_date_is_refused(text):
    with pytest.raises(ConfigurationError, match=r"is not a date placeholder; write \{scheduled_date\}"):
        check_date_placeholders(f"s3://b/{text}/*.parquet")


@pytest.mark.parametrize(
    ("manifest", "dataset"),
    [
        ("s3://b/jobs/dt={scheduled_date}/*.parquet", "jobs-{scheduled_date}"),
        ("s3://b/jobs/dt={scheduled_date}/animals.parquet", "animals-{scheduled_date}"),
        ("s3://b/jobs/{scheduled_date:%Y/%m/%d}.parquet", "jobs-{scheduled_date:%Y-%m-%d}"),
        ("s3://b/jobs-{scheduled_date}.parquet", "jobs-{scheduled_date}"),
        ("/in/y={scheduled_date:%Y}/m={scheduled_date:%m}/*.parquet", "in-{scheduled_date:%Y}-{scheduled_date:%m}"),
        ("s3://b/{scheduled_date}/*.parquet", "b-{scheduled_date}"),
        ("s3://b/jobs/{scheduled_time:%Y-%m-%dT%H}.parquet", "jobs-{scheduled_time:%Y-%m-%dT%H}"),
        ("s3://b/animals.parquet", None),
    ],
)
def test_every_night_has_a_dataset_of_its_own(manifest, dataset):
    assert nightly_dataset(manifest) == dataset


@pytest.mark.parametrize(
    ("manifest", "is_one"),
    [("s3://b/jobs.parquet", True), ("s3://b/*.parquet", False), ("s3://b/{scheduled_date}.parquet", False)],
)
def test_a_manifest_without_dates_and_globs_is_the_same_file_every_night(manifest, is_one):
    assert is_one_file(manifest) == is_one
