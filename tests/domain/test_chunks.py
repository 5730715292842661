"""A job on a long video is cut into chunks, whose answers make one row by a rule."""

from dataclasses import replace

import numpy as np
import pytest

from reelabel.errors import VideoTooLargeError
from reelabel.segment import WHOLE, Segment, select_segment
from tasks.domain import OrderBias, Shard, Stage
from tasks.domain.chunks import (
    MAX_CHUNKS,
    ChunkOutcome,
    CutVideo,
    check_rule,
    combine,
    cut_job,
    cut_segment,
    cut_shard,
    merge_chunks,
    split_chunk_id,
)
from tasks.domain.outcome import FirstAnswer
from tests.results.rows import failure, job, result


@pytest.mark.parametrize(
    ("length_s", "starts_s"),
    [
        pytest.param(59, [None], id="shorter than a chunk"),
        pytest.param(60, [None], id="one chunk"),
        pytest.param(89.9, [None], id="a short rest belongs to the chunk before it"),
        pytest.param(90, [None, 60], id="a rest of half a chunk is one"),
        pytest.param(180, [None, 60, 120], id="three chunks"),
    ],
)
def test_a_video_is_cut_every_chunk_s_seconds(length_s, starts_s):
    assert [chunk.start_s for chunk in cut_segment(WHOLE, length_s=length_s, chunk_s=60)] == starts_s


def test_a_job_of_one_chunk_shows_what_it_shows_uncut():
    segment = Segment(3.0, 40.0)

    assert cut_segment(segment, length_s=100, chunk_s=60) == [segment]
    assert cut_segment(WHOLE, length_s=50, chunk_s=60) == [WHOLE]


def test_a_segment_is_cut_within_its_ends():
    chunks = cut_segment(Segment(30.0, 500.0), length_s=150, chunk_s=60)

    assert [chunk.start_s for chunk in chunks] == [30, 90]
    assert chunks[-1].end_s == 500


@pytest.mark.parametrize("fps", [24, 25, 30_000 / 1001, 1000])
def test_every_frame_is_in_exactly_one_chunk(fps):
    times_s = np.arange(0, 20, 1 / fps)
    seen = [
        select_segment(times_s, chunk, first_s=0.0).numbers for chunk in cut_segment(WHOLE, length_s=20, chunk_s=1.5)
    ]

    assert np.concatenate(seen).tolist() == list(range(len(times_s)))


def test_a_header_that_claims_an_absurd_length_makes_no_chunks():
    assert len(cut_segment(WHOLE, length_s=MAX_CHUNKS, chunk_s=1)) == MAX_CHUNKS
    with pytest.raises(VideoTooLargeError, match="at most 10,000 are allowed; use longer chunks"):
        cut_segment(WHOLE, length_s=MAX_CHUNKS + 1, chunk_s=1)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("film#3", ("film", 3)),
        ("a#b#10", ("a#b", 10)),
        ("film", ("film", None)),
        ("film#03", ("film#03", None)),
        ("film#-1", ("film#-1", None)),
        ("film# 1", ("film# 1", None)),
        ("film#\N{ARABIC-INDIC DIGIT TWO}", ("film#\N{ARABIC-INDIC DIGIT TWO}", None)),
        ("film#1\N{ARABIC-INDIC DIGIT TWO}", ("film#1\N{ARABIC-INDIC DIGIT TWO}", None)),
        ("#1", ("#1", None)),
    ],
)
def test_the_id_of_a_chunk_names_its_job_and_its_number(text, parts):
    assert split_chunk_id(text) == parts


def test_a_shard_asks_about_chunks_and_about_jobs_that_cannot_be_cut():
    shard = Shard(index=0, jobs=(job("film", chunk_s=60, asks_again=True), job("broken", chunk_s=60)))

    cut = cut_shard(shard, {"film.mp4": CutVideo(120, "e1")})

    assert [each.job_id for each in cut.shard.jobs] == ["film#0", "film#1", "broken"]
    assert cut.jobs.keys() == {"film"}
    assert all(each.chunk_s is None and not each.asks_again for each in cut.shard.jobs[:2])


