"""Third-party containers are used once registered, and not trusted where they fail."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reelabel.containers import registry
from reelabel.containers.container_index import ContainerIndex
from reelabel.errors import FallbackRequired
from reelabel.extract import extract_keyframes, extract_keyframes_by_ranges
from reelabel.limits import Limits
from reelabel.sampling.options import Sampling
from reelabel.segment import Segment
from reelabel.sources.sparse_file import CachedRange
from reelabel.strategies.keyframe_table import KeyframeTable
from tests.reelabel.containers import flv_index
from tests.reelabel.containers.flv_index import FLV

PICKS = Sampling(num_frames=3)


class Memory:
    """A `ByteSource` of a file, which notes what is read."""

    max_wait_s = float("inf")

    def __init__(self, path):
        self.data = path.read_bytes()
        self.size_bytes = len(self.data)
        self.bytes_read = 0

    def read(self, start, size):
        self.bytes_read += size
        return self.data[start : start + size]


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    monkeypatch.setattr(registry, "_CONTAINERS", dict(registry._CONTAINERS))


@pytest.fixture
def clip(make_clip):
    return make_clip("clip.flv", frames=60, gop=10, b_frames=2)


def extract(path, **wanted):
    return extract_keyframes(path, sampling=PICKS, limits=Limits(), native=True, **wanted)


def assert_is_linear(got, linear):
    shown = {pts: (is_keyframe, image) for pts, is_keyframe, image in linear}
    assert len(got.images) == PICKS.num_frames
    for image, pts in zip(got.images, got.pts.tolist(), strict=True):
        assert shown[pts][0]
        np.testing.assert_array_equal(image, shown[pts][1])


def fail(*_):
    raise RuntimeError("broken")


def test_a_registered_container_yields_the_frames_of_a_linear_decode(clip, decode_linearly):
    before = extract(clip)
    registry.register(FLV)
    got = extract(clip)

    assert (before.method, got.method, got.reason) == ("linear", "index", "")
    assert got.pts.tolist() == before.pts.tolist()
    assert got.keyframe_ms.tolist() == before.keyframe_ms.tolist()
    assert_is_linear(got, decode_linearly(clip))


def test_segments_and_threads_use_the_index(clip, decode_linearly):
    registry.register(FLV)
    got = extract(clip, threads=2, segment=Segment(0.5, 3.5))

    assert got.method == "index"
    assert_is_linear(got, decode_linearly(clip))


def test_a_registered_container_is_read_by_ranges(make_clip):
    registry.register(FLV)
    path = make_clip("clip.flv", frames=60, gop=10, size=(320, 240), qp="1")
    whole = (CachedRange(0, path.read_bytes()),)
    got, index = extract_keyframes_by_ranges(Memory(path), sampling=PICKS, limits=Limits(), known=whole)
    source = Memory(path)
    again, _ = extract_keyframes_by_ranges(source, sampling=PICKS, limits=Limits(), known=index)

    assert isinstance(index, KeyframeTable)
    np.testing.assert_array_equal(got.images, extract_keyframes(path, sampling=PICKS, limits=Limits()).images)
    np.testing.assert_array_equal(again.images, got.images)
    assert 0 < source.bytes_read < source.size_bytes / 2


def test_two_containers_of_one_name_are_refused():
    registry.register(FLV)

    with pytest.raises(ValueError, match="'flv' is already registered"):
        registry.register(replace(FLV, probe=lambda *_: True))
    with pytest.raises(ValueError, match="'mp4' is already registered"):
        registry.register(replace(FLV, name="mp4"))


def _without_packets(video):
    return replace(flv_index.read_index(video), read_packet=fail)


def _of_other_frames(video):
    index = flv_index.read_index(video)
    return replace(index, read_packet=lambda number: video.read_packet(int(index.pos[number]) + 900, 500, 0))


def _without_sizes(video):
    return replace(flv_index.read_index(video), size=np.zeros(0, np.int64))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"probe": fail}, id="probe"),
        pytest.param({"prepare": fail}, id="prepare"),
        pytest.param({"read_index": fail}, id="parser"),
        pytest.param({"read_index": _without_packets}, id="packets"),
        pytest.param({"read_index": _of_other_frames}, id="wrong bytes"),
        pytest.param({"read_index": _without_sizes}, id="shapes"),
    ],
)
def test_if_a_container_fails_the_video_is_decoded_linearly(clip, decode_linearly, changes):
    registry.register(replace(FLV, **changes))
    got = extract(clip)

    assert got.method == "linear"
    assert got.reason
    assert_is_linear(got, decode_linearly(clip))


def test_a_false_keyframe_of_the_index_is_not_shown(clip, decode_linearly, monkeypatch):
    monkeypatch.setattr(flv_index, "H264_KEYFRAME", 0x27)  # the frames between keyframes
    registry.register(replace(FLV, read_index=_unchecked))
    got = extract(clip)

    assert got.method == "linear"
    assert_is_linear(got, decode_linearly(clip))


def _unchecked(video):
    pts, pos, size = np.array(flv_index.list_keyframes(video.file, video.size_bytes), np.int64).T
    first = next(video.container.demux(video.stream))
    return flv_index.KeyframeIndex(
        pts=np.sort(pts),
        pos=pos,
        size=size,
        read_packet=lambda number: video.read_packet(int(pos[number]), int(size[number]), int(pts[number])),
        first_packet=first,
        first_pts=None,
    )


def test_the_reason_names_the_container_that_failed(clip):
    registry.register(replace(FLV, read_index=fail))

    assert "the container flv failed (RuntimeError: broken)" in extract(clip).reason


def _refuse(*_):
    raise FallbackRequired("unknown")


@pytest.mark.parametrize("missing_bytes", [fail, _refuse])
def test_a_container_that_cannot_check_for_truncation_does_not_fail_the_video(clip, missing_bytes):
    registry.register(replace(FLV, missing_bytes=missing_bytes))

    assert extract(clip).reason == ""


def test_a_broken_container_does_not_affect_the_others(make_clip):
    registry.register(ContainerIndex(name="broken", probe=fail, read_index=fail))

    assert {extract(make_clip(f"clip.{name}")).method for name in ("mp4", "mkv")} == {"index"}


def test_an_installed_container_is_found_by_its_entry_point(clip, tmp_path):
    package = tmp_path / "flv_index-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: flv-index\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[{registry.ENTRY_POINT_GROUP}]\nflv = flv_index:FLV\n")
    (tmp_path / "flv_index.py").write_bytes(Path(flv_index.__file__).read_bytes())
    program = (
        "import sys; from pathlib import Path; from reelabel.extract import extract_keyframes\n"
        "from reelabel.limits import Limits; from reelabel.sampling.options import Sampling\n"
        "print(extract_keyframes(Path(sys.argv[1]), sampling=Sampling(), limits=Limits()).method)"
    )
    root = Path(registry.__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, "-c", program, clip],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{root}"},
    )

    assert ran.stdout.strip() == "index"
