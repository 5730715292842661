"""A job that is asked twice has one row, which tells of both answers and of what both took."""

from dataclasses import replace

import pytest

from tasks.domain.outcome import merge_answers, needs_escalation
from tests.results.rows import failure, job, result


@pytest.fixture
def first():
    return result(job("a"), (0.4, 0.6), frames_decoded=4, bytes_fetched=100, keyframe_coverage=0.2)


def test_only_what_keyframes_were_shown_for_is_asked_again_where_its_margin_is_small(first):
    assert needs_escalation(first, below=0.3)
    assert not needs_escalation(first, below=0.1)
    assert not needs_escalation(result(first.job, (0.4, 0.6), sampler="uniform"), below=0.3)


def test_the_second_answer_stands_and_both_are_paid_for(first):
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


def test_a_sure_answer_stands_and_says_below_what_it_would_not_have(first):
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
def test_where_the_second_answer_is_none_the_first_one_stands_and_says_why(first, ending, why):
    row = merge_answers(first, ending, below=0.3)

    assert (row.answer, row.provenance.decode_note) == (first.answer, f"not asked again: {why}")
