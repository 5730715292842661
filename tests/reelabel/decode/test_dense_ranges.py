"""Frames between keyframes of a remote video are the file's own, at the bytes of the GOPs that hold them."""

import numpy as np
import pytest

from benchmarks.extraction.loaders import FileParts
from reelabel.extract import Request, extract_ranges
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.segment import WHOLE, Segment
from tests.clips import write_clip
from tests.conformance.shortcuts import extract_linearly

LIMITS = Limits()
FPS = 12
CLIPS = {
    "b-frames.mp4": {"b_frames": 3},
    "open-gop.mp4": {"b_frames": 2, "x264-params": "open-gop=1"},
    "one-reference.mp4": {"b_frames": 3, "x264-params": "open-gop=1:ref=1"},
    "rasl.mp4": {"codec": "libx265", "x265-params": "open-gop=1:bframes=3"},
    "vp9.mp4": {"codec": "libvpx-vp9"},
    "av1.mp4": {"codec": "libsvtav1"},
}
SEGMENTED = {
    "b-frames.mkv": {"b_frames": 3},
    "open-gop.mkv": {"b_frames": 2, "x264-params": "open-gop=1"},
    "rasl.mkv": {"codec": "libx265", "x265-params": "open-gop=1:bframes=3"},
    "open-gop-mpeg2.mkv": {"codec": "mpeg2video", "b_frames": 2},
    "vp9.webm": {"codec": "libvpx-vp9"},
    "vp8.webm": {"codec": "libvpx"},
}
SAMPLERS = [
    Sampling(sampler="uniform", num_frames=3),
    Sampling(sampler="fps", fps=1),
    Sampling(sampler="num_frames", num_frames=2),
    Sampling(sampler="qwen3_vl", num_frames=4),
]
SEGMENT = Segment(9.2, 11.4)
SEGMENTS = [
    pytest.param(SEGMENT, id="between keyframes"),
    pytest.param(Segment(5, 7), id="from keyframe to keyframe"),
    pytest.param(Segment(None, 2.5), id="from the start"),
    pytest.param(Segment(17.9, None), id="to the end"),
    pytest.param(Segment(8.51, 8.55), id="no frame"),
    pytest.param(Segment(19.97, 40), id="after the last frame"),
]
by_name = pytest.mark.parametrize("sampling", SAMPLERS, ids=lambda sampling: sampling.sampler)
FACTS = {"pts", "time_s", "is_keyframe", "picks", "deviation_s", "starts_s", "segment", "fps", "duration_s"}
COUNTS = {"frame_index", "total_frames", "keyframes_in_file", "keyframe_ms", "first_ms"}


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips")
    return {
        name: write_clip(folder / name, frames=20 * FPS, gop=FPS, fps=FPS, size=(96, 72), **options)
        for name, options in (CLIPS | SEGMENTED).items()
    }


def by_ranges(path, sampling, segment=WHOLE, **options):
    return extract_ranges(FileParts(path), sampling=sampling, limits=LIMITS, segment=segment, **options)


def linearly(path, sampling, segment=WHOLE):
    return extract_linearly(path, Request(sampling=sampling, segment=segment))


def require_same(got, whole, names):
    np.testing.assert_array_equal(got.unique, whole.unique)
    for name in names:
        np.testing.assert_array_equal(getattr(got.selection, name), getattr(whole.selection, name), err_msg=name)


@by_name
@pytest.mark.parametrize("segment", [WHOLE, SEGMENT], ids=["whole", "segment"])
@pytest.mark.parametrize("name", CLIPS)
def test_frames_of_a_remote_mp4_are_those_of_the_linear_decode(clips, name, segment, sampling):
    got, _ = by_ranges(clips[name], sampling, segment)

    assert got.method == "seek"
    require_same(got, linearly(clips[name], sampling, segment), FACTS | COUNTS)


@pytest.mark.parametrize("sampling", SAMPLERS[:2], ids=lambda sampling: sampling.sampler)
@pytest.mark.parametrize("segment", SEGMENTS)
@pytest.mark.parametrize("name", SEGMENTED)
def test_frames_of_a_segment_of_a_remote_matroska_file_are_those_of_the_linear_decode(clips, name, segment, sampling):
    got, _ = by_ranges(clips[name], sampling, segment)

    assert got.method == "seek"
    require_same(got, linearly(clips[name], sampling, segment), FACTS)
