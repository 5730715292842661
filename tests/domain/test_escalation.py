"""A job that is asked twice has one row, which tells of both answers and of what both took."""

from dataclasses import replace

import pytest

from tasks.domain.escalation import merge_answers, needs_escalation
from tests.results.rows import failure, job, result


@pytest.fixture
def first():
    return replace(result(job("a"), (0.4, 0.6)), frames_decoded=4, keyframe_cover=0.2)


def test_only_what_keyframes_were_shown_for_is_asked_again_where_its_margin_is_small(first):
    assert needs_escalation(first, below=0.3)
    assert not needs_escalation(first, below=0.1)
    assert not needs_escalation(replace(first, sampler="uniform"), below=0.3)


def test_the_second_answer_stands_and_both_are_paid_for(first):
    second = replace(result(first.job, (0.1, 0.9)), sampler="uniform", frames_decoded=48)

    row = merge_answers(first, second, below=0.3)

    assert (row.sampler, row.routed_by, row.frames_decoded) == ("uniform", "margin", 52)
    assert (row.answer.probabilities, row.answer.prompt_tokens, row.answer.inference_ms) == ((0.1, 0.9), 180, 4)
    assert (row.decode_ms, row.cache_read_ms) == (4, 8)
    assert (row.first.label, row.first.margin, row.first.below) == ("no", pytest.approx(0.2), 0.3)


def test_a_sure_answer_stands_and_says_below_what_it_would_not_have(first):
    row = merge_answers(first, None, below=0.1)

    assert row.first.below == 0.1
    assert replace(row, first=None) == first


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        (failure(job("a"), message="It hangs."), "It hangs."),
        (replace(result(job("a")), source_fingerprint="e2"), "the video was replaced meanwhile"),
    ],
)
def test_where_the_second_answer_is_none_the_first_one_stands_and_says_why(first, ending, why):
    row = merge_answers(first, ending, below=0.3)

    assert (row.answer, row.decode_note) == (first.answer, f"not asked again: {why}")
