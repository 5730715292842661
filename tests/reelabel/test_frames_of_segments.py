"""Frames of a segment are those of a linear decode within it, as if the video had been cut there."""

import struct

import av
import numpy as np
import pytest

from benchmarks.extraction.loaders import FileParts
from reelabel.errors import SamplingRefusedError
from reelabel.extract import extract_local, extract_ranges
from reelabel.integrations.vllm.video_input import video_input
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.sampling.registry import choose_indices, dense_samplers
from reelabel.sampling.spec import VideoProperties
from reelabel.sampling.uniform import pick_evenly
from reelabel.segment import WHOLE, Segment, select_segment
from tests.clips import cut_start, write_clip

LIMITS = Limits()
FPS = 12
CLIPS = {
    "clip.mp4": {"b_frames": 2},
    "clip.mkv": {"b_frames": 2, "x264-params": "open-gop=1"},
    "clip.avi": {"codec": "mpeg4"},
    "clip.ts": {"b_frames": 2},  # its clock does not start at 0
}
# Their first frames come before their first keyframe: cut out of a longer clip without re-encoding it.
CUT = {
    "trimmed.mp4": {"b_frames": 2},
    "cut.mkv": {"codec": "mpeg4"},
    "cut.avi": {"codec": "mpeg4"},
}
# Enough bytes that ranges of it are worth reading.
LARGE = {"frames": 40 * FPS, "fps": FPS, "size": (320, 240), "preset": "ultrafast"}
MISSING = 4  # frames of the first GOP
SEGMENTS = [
    pytest.param(Segment(1.0, 2.5), id="two keyframes"),
    pytest.param(Segment(0.3, 0.8), id="no keyframe"),
    pytest.param(Segment(None, 1.2), id="from the start"),
    pytest.param(Segment(2.2, None), id="to the end"),
    pytest.param(Segment(1.1, 1.11), id="no frame"),
]
PLAIN = (Sampling(num_frames=3), *(Sampling(sampler=name, num_frames=3) for name in dense_samplers()))


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    """By name, a clip of four seconds with a keyframe each, its frames and their times since the first one."""
    folder, found = tmp_path_factory.mktemp("clips"), {}
    for name, options in (CLIPS | CUT).items():
        path = write_clip(folder / name, frames=4 * FPS, gop=FPS, fps=FPS, **options)
        path = cut_start(path, folder / f"its-end-{name}", frames=MISSING) if name in CUT else path
        with av.open(str(path)) as container:
            container.streams.video[0].codec_context.thread_type = "NONE"
            frames = list(container.decode(video=0))
        times_s = np.array([float(frame.pts * frame.time_base) for frame in frames])
        images = [frame.to_ndarray(format="rgb24") for frame in frames]
        found[name] = path, times_s, [frame.key_frame for frame in frames], images
    return found


def expected(sampling, segment, times_s, are_key):
    """Choose from the linear decode alone."""
    since_s = times_s - times_s[0]
    start_s, end_s = segment.start_s or 0.0, np.inf if segment.end_s is None else segment.end_s
    candidates = np.flatnonzero(are_key) if sampling.sampler == "keyframes" else np.arange(len(times_s))
    of_candidates = since_s[candidates]
    inside = candidates[(of_candidates > start_s - 1e-4) & (of_candidates < end_s + 1e-4)]
    if not inside.size:
        earlier = candidates[of_candidates < start_s]
        inside = earlier[-1:] if earlier.size else candidates[:1]
    if sampling.sampler == "keyframes":
        return inside[pick_evenly(len(inside), sampling.num_frames)]
    facts = VideoProperties(total_frames=len(inside), fps=FPS, duration_s=len(inside) / FPS, times_s=times_s[inside])
    return inside[choose_indices(sampling, facts)]


@pytest.mark.parametrize("segment", SEGMENTS)
@pytest.mark.parametrize("sampling", PLAIN, ids=lambda sampling: sampling.sampler)
@pytest.mark.parametrize("name", [*CLIPS, *CUT])
def test_every_sampler_takes_the_true_frames_of_a_segment(clips, name, sampling, segment):
    path, times_s, are_key, images = clips[name]
    try:
        wanted = expected(sampling, segment, times_s, are_key)
    except SamplingRefusedError:  # too short for it
        with pytest.raises(SamplingRefusedError):
            extract_local(path, sampling=sampling, limits=LIMITS, segment=segment)
        return

    got = extract_local(path, sampling=sampling, limits=LIMITS, as_stored=True, segment=segment)

    np.testing.assert_allclose(got.selection.time_s[got.shown], times_s[wanted], atol=1e-3)
    for image, row in zip(got.unique[got.shown], wanted, strict=True):
        np.testing.assert_array_equal(image, images[row])
    assert got.selection.segment == segment
    assert got.selection.keyframes_in_file == sum(are_key)


