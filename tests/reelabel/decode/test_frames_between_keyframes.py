"""Frames between keyframes equal those of a linear decode and cost only the GOPs that contain them."""

import re

import av
import numpy as np
import pytest

from benchmarks.media.matrix import Cell
from reelabel.decode.run_decoder import RunDecoder
from reelabel.errors import SamplingRefusedError
from reelabel.extract import extract_local
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.sampling.registry import choose_indices
from reelabel.sampling.spec import VideoProperties

LIMITS = Limits()
CLIPS = [
    pytest.param("clip.mp4", "libx264", {"b_frames": 3}, "seek", id="mp4 with b-frames"),
    pytest.param("clip.mp4", "libx264", {"b_frames": 2, "x264-params": "open-gop=1"}, "seek", id="open gop"),
    pytest.param("clip.mkv", "libx264", {"b_frames": 3, "x264-params": "open-gop=1:ref=1"}, "seek", id="one reference"),
    pytest.param("clip.mp4", "libx265", {"x265-params": "open-gop=1:bframes=3"}, "seek", id="open gop of hevc"),
    pytest.param("clip.mkv", "mpeg2video", {"b_frames": 2}, "seek", id="open gop of mpeg-2"),
    pytest.param("clip.mkv", "libx264", {"b_frames": 2}, "seek", id="mkv"),
    pytest.param("clip.webm", "libvpx-vp9", {}, "seek", id="webm"),
    pytest.param("clip.avi", "mpeg4", {}, "linear", id="avi"),
    pytest.param("clip.ts", "libx264", {"b_frames": 2}, "linear", id="mpeg-ts"),
]
SAMPLERS = [
    Sampling(sampler="uniform", num_frames=7),
    Sampling(sampler="dynamic", fps=1),
    Sampling(sampler="qwen2_vl"),
    Sampling(sampler="fps", fps=3),
    Sampling(sampler="num_frames", num_frames=5),
]


@pytest.mark.parametrize(("name", "codec", "options", "method"), CLIPS)
@pytest.mark.parametrize("sampling", SAMPLERS, ids=lambda sampling: sampling.sampler)
def test_frames_are_those_chosen_by_the_sampler(make_clip, decode_linearly, sampling, name, codec, options, method):
    path = make_clip(name, codec=codec, **options)
    linear = decode_linearly(path)
    with av.open(str(path)) as container:
        time_base = float(container.streams.video[0].time_base)
    known = all(pts is not None for pts, _, _ in linear)
    times_s = np.array([pts for pts, _, _ in linear]) * time_base if known else None
    facts = VideoProperties(total_frames=len(linear), fps=12.0, duration_s=len(linear) / 12, times_s=times_s)

    got = extract_local(path, sampling=sampling, limits=LIMITS, as_stored=True)

    assert got.method == method
    assert got.selection.frame_index[got.shown].tolist() == choose_indices(sampling, facts).tolist()
    for image, index, is_keyframe in zip(got.unique, got.selection.frame_index, got.selection.is_keyframe, strict=True):
        np.testing.assert_array_equal(image, linear[index][2])
        assert is_keyframe == linear[index][1]


@pytest.mark.parametrize("codec", ["h264", "hevc", "vp9", "mpeg2"])
def test_only_the_needed_gops_of_a_fragmented_mp4_are_decoded(tmp_path, decode_linearly, codec):
    path = tmp_path / "clip.mp4"
    path.write_bytes(Cell("fmp4", codec).make())
    linear = decode_linearly(path)

    got = extract_local(path, sampling=Sampling(sampler="uniform", num_frames=3), as_stored=True)

    assert (got.method, got.selection.frame_index.tolist()) == ("seek", [0, 19, 39])
    assert got.cost.frames_decoded < len(linear)
    for image, index in zip(got.unique, got.selection.frame_index, strict=True):
        np.testing.assert_array_equal(image, linear[index][2])


def test_a_gop_without_picks_is_not_decoded_and_no_gop_is_decoded_twice(make_clip, monkeypatch):
    path = make_clip(frames=120, gop=12, b_frames=2)
    starts = []
    decode_from = RunDecoder._decode_from
    monkeypatch.setattr(
        RunDecoder,
        "_decode_from",
        lambda decoder, start, *others: (starts.append(start), decode_from(decoder, start, *others))[1],
    )

    extract_local(path, sampling=Sampling(sampler="uniform", num_frames=3), limits=LIMITS)
    assert starts == [0, 48, 108]

    starts.clear()
    extract_local(path, sampling=Sampling(sampler="uniform", num_frames=60), limits=LIMITS)
    assert starts == list(range(0, 120, 12))