def test_of_jobs_on_videos_that_show_the_same_only_the_first_is_asked():
    jobs = [job(name, group=group) for name, group in (("a", "1"), ("b", None), ("c", "2"), ("d", "1"), ("e", "1"))]

    cut = cut_shard(Shard(index=0, jobs=tuple(jobs)), {})

    assert [each.job_id for each in cut.shard.jobs] == ["a", "b", "c"]
    assert cut.copies == {"a": jobs[3:]}


def test_a_copied_answer_is_about_its_own_video_and_costs_nothing():
    original = result(job("a", fingerprint="e1"), (0.9, 0.1))

    copied = original.copied_to(job("b", fingerprint="e2"))

    assert original.can_be_copied
    assert not replace(original, job=job("a", fingerprint="e0")).can_be_copied  # its video has been replaced
    assert (copied.job.job_id, copied.label, copied.answer.probabilities) == ("b", "no", (0.9, 0.1))
    assert (copied.provenance.fingerprint, copied.copied_from) == ("e2", "a")
    assert (copied.answer.prompt_tokens, copied.answer.inference_ms, copied.provenance.decode_ms) == (0, 0, 0)
    assert copied.provenance.keyframes_in_file == original.provenance.keyframes_in_file


@pytest.mark.parametrize("text", ["majority", "mean", "any:yes", "any: "])
def test_a_rule_has_its_own_name(text):
    assert check_rule(text) == text


@pytest.mark.parametrize("text", ["most", "any", "any:", ""])
def test_an_unknown_rule_is_refused(text):
    with pytest.raises(ValueError, match="use majority, mean, or any:CHOICE"):
        check_rule(text)


CHOICES = ("red", "blue", "green")


def answers(*shares):
    found = []
    for probabilities in shares:
        answer = result(job("a", choices=CHOICES), probabilities).answer
        found.append(replace(answer, choice_index=probabilities.index(max(probabilities))))
    return found


def verdict(rule, *shares, unanswered=0):
    found = combine(rule, answers(*shares), CHOICES, unanswered=unanswered)
    return CHOICES[found.choice_index], [round(share, 3) for share in found.probabilities], found.is_final


RED, BLUE, GREEN = (0.6, 0.3, 0.1), (0.1, 0.8, 0.1), (0.2, 0.3, 0.5)


def test_the_majority_counts_chunks_and_ties_go_to_the_higher_mean_probability():
    assert verdict("majority", RED, RED, BLUE, GREEN) == ("red", [0.5, 0.25, 0.25], True)
    assert verdict("majority", RED, BLUE) == ("blue", [0.5, 0.5, 0], True)
    assert verdict("majority", (0.3, 0.6, 0.1), (0.6, 0.3, 0.1))[0] == "red"  # the first of equal ones


def test_the_mean_weighs_how_sure_each_chunk_was():
    assert verdict("mean", RED, RED, BLUE) == ("blue", [0.433, 0.467, 0.1], True)


def test_any_needs_one_chunk_and_takes_over_its_answer():
    surer = (0.7, 0.2, 0.1)

    assert verdict("any:red", BLUE, RED, surer, BLUE) == ("red", [0.7, 0.2, 0.1], True)


def test_where_no_chunk_shows_it_any_gives_the_usual_label_of_the_closest_call():
    close = (0.45, 0.5, 0.05)

    assert verdict("any:red", BLUE, close, GREEN) == ("blue", [0.45, 0.5, 0.05], True)


def test_one_chunk_has_its_own_answer_under_every_rule():
    for rule in ("majority", "mean", "any:red"):
        assert verdict(rule, GREEN) == ("green", [0.2, 0.3, 0.5], True)


@pytest.mark.parametrize(
    ("rule", "shares", "unanswered", "stands"),
    [
        ("majority", (RED, RED, RED, BLUE), 1, True),
        ("majority", (RED, RED, RED, BLUE), 2, False),
        ("mean", (RED,) * 10, 2, True),
        ("mean", (RED,) * 10, 3, False),
        ("any:red", (BLUE, RED), 100, True),
        ("any:red", (BLUE, BLUE), 1, False),
    ],
)
def test_an_answer_stands_only_if_no_answer_to_the_missing_chunks_could_change_it(rule, shares, unanswered, stands):
    assert verdict(rule, *shares, unanswered=unanswered)[2] is stands


@pytest.fixture
def film():
    return cut_job(job("film", chunk_s=60), 180)


