"""A job that is asked twice has one row with both answers and the cost of both."""

from dataclasses import replace

import pytest

from tasks.domain.outcome import merge_answers, needs_escalation
from tests.results.rows import failure, job, result


@pytest.fixture
def first():
    return result(job("a"), (0.4, 0.6), frames_decoded=4, bytes_fetched=100, keyframe_coverage=0.2)


def test_only_jobs_answered_from_keyframes_with_a_low_margin_are_escalated(first):
    assert needs_escalation(first, below=0.3)
    assert not needs_escalation(first, below=0.1)
    assert not needs_escalation(result(first.job, (0.25, 0.75)), below=0.5)
    assert not needs_escalation(result(first.job, (0.4, 0.6), sampler="uniform"), below=0.3)


def test_the_second_answer_counts_and_the_cost_includes_both(first):
    second = result(first.job, (0.1, 0.9), sampler="uniform", frames_decoded=48, bytes_fetched=1000)

    row = merge_answers(first, second, below=0.3)

    frames = row.provenance
    assert (frames.sampler, row.routed_by, frames.frames_decoded, frames.bytes_fetched) == (
        "uniform",
        "margin",
        52,
        1100,
    )
    assert (row.answer.probabilities, row.answer.prompt_tokens, row.answer.inference_ms) == ((0.1, 0.9), 180, 4)
    assert (frames.decode_ms, frames.cache_read_ms, frames.frames_used) == (4, 8, 4)
    assert (row.first.label, row.first.margin, row.first.below) == ("no", pytest.approx(0.2), 0.3)


def test_a_confident_answer_is_kept_with_the_margin_it_had_to_reach(first):
    row = merge_answers(first, None, below=0.1)

    assert row.first.below == 0.1
    assert replace(row, first=None) == first


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        (failure(job("a"), message="It hangs."), "It hangs."),
        (result(job("a"), fingerprint="e2"), "the video was replaced meanwhile"),
    ],
)
def test_if_the_second_pass_fails_the_first_answer_is_kept_with_the_reason(first, ending, why):
    row = merge_answers(first, ending, below=0.3)

    assert (row.answer, row.provenance.decode_note) == (first.answer, f"not asked again: {why}")