@pytest.fixture
def broken(make_clip, decode_linearly):
    """A clip whose frame 20 does not decode, and all frames of the clip before it broke."""
    path = make_clip(frames=48, gop=1, codec="mjpeg", name="clip.mkv", pix_fmt="yuvj420p")
    whole = decode_linearly(path)
    with av.open(str(path)) as container:
        packets = [bytes(packet) for packet in container.demux(video=0) if packet.size]
    data = path.read_bytes()
    at = data.index(packets[20])
    path.write_bytes(data[:at] + bytes(len(packets[20])) + data[at + len(packets[20]) :])
    return path, whole


def test_a_broken_frame_is_replaced_by_the_next_good_one(broken):
    path, whole = broken

    got = extract_local(path, sampling=Sampling(sampler="fps", fps=3), limits=LIMITS, as_stored=True)

    # Asked for 0, 4, ..., 20, ...: 20 is gone, and what was 21 is now the twentieth frame shown.
    assert got.note.endswith("; 1 broken frame replaced by the next good one: 20 by 21")
    np.testing.assert_array_equal(got.unique[5], whole[21][2])


def test_a_broken_frame_is_left_out_where_frames_are_not_to_be_replaced(broken):
    path, whole = broken
    sampling = Sampling(sampler="fps", fps=3, frame_recovery=False)

    got = extract_local(path, sampling=sampling, limits=LIMITS, as_stored=True)

    assert got.note.endswith("; 1 broken frame left out: 20")
    assert len(got.shown) == len(got.unique) == 11
    np.testing.assert_array_equal(got.unique[5], whole[24][2])


def test_a_broken_frame_without_a_good_one_before_the_next_pick_is_reported(broken):
    got = extract_local(broken[0], sampling=Sampling(sampler="uniform", num_frames=48), limits=LIMITS)

    assert got.note.endswith("; 1 broken frame left out: 20")
    assert len(got.shown) == 47


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": "uniform", "num_frames": -1},
        {"sampler": "num_frames", "num_frames": -1},
        {"sampler": "fps", "fps": -1},
        {"sampler": "molmo2", "frame_sample_mode": "every_frame"},
    ],
)
def test_every_frame_is_shown_once(make_clip, decode_linearly, options):
    path = make_clip(frames=30, gop=10, b_frames=2)

    got = extract_local(path, sampling=Sampling(**options), limits=LIMITS, as_stored=True)

    assert got.selection.frame_index[got.shown].tolist() == list(range(30))
    np.testing.assert_array_equal(got.unique, [image for *_, image in decode_linearly(path)])


def test_every_keyframe_is_shown_once(make_clip):
    got = extract_local(make_clip(frames=48, gop=12), sampling=Sampling(num_frames=-1), limits=LIMITS)

    assert (got.selection.frame_index[got.shown].tolist(), got.method) == ([0, 12, 24, 36], "index")


def test_the_rate_of_the_video_itself_is_thinned_out_to_the_most_frames(make_clip):
    sampling = Sampling(sampler="fps", fps=-1, max_frames=4)

    got = extract_local(make_clip(frames=31, gop=10), sampling=sampling, limits=LIMITS)

    assert got.selection.frame_index[got.shown].tolist() == [0, 10, 20, 30]
    assert got.note.startswith("12 frames per second would be 31 frames; 4 are shown, spread over the video")


@pytest.mark.parametrize("sampler", ["fps", "qwen2_vl", "qwen3_vl", "glmga"])
def test_a_samplers_own_rate_that_is_thinned_out_to_the_most_frames_is_reported(make_clip, sampler):
    path = make_clip(frames=97, fps=12, gop=12)

    thinned, whole = (
        extract_local(path, sampling=Sampling(sampler=sampler, max_frames=most), limits=LIMITS) for most in (8, 64)
    )

    assert re.search("2 frames per second would be 1[5-7] frames; 8 are shown, spread over the video", thinned.note)
    assert "frames per second" not in whole.note


def test_a_sampler_that_refuses_a_video_says_so(make_clip):
    with pytest.raises(SamplingRefusedError):
        extract_local(make_clip(frames=3), sampling=Sampling(sampler="dynamic", fps=1), limits=LIMITS)


def test_similar_frames_are_dropped_on_request(make_clip):
    path = make_clip(frames=48, gop=12)
    sampling = Sampling(num_frames=8, drop_similar=0.5)
    every = extract_local(path, sampling=Sampling(num_frames=8), limits=LIMITS)

    got = extract_local(path, sampling=sampling, limits=LIMITS)

    assert got.selection.dropped_as_similar == len(every.unique) - len(got.unique) > 0
    assert set(got.selection.pts) < set(every.selection.pts)
    assert got.shown.max() == len(got.unique) - 1
