"""The code that reads a container's index is not trusted where it fails."""

from dataclasses import replace

import numpy as np
import pytest

from reelabel.containers import formats
from reelabel.containers.avi import AVI
from reelabel.containers.matroska import MATROSKA
from reelabel.containers.mp4 import MP4
from reelabel.errors import FallbackRequired
from reelabel.extract import extract_local
from reelabel.options import Limits
from reelabel.sampling.options import Sampling

PICKS = Sampling(num_frames=3)


@pytest.fixture
def clip(make_clip):
    return make_clip("clip.mp4", frames=60, gop=10, b_frames=2)


@pytest.fixture
def change(monkeypatch):
    """Return a function that changes how MP4 is read."""
    return lambda **changes: monkeypatch.setattr(formats, "FORMATS", (replace(MP4, **changes), MATROSKA))


def extract(path, sampler="keyframes"):
    sampling = PICKS if sampler == "keyframes" else Sampling(sampler=sampler, num_frames=3)
    return extract_local(path, sampling=sampling, limits=Limits(), as_stored=True)


def fail(*_):
    raise RuntimeError("broken")


def _without_packets(video):
    index, packets = MP4.read_keyframes(video)
    return index, replace(packets, read=fail)


def _of_other_frames(video):
    index, packets = MP4.read_keyframes(video)
    return index, replace(packets, read=lambda row: video.read_packet(int(index.pos[row]) + 900, 500, 0))


def _without_sizes(video):
    index, packets = MP4.read_keyframes(video)
    return replace(index, size=np.zeros(0, np.int64)), packets


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"probe": fail}, id="probe"),
        pytest.param({"prepare": fail}, id="prepare"),
        pytest.param({"read_keyframes": fail}, id="parser"),
        pytest.param({"read_keyframes": _without_packets}, id="packets"),
        pytest.param({"read_keyframes": _of_other_frames}, id="wrong bytes"),
        pytest.param({"read_keyframes": _without_sizes}, id="shapes"),
    ],
)
def test_if_an_index_fails_the_video_is_decoded_without_it(clip, change, changes):
    exact = extract(clip)
    change(**changes)
    got = extract(clip)

    assert (exact.method, got.method) == ("index", "seek")
    assert got.note
    assert got.selection.pts.tolist() == exact.selection.pts.tolist()
    np.testing.assert_array_equal(got.unique, exact.unique)


def test_the_reason_names_the_container_that_failed(clip, change):
    change(read_keyframes=fail)

    assert "the container mp4 failed (RuntimeError: broken)" in extract(clip).note


def test_frames_that_no_index_lists_are_found_by_the_packets(clip, change):
    exact = extract(clip, "uniform")
    change(read_frames=None)
    got = extract(clip, "uniform")

    assert (got.method, got.note) == ("seek", "")
    np.testing.assert_array_equal(got.unique, exact.unique)


def _refuse(*_):
    raise FallbackRequired("unknown")


@pytest.mark.parametrize("missing_bytes", [fail, _refuse])
def test_a_container_that_cannot_check_for_truncation_does_not_fail_the_video(clip, change, missing_bytes):
    change(missing_bytes=missing_bytes)

    assert extract(clip).note == ""


def test_a_broken_container_does_not_affect_those_asked_before_it(make_clip, monkeypatch):
    monkeypatch.setattr(formats, "FORMATS", (MP4, MATROSKA, replace(AVI, probe=fail)))

    assert {extract(make_clip(f"clip.{name}")).method for name in ("mp4", "mkv")} == {"index"}
