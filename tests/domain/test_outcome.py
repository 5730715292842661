"""What an answer says of itself, and what the row of several says of all."""

from dataclasses import replace
from math import log

import pytest

from reelabel.errors import VideoMissingError
from tasks.domain import Failure, Medium, Stage, Words
from tasks.domain.outcome import Answer, merge_answers, merge_media, merge_provenance, needs_escalation
from tests.results.rows import PROVENANCE, job, result

COUNTS = {"prompt_tokens": 1, "cached_tokens": 0, "preprocess_ms": 0.0, "inference_ms": 0.0}
WORDS = Words(text="A cat.", finish_reason="stop", output_tokens=3)


@pytest.mark.parametrize(
    ("choice_index", "probabilities", "fault"),
    [
        (2, (0.5, 0.5), "choice_index 2 is out of range for 2 choices"),
        (-1, (0.5, 0.5), "choice_index -1 is out of range"),
        (None, (0.5, 0.5), "choice_index None is out of range"),
        (0, (0.5, 0.4), "probabilities must sum to 1, got 0.9"),
    ],
)
def test_an_answer_that_is_no_distribution_over_its_choices_is_refused(choice_index, probabilities, fault):
    with pytest.raises(ValueError, match=fault):
        Answer(choice_index=choice_index, probabilities=probabilities, **COUNTS)


@pytest.mark.parametrize("probabilities", [(0.5005, 0.5), (1.0, 0.0)])
def test_rounded_probabilities_are_a_distribution(probabilities):
    assert Answer(choice_index=0, probabilities=probabilities, **COUNTS).probabilities == probabilities


@pytest.mark.parametrize(
    ("probabilities", "margin", "entropy_nats"),
    [
        ((0.25, 0.75), 0.5, -0.25 * log(0.25) - 0.75 * log(0.75)),
        ((0.2, 0.5, 0.3), 0.2, -0.2 * log(0.2) - 0.5 * log(0.5) - 0.3 * log(0.3)),
        ((0.0, 1.0), 1.0, 0.0),
        ((0.0, 1.0000001), 1.0000001, 0.0),
    ],
)
def test_a_sure_answer_has_a_large_margin_and_no_entropy(probabilities, margin, entropy_nats):
    answer = Answer(choice_index=1, probabilities=probabilities, **COUNTS)

    assert (answer.margin, answer.entropy_nats) == pytest.approx((margin, entropy_nats))
    assert answer.entropy_nats >= 0


def test_an_answer_in_words_has_no_margin_and_is_never_escalated():
    words = replace(result(job("a", choices=())), answer=Answer(words=WORDS, **COUNTS))

    assert (words.label, words.answer.margin, words.answer.entropy_nats) == (None, None, None)
    assert not needs_escalation(words, below=1.0)
    assert merge_answers(words, None, below=1.0) == words


def test_the_reason_why_a_job_was_not_asked_again_follows_what_is_known_of_its_frames():
    first = result(job("a"), decode_note="no index")

    row = merge_answers(first, result(job("a"), fingerprint="e2"), below=0.9)

    assert row.provenance.decode_note == "no index; not asked again: the video was replaced meanwhile"


def test_a_failure_has_the_cause_s_stage_code_and_message():
    failed = Failure.of(VideoMissingError("It is gone."), job("a"), 3, fingerprint="e1")

    assert (failed.stage, failed.code, failed.message) == (Stage.FETCH, "video_missing", "It is gone.")
    assert (failed.job.job_id, failed.shard_index, failed.source_fingerprint) == ("a", 3, "e1")


def test_several_sets_of_frames_have_the_usual_sampler_and_their_first_notes():
    changes = [
        {"sampler": "uniform", "decode_method": "seek", "decode_note": "b", "chosen_ms": "1,2"},
        {"sampler": "keyframes", "decode_method": "index", "decode_note": "a"},
        {"sampler": "uniform", "decode_method": "seek", "decode_note": "b"},
        {"decode_note": "c", "fingerprint": "e2"},
        {"sampler": "uniform", "decode_method": "seek", "decode_note": "d"},
    ]

    merged = merge_provenance([replace(PROVENANCE, **each) for each in changes])

    assert (merged.sampler, merged.decode_method, merged.decode_note) == ("uniform", "seek", "b; a; c")
    assert (merged.chosen_ms, merged.frames_used, merged.decode_ms) == ("", 20, 10)
    assert (merged.longest_gap_s, merged.keyframe_coverage) == (None, None)
    chosen = replace(PROVENANCE, chosen_ms="1,2")
    assert merge_provenance([chosen]) == chosen


def test_what_a_job_on_several_media_says_of_keyframes_is_that_of_its_videos():
    media = [Medium("video", "a.mp4"), Medium("image", "https://h/b.png?token=secret"), Medium("video", "c.mp4")]
    parts = [
        replace(PROVENANCE, longest_gap_s=4.0, keyframe_coverage=0.5, coverage="long_gap", decode_method="index"),
        replace(
            PROVENANCE, fingerprint="e2", longest_gap_s=9.0, keyframe_coverage=0.1, coverage="few", decode_note="x"
        ),
        replace(PROVENANCE, fingerprint="e3", longest_gap_s=2.0, keyframe_coverage=0.9, decode_method="index"),
    ]

    merged = merge_media(media, parts)

    assert merged.fingerprint == '["e1", "e2", "e3"]'
    assert (merged.longest_gap_s, merged.keyframe_coverage, merged.coverage) == (4.0, 0.5, "long_gap")
    assert (merged.decode_method, merged.keyframes_in_file, merged.frames_used) == ("index", 10, 12)
    assert merged.decode_note.startswith("https://h/b.png")
    assert merged.decode_note.endswith(": x")
    assert "secret" not in merged.decode_note
