from pathlib import Path

from benchmarks.media.footage import make_footage
from reelabel.extract import extract_keyframes
from reelabel.limits import Limits
from reelabel.sampling.options import Sampling


def test_one_minute_clips_differ_and_have_the_right_length(tmp_path):
    paths = make_footage(tmp_path, count=6, width_px=240, height_px=240)

    shown = [extract_keyframes(path, sampling=Sampling(num_frames=16), limits=Limits()) for path in paths]

    assert len({frames.images.tobytes() for frames in shown}) == 6
    assert all(30 <= frames.duration_s <= 45 for frames in shown)
    assert {(frames.method, frames.reason) for frames in shown} == {("index", "")}


def test_clips_are_created_once(tmp_path):
    first = make_footage(tmp_path, count=1, width_px=240, height_px=240)
    before = [path.stat().st_mtime_ns for path in first]

    again = make_footage(tmp_path, count=2, width_px=240, height_px=240)

    assert again[:1] == first
    assert [path.stat().st_mtime_ns for path in again[:1]] == before
    assert not list(Path(again[0].parent).glob("*.part*"))
