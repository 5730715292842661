"""Margins are fitted per spec, and rows keep the first answer of escalated jobs."""

from dataclasses import replace

import pytest

from reelabel.errors import ConfigurationError
from reelabel.sampling.options import Sampling
from tasks.domain import FirstAnswer, RunSpec
from tasks.evaluation.route import evaluate_margin, fit_route
from tasks.results.evaluation.routes import escalation_margin, paired_answers, save_route
from tasks.results.read import read_results
from tasks.results.runs import open_run
from tasks.results.write import ShardWriter
from tests.results.rows import SCOPE, SPEC, job, result

DENSE = RunSpec(model=SPEC.model, sampling=Sampling(sampler="uniform"))
ESCALATED = RunSpec(model=SPEC.model, sampling=Sampling(escalate_below="fitted"))
JOBS = [job(f"j{number:03}", answer="no", video_uri=f"{number // 2}.mp4") for number in range(120)]


@pytest.fixture
def dense_writer(db, run):
    """Return a writer of a second run, under the dense spec."""
    other = replace(run, run_id=run.run_id.__class__(int=7), spec_id=DENSE.spec_id)
    facts = {"dataset": "d", "manifest_uri": "m.parquet", "kind": "classify", "host": "h"}
    open_run(db, run_id=other.run_id, spec=DENSE, facts=facts | {"jobs_total": 3, "jobs_skipped": 0})
    return ShardWriter(db, other)


@pytest.fixture
def dense_run(dense_writer):
    """Write the same jobs, all correct, with 40 frames decoded per video."""
    rows = [result(each, sampler="uniform", frames_decoded=40) for each in JOBS]
    dense_writer.write(results=rows, failures=[])


@pytest.mark.usefixtures("dense_run")
def test_a_margin_is_fitted_on_jobs_answered_under_both_specs_and_saved(db, run):
    rows = [
        result(each, (0.5 - number / 250, 0.5 + number / 250), frames_decoded=4) for number, each in enumerate(JOBS)
    ]
    ShardWriter(db, run).write(results=rows, failures=[])
    known = [replace(each, answer="yes" if number < 30 else "no") for number, each in enumerate(JOBS)]

    sample = paired_answers(db, dataset="d", first=SPEC, dense=DENSE, jobs=[*known[:110], job("new")])
    fit = fit_route(sample, 0.05)
    save_route(db, fit, specs=(ESCALATED, SPEC, DENSE), dataset="d", manifest_uri="m.parquet")
    later = replace(fit, proven=replace(fit.proven, below=0.25))
    save_route(db, later, specs=(ESCALATED, SPEC, DENSE), dataset="d", manifest_uri="m")

    assert sample.videos.dtype.itemsize == 8  # even for long data: URIs
    assert (fit.jobs, fit.dense.frames_decoded, fit.first.frames_decoded) == (110, 55 * 40, 55 * 4)
    assert sample.margins[:3] == pytest.approx([0, 0.008, 0.016])
    assert fit.proof.below == 0.0  # both specs give the same answers
    assert 0 < fit.proof.overall.at_most < 0.05
    assert escalation_margin(db, ESCALATED) == 0.25


def test_frames_of_one_video_count_once_for_each_segment_and_sampler(db, run, dense_writer):
    segments = [{"end_s": 2.0}, {"start_s": 0.0, "end_s": 2.0}, {"start_s": 2.0}, {"start_s": 2.0}]
    jobs = [job(f"j{at}", answer="no", video_uri="a.mp4", **segment) for at, segment in enumerate(segments)]
    first = zip(jobs, ("keyframes", "keyframes", "keyframes", "uniform"), (4, 4, 7, 300), strict=True)
    second = zip(jobs, (16, 16, 300, 300), strict=True)
    rows = [result(each, sampler=sampler, frames_decoded=frames) for each, sampler, frames in first]
    ShardWriter(db, run).write(results=rows, failures=[])
    rows = [result(each, sampler="uniform", frames_decoded=frames) for each, frames in second]
    dense_writer.write(results=rows, failures=[])

    sample = paired_answers(db, dataset="d", first=SPEC, dense=DENSE, jobs=jobs)

    assert evaluate_margin(sample, 0.0).frames_decoded == 4 + 7 + 300
    assert evaluate_margin(sample, 2.0).frames_decoded == 4 + 7 + 300 + 16 + 300
    assert len(set(sample.videos)) == 1


def test_a_run_does_not_start_without_its_fitted_margin(db):
    with pytest.raises(ConfigurationError, match="No margin was fitted for this spec; fit one with"):
        escalation_margin(db, ESCALATED)


def test_an_explicit_margin_needs_no_fit(db):
    named = RunSpec(model=SPEC.model, sampling=Sampling(escalate_below=0.5))

    assert (escalation_margin(db, named), escalation_margin(db, SPEC)) == (0.5, None)


def test_an_escalated_row_stores_both_answers_and_the_margin(db, run):
    seen = {"coverage": "one_keyframe,long_gap", "longest_gap_s": 4.5, "keyframe_coverage": 0.25, "frames_decoded": 52}
    twice = replace(
        result(job("a"), sampler="uniform", **seen),
        routed_by="margin",
        first=FirstAnswer(label="yes", margin=0.25, below=0.5),
    )
    ShardWriter(db, run).write(results=[twice, result(job("b"))], failures=[])

    rows = read_results(db, SCOPE).sort("job_id").rows(named=True)

    names = ("sampler", "routed_by", "first_label", "first_margin", "escalate_below")
    assert [rows[0][name] for name in names] == ["uniform", "margin", "yes", 0.25, 0.5]
    assert {name: rows[0][name] for name in seen} == seen
    assert [rows[1][name] for name in names] == ["keyframes", "", None, None, None]