def outcome(film, number, ending):
    return ChunkOutcome(job=film.job, number=number, outcome=replace(ending, job=film.chunks[number]))


def merged(film, *endings, rule="majority"):
    return merge_chunks(film, [outcome(film, number, ending) for number, ending in enumerate(endings)], rule)


def test_the_row_of_a_job_sums_what_its_chunks_cost_and_tells_how_many_there_are(film):
    parts = [
        result(film.job, frames_used=2, coverage="long_gap", longest_gap_s=9.0, decode_note="x"),
        result(film.job, frames_used=3, coverage="long_gap,few", longest_gap_s=4.0),
        result(film.job, frames_used=4, keyframe_coverage=0.5),
    ]

    row = merged(film, *parts)

    assert (row.job, row.label, row.answer.prompt_tokens, row.answer.inference_ms) == (film.job, "no", 270, 6)
    frames = row.provenance
    assert (frames.frames_used, frames.fetch_ms, frames.longest_gap_s, frames.keyframe_coverage) == (9, 3, 9.0, 0.5)
    assert (frames.coverage, frames.decode_note) == ("long_gap,few", "x")
    assert (row.chunks.total, row.chunks.answered) == (3, 3)


def test_an_undecided_job_fails_with_the_cause_and_says_which_chunk(film):
    row = merged(film, result(film.job), failure(film.job, message="It hangs."), result(film.job), rule="any:yes")

    assert (row.job, row.code, row.chunks.answered) == (film.job, "no_frames", 2)
    assert row.message == (
        "1 of 3 chunks failed, which leaves any:yes undecided; film#1, from 60 s to 120 s: It hangs."
    )


@pytest.mark.parametrize(("number", "part"), [(0, "film#0, from 0 s to 60 s"), (2, "film#2, from 120 s to its end")])
def test_the_first_and_the_last_chunk_are_named_by_their_ends(film, number, part):
    endings = [result(film.job)] * 3
    endings[number] = failure(film.job)

    assert f"undecided; {part}: No frame." in merged(film, *endings, rule="any:yes").message


def test_an_undecided_job_fails_with_a_cause_that_may_pass_so_that_the_next_run_asks_again(film):
    lasting, passing = failure(film.job), failure(film.job, code="video_unavailable")

    assert merged(film, lasting, passing, result(film.job), rule="any:yes").code == "video_unavailable"
    assert merged(film, lasting, replace(lasting, stage=Stage.CACHE), result(film.job)).stage == Stage.CACHE


def test_how_chunks_were_asked_is_told_of_their_job(film):
    orders = [
        OrderBias(permutations=2, agreement=1.0, spread=0.1, same_position=True),
        OrderBias(permutations=2, agreement=0.5, spread=0.3, same_position=False),
    ]
    first, second = (result(film.job, order=order) for order in orders)
    first_answer = FirstAnswer(label="yes", margin=0.1, below=0.3)
    first = replace(first, first=first_answer)

    row = merged(film, first, replace(second, routed_by="margin"), result(film.job))

    assert row.answer.order == OrderBias(permutations=2, agreement=0.75, spread=0.3, same_position=False)
    assert (row.routed_by, row.first) == ("margin", None)
    assert merged(cut_job(job("film", chunk_s=60), 30), first).first == first_answer


def test_a_decided_job_is_labelled_although_a_chunk_failed(film):
    yes = replace(result(film.job, (0.9, 0.1)), answer=replace(result(film.job, (0.9, 0.1)).answer, choice_index=0))

    row = merged(film, failure(film.job), yes, result(film.job), rule="any:yes")

    assert (row.label, row.chunks.answered, row.chunks.total) == ("yes", 2, 3)


def test_a_job_whose_only_chunk_failed_has_the_failure_as_it_is():
    film = cut_job(job("film", chunk_s=60), 30)

    assert merged(film, failure(film.job, message="It hangs.")).message == "It hangs."


def test_chunks_of_different_versions_of_a_video_never_make_one_answer(film):
    row = merged(film, result(film.job), result(film.job), result(film.job, fingerprint="e2"))

    assert (row.code, row.source_fingerprint, row.chunks) == ("video_changed", "e2", None)
    assert "backfill this job to ask about all of them again" in row.message
