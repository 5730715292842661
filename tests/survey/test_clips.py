import json

import pytest

from reelabel.segment import Segment
from reelabel.sources.object_store import ObjectStore
from tasks.manifest.table import open_jobs
from tasks.survey.clips import Tags, draw_clips


@pytest.fixture
def draw(write_manifest):
    def draw(*jobs, most=None):
        with open_jobs(write_manifest(*jobs), ObjectStore()) as table:
            return draw_clips(table, most)

    return draw


def test_jobs_on_one_clip_are_one_clip_with_the_tags_of_all(draw):
    found = draw(
        {"video_uri": "/v/a.mp4", "task": "motion"},
        {"video_uri": "/v/a.mp4", "task": "still", "start_s": 0.0},
        {"video_uri": "/v/a.mp4", "task": "still", "start_s": 2.0, "end_s": 3.0},
    )

    assert (found.jobs, found.videos, found.clips) == (3, 1, 2)
    by_segment = {clip.segment: clip for clip in found.drawn}
    assert set(by_segment[Segment()].tags) == {Tags(task="motion"), Tags(task="still")}
    assert by_segment[Segment(2.0, 3.0)].tags == (Tags(task="still"),)
    assert {clip.share for clip in found.drawn} == {0.5}
    assert found.clips_by_tags == {Tags(task="motion"): 1, Tags(task="still"): 2}


def test_each_of_several_videos_is_a_clip_and_an_image_is_none(draw):
    parts = [
        {"type": f"{kind}_url", f"{kind}_url": {"url": uri}}
        for kind, uri in (("video", "/v/a.mp4"), ("image", "/p.png"))
    ]
    messages = json.dumps([{"role": "user", "content": [*parts, {"type": "text", "text": "?"}]}])

    found = draw(
        {"video_uri": "/v/b.mp4", "task": "still"},
        {"video_uris": ["/v/a.mp4", "/v/b.mp4"], "video_uri": None, "task": "motion"},
        {"messages": messages, "video_uri": None, "prompt": None, "start_s": 1.0},
    )

    assert (found.jobs, found.videos, found.clips) == (3, 2, 3)
    clips = {(clip.uri, clip.segment.start_s): set(clip.tags) for clip in found.drawn}
    assert clips["/v/b.mp4", None] == {Tags(task="still"), Tags(task="motion")}
    assert clips.keys() == {("/v/b.mp4", None), ("/v/a.mp4", None), ("/v/a.mp4", 1.0)}


def test_a_sample_is_the_same_every_time_and_repeats_no_clip(draw):
    jobs = [{"video_uri": f"/v/{number}.mp4"} for number in range(500)]

    first, again, more = (draw(*jobs, most=most) for most in (40, 40, 60))

    names = [clip.uri for clip in first.drawn]
    assert names == [clip.uri for clip in again.drawn] == [clip.uri for clip in more.drawn[:40]]
    assert len(set(names)) == 40
    assert names != sorted(names)
    assert first.clips == 500
