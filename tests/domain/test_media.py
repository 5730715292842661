"""What the row of a job on several videos and images says of all of them."""

from dataclasses import replace

import pytest

from tasks.domain import ONE_VIDEO, MediaCounts, Medium
from tasks.domain.job import join_fingerprints, split_fingerprint
from tasks.domain.outcome import merge_media
from tests.results.rows import PROVENANCE

MEDIA = (*(Medium("video", f"{name}.mp4") for name in "abc"), Medium("image", "d.png"))


@pytest.mark.parametrize(
    ("samplers", "sampler"),
    [
        pytest.param(("uniform", "keyframes", "uniform"), "keyframes", id="a dense sampler may show more of one"),
        pytest.param(("uniform", "uniform", "uniform"), "uniform", id="only an image is shown by its only frame"),
    ],
)
def test_keyframes_of_any_video_make_a_job_one_of_keyframes(samplers, sampler):
    parts = [replace(PROVENANCE, sampler=each) for each in (*samplers, "keyframes")]

    assert merge_media(MEDIA, parts).sampler == sampler


@pytest.mark.parametrize(
    ("fingerprint", "found"),
    [
        pytest.param(join_fingerprints(["e1", "i1"]), ["e1", "i1"], id="of both"),
        pytest.param(join_fingerprints(["e1", None]), [None, None], id="unknown"),
        pytest.param("e1", [None, None], id="of one"),
        pytest.param(join_fingerprints(["e1", "e2", "e3"]), [None, None], id="of three"),
        pytest.param("7", [None, None], id="a number"),
    ],
)
def test_the_version_of_each_is_known_if_that_of_all_was(fingerprint, found):
    assert split_fingerprint(fingerprint, 2) == found
    assert split_fingerprint("e1", 1) == ["e1"]


def test_the_most_that_a_question_shows_is_counted_by_kind():
    counts = MediaCounts.of(MEDIA)

    assert (counts, str(counts)) == (MediaCounts(videos=3, images=1), "3 videos and 1 image")
    assert counts.larger(MediaCounts(videos=1, images=2)) == MediaCounts(videos=3, images=2)
    assert counts.are_several
    assert not MediaCounts.of(MEDIA[:1]).are_several
    assert (MediaCounts.of(MEDIA[:1]), str(ONE_VIDEO)) == (ONE_VIDEO, "1 video")
