"""The page that replays what samplers show of one video."""

import json
import re

import numpy as np

import reelabel
from tasks.report.replay import render_replay
from tests.clips import write_clip


def replay_of(path, name="clip.mp4"):
    with reelabel.open(path) as video:
        return render_replay(name, video)


def frames_of(page):
    """Positions and times of the frames on a page."""
    return dict(
        re.findall(r'<li data-position="(\d+)"><img src="data:image/webp;base64,[^"]+" alt="Frame at (.+?) s">', page)
    )


def clip_of(page):
    return json.loads(re.search(r"data-clip='(.*?)'", page)[1])


def test_the_page_holds_the_frames_of_each_number_of_frames(tmp_path):
    clip = write_clip(tmp_path / "clip.mp4", frames=96, fps=12, gop=24)

    page = replay_of(clip)

    found = frames_of(page)
    expected = {0, 24, 48, 72}
    for count in range(1, 33):
        expected |= set(np.linspace(0, 95, count, dtype=np.int64).tolist())
    assert {int(position) for position in found} == expected
    assert (found["0"], found["24"], found["95"]) == ("0.00", "2.00", "7.92")
    assert clip_of(page) == {"fps": 12.0, "totalFrames": 96, "gop": 24, "keyframes": [0, 24, 48, 72]}
    assert "the longest GOP has 24 frames" in page
    assert len(page.encode()) < 3_000_000


def test_frames_beyond_two_megabytes_are_left_out_those_of_the_usual_number_last(tmp_path, monkeypatch):
    clip = write_clip(tmp_path / "clip.mp4", frames=96, fps=12, gop=24)
    monkeypatch.setattr("tasks.report.replay._MOST_BYTES", 20_000)

    page = replay_of(clip)

    found = frames_of(page)
    usual = {0, 24, 48, 72, *np.linspace(0, 95, 16, dtype=np.int64).tolist()}
    assert 1 < len(found) < 200
    kept = {int(position) for position in found}
    assert usual <= kept or kept <= usual
    assert page.count('"><i class="none"></i><span>') > 0


def test_frames_that_do_not_fit_in_memory_together_are_decoded_in_turn(tmp_path, monkeypatch):
    clip = write_clip(tmp_path / "clip.mp4", frames=24, fps=12, gop=12)
    at_once = replay_of(clip)
    monkeypatch.setattr("tasks.report.replay._MOST_DECODED_BYTES", 1)

    assert replay_of(clip) == at_once


def test_the_name_of_a_video_stays_text(tmp_path):
    clip = write_clip(tmp_path / "clip.mp4", frames=12)

    page = replay_of(clip, name="<script>alert(1)</script>.mp4")

    assert page.count("<script") == 1
    assert "&lt;script&gt;alert(1)" in page


def test_a_video_of_one_frame_is_replayed(tmp_path):
    clip = write_clip(tmp_path / "clip.mp4", frames=1)

    page = replay_of(clip)

    assert list(frames_of(page)) == ["0"]
    assert clip_of(page)["totalFrames"] == 1
