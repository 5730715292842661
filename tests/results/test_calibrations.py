"""Calibration takes answers from the manifest and probabilities from the rows, which it never changes."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from infra.errors import ManifestError
from tasks.domain import Medium
from tasks.evaluation.calibration import calibrate
from tasks.results.evaluation.calibrations import known_answers, read_calibration, save_calibration
from tasks.results.read import read_results
from tasks.results.write import ShardWriter
from tests.results.rows import SCOPE, SPEC, job, result


@pytest.fixture
def jobs(db, run):
    """Write a hundred labelled jobs, two thirds of them correct."""
    jobs = [job(f"j{number:02}", answer="no" if number % 3 else "yes") for number in range(100)]
    ShardWriter(db, run).write(results=[result(one) for one in jobs], failures=[])
    return jobs


def test_known_answers_come_from_the_manifest_and_labels_from_the_rows(db, jobs):
    corrected = [replace(jobs[0], answer="no"), *jobs[1:]]
    unknown, other_question = replace(jobs[1], answer=None), replace(jobs[2], prompt="another?")

    known = known_answers(db, SCOPE, jobs=[corrected[0], unknown, other_question, *jobs[3:], job("new")])

    assert len(known.truths) == 98
    assert known.truths[0] == 1
    np.testing.assert_allclose(np.exp(known.logs[0]), [0.25, 0.75])


def test_answers_that_were_copied_are_no_further_answers(db, run, jobs):
    copies = [job(f"copy-{number}", answer="no", fingerprint="e2") for number in range(20)]
    copied = [result(jobs[0]).copied_to(copy) for copy in copies]
    ShardWriter(db, run).write(results=copied, failures=[])

    assert len(known_answers(db, SCOPE, jobs=[*jobs, *copies]).truths) == 100
    rows = read_results(db, SCOPE).filter(pl.col("copied_from").is_not_null())
    assert rows.select("copied_from", "source_fingerprint", "prompt_tokens", "decode_ms").unique().rows() == [
        ("j00", "e2", 0, 0)
    ]


def test_too_few_known_answers_are_refused_with_their_numbers(db, jobs):
    with pytest.raises(
        ManifestError, match="of 11 jobs in the manifest, 10 have a known answer, and 9 of these have a label"
    ):
        known_answers(db, SCOPE, jobs=[*jobs[:9], job("new", answer="no"), job("unknown")])


def test_answers_about_a_single_video_are_refused(db, run):
    jobs = [job(f"v{number}", video_uri="one.mp4", answer="no") for number in range(30)]
    ShardWriter(db, run).write(results=[result(one) for one in jobs], failures=[])

    with pytest.raises(ManifestError, match="on 1 video"):
        known_answers(db, SCOPE, jobs=jobs)


def test_answers_about_videos_that_one_job_links_are_refused(db, run):
    one, other = Medium("video", "one.mp4"), Medium("video", "other.mp4")
    linked = job("both", video_uri="one.mp4", media=(one, other), answer="no")
    jobs = [linked, *(job(f"v{number}", video_uri="other.mp4", answer="no") for number in range(30))]
    ShardWriter(db, run).write(results=[result(one) for one in jobs], failures=[])

    with pytest.raises(ManifestError, match="on 1 video"):
        known_answers(db, SCOPE, jobs=jobs)


def test_a_spec_has_one_temperature_and_raw_probabilities_are_unchanged(db, run, jobs):
    before = read_results(db, SCOPE)
    calibration = calibrate(known_answers(db, SCOPE, jobs=jobs))
    assert read_calibration(db, SPEC.spec_id) is None

    for turn in (replace(calibration, temperature=9.0), calibration):
        save_calibration(db, turn, SCOPE, run_id=run.run_id, manifest_uri="m.parquet")

    row = read_calibration(db, SPEC.spec_id)
    assert (row["dataset"], row["manifest_uri"], row["jobs"], row["bins"]) == ("d", "m.parquet", 100, 15)
    assert row["temperature"] == calibration.temperature
    assert (row["run_id"], row["wrong"]) == (run.run_id, 34)
    assert row["temperature_low"] < row["temperature"] < row["temperature_high"]
    assert (row["ece_before"], row["ece_after"]) == (calibration.ece_before, calibration.ece_after)
    assert read_results(db, SCOPE).equals(before)
