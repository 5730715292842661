from pathlib import Path

import pytest

from benchmarks.media.footage import make_footage
from reelabel.extract import extract_local
from reelabel.options import Limits
from reelabel.sampling.options import Sampling


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("footage")


def test_one_minute_clips_differ_and_have_the_right_length(folder):
    paths = make_footage(folder, count=6, width_px=240, height_px=240)

    shown = [extract_local(path, sampling=Sampling(num_frames=16), limits=Limits()) for path in paths]

    assert len({frames.unique.tobytes() for frames in shown}) == 6
    assert all(30 <= frames.selection.duration_s <= 45 for frames in shown)
    assert {(frames.method, frames.note) for frames in shown} == {("index", "")}


def test_clips_are_created_once(folder):
    first, missing = make_footage(folder, count=2, width_px=240, height_px=240)
    before, data = first.stat().st_mtime_ns, missing.read_bytes()
    missing.unlink()

    again = make_footage(folder, count=2, width_px=240, height_px=240)

    assert again == [first, missing]
    assert first.stat().st_mtime_ns == before
    assert missing.read_bytes() == data
    assert not list(Path(again[0].parent).glob("*.part*"))