def test_a_segment_without_a_keyframe_shows_the_last_one_before_it_and_says_so(clips):
    path, *_ = clips["clip.mp4"]

    got = extract_local(path, sampling=Sampling(num_frames=4), limits=LIMITS, segment=Segment(1.5, 1.9))

    assert got.selection.time_s.tolist() == [1.0]
    assert got.note == "no keyframe in the segment; using the last one before it"


def test_a_segment_after_the_end_is_refused(clips):
    path, *_ = clips["clip.mp4"]
    for sampling in (Sampling(), Sampling(sampler="uniform")):
        with pytest.raises(SamplingRefusedError, match="starts at 9 s, but the video ends at 4 s; correct start_s"):
            extract_local(path, sampling=sampling, limits=LIMITS, segment=Segment(9.0, 12.0))


@pytest.mark.parametrize(
    ("sampling", "shown_s", "what"),
    [(Sampling(num_frames=1), 1.0, "keyframe"), (Sampling(sampler="uniform"), 1.5, "frame")],
)
def test_a_segment_of_a_video_that_is_longer_than_its_header_states_is_shown(tmp_path, sampling, shown_s, what):
    path = write_clip(tmp_path / "clip.mp4", frames=4 * FPS, fps=FPS, gop=FPS)
    data = bytearray(path.read_bytes())
    struct.pack_into(">I", data, data.index(b"mdhd") + 20, 1)  # its duration, in the units of its time scale
    path.write_bytes(data)

    got = extract_local(path, sampling=sampling, limits=LIMITS, segment=Segment(1.52, 1.53))

    assert got.selection.time_s.tolist() == [shown_s]
    assert got.note == f"no {what} in the segment; using the last one before it"


def test_segments_of_a_remote_video_always_count_from_its_first_frame(tmp_path):
    path = write_clip(tmp_path / "clip.mp4", gop=3 * FPS, b_frames=2, **LARGE)
    path = cut_start(path, tmp_path / "trimmed.mp4", frames=MISSING)  # the first keyframe is at 2.67 s now
    known = ()

    for _ in range(2):
        got, known = extract_ranges(
            FileParts(path), sampling=Sampling(num_frames=1), limits=LIMITS, segment=Segment(2.0, 3.0), known=known
        )
        assert got.selection.time_s.tolist() == pytest.approx([3.0 - MISSING / FPS])
        assert got.note == ""
        assert got.selection.starts_s == 2.0


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mkv", "clip.avi"])
def test_only_the_keyframes_of_a_remote_videos_segment_are_read(tmp_path, name):
    path = write_clip(tmp_path / name, gop=FPS, **CLIPS[name], **LARGE)
    segment = Segment(5.0, 7.5)
    whole = extract_local(path, sampling=Sampling(num_frames=4), limits=LIMITS, segment=segment)

    first, index = extract_ranges(FileParts(path), sampling=Sampling(num_frames=4), limits=LIMITS, segment=segment)
    again, _ = extract_ranges(
        FileParts(path), sampling=Sampling(num_frames=4), limits=LIMITS, segment=segment, known=index
    )

    assert first.selection.time_s.round(3).tolist() == [5.0, 6.0, 7.0]
    for got in (first, again):
        np.testing.assert_array_equal(got.unique, whole.unique)
        np.testing.assert_array_equal(got.selection.time_s, whole.selection.time_s)
    assert again.cost.bytes_fetched <= first.cost.bytes_fetched < path.stat().st_size / 2


def test_the_model_is_told_times_as_if_the_video_had_been_cut(clips):
    path, *_ = clips["clip.mp4"]
    segment = Segment(1.0, 2.5)

    _, uniform = video_input(
        extract_local(path, sampling=Sampling(sampler="uniform", num_frames=4), limits=LIMITS, segment=segment)
    )
    _, keyframes = video_input(extract_local(path, sampling=Sampling(num_frames=2), limits=LIMITS, segment=segment))
    _, earlier = video_input(
        extract_local(path, sampling=Sampling(num_frames=2), limits=LIMITS, segment=Segment(1.5, 1.9))
    )

    assert (uniform["fps"], uniform["frames_indices"], uniform["total_num_frames"]) == (FPS, [0, 6, 12, 18], 19)
    assert (keyframes["frames_indices"], keyframes["duration"]) == ([0, 12], 1.5)
    assert earlier["frames_indices"] == [0, 0]


def test_the_same_segment_has_one_name():
    assert Segment.of(0.0, None) == WHOLE
    assert Segment.of(None, None).is_whole
    assert [str(Segment.of(*each)) for each in ((1.5, 9.0), (None, 9.0), (1.5, None))] == ["t=1.5,9", "t=,9", "t=1.5"]


def test_frames_are_found_by_their_times():
    times_s = np.array([1.0, 2.0, 2.0, 3.0])

    assert select_segment(times_s, Segment(0.5, 1.5), first_s=1.0).numbers.tolist() == [1, 2]
    assert select_segment(times_s, Segment(1.2, 1.8), first_s=1.0).numbers.tolist() == [2]
    assert select_segment(times_s, Segment(0.0, 0.5), first_s=0.0).numbers.tolist() == [0]
