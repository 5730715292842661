"""Frame times are checked against the limit, whatever the header claims, and whoever reads them."""

import io
import struct
from contextlib import suppress
from dataclasses import replace

import av
import numpy as np
import pytest

import reelabel
from benchmarks.extraction.loaders import FileParts
from benchmarks.media.recipe import Recipe, make_clip
from reelabel.containers.stream_properties import check_frame_times
from reelabel.errors import VideoError, VideoTooLargeError
from reelabel.extract import extract_local, extract_ranges
from reelabel.integrations.vllm.video_input import video_input
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.sampling.spec import EVERY
from reelabel.segment import Segment
from tests.timestamps import fuzzed_timestamps, retimed, with_sample_times

HOUR = Limits(max_duration_s=3600.0)
FOREVER = Limits(max_duration_s=float("inf"))
SAMPLERS = ("keyframes", "uniform", "num_frames", "auto")
# In milliseconds; all fit into the 26 hours of MPEG-TS's clock.
OVER_AN_HOUR = [number * 300_000 for number in range(40)]
EPOCH_MS = 1_700_000_000_000


@pytest.fixture
def write(tmp_path):
    def write(data):
        path = tmp_path / "clip"
        path.write_bytes(data)
        return path

    return write


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("container", ["mp4", "fmp4", "mov", "mkv", "flv", "ts", "asf", "3gp"])
def test_frames_that_span_too_long_are_refused_in_every_container(write, container, sampler):
    path = write(retimed(container, OVER_AN_HOUR))

    with pytest.raises(VideoTooLargeError, match=r", which exceeds extract\.max_duration_s \(3,600 s\)"):
        extract_local(path, sampling=Sampling(sampler=sampler), limits=HOUR)


@pytest.mark.parametrize("options", [{}, {"as_stored": True}, {"segment": Segment(0.0, 1.0)}], ids=str)
@pytest.mark.parametrize("sampling", [*(Sampling(sampler=each) for each in SAMPLERS), Sampling(num_frames=EVERY)])
def test_a_header_that_claims_a_second_changes_nothing(write, sampling, options):
    path = write(with_sample_times([(40, 2**30)], timescale=12_800))

    with pytest.raises(VideoTooLargeError, match="span of frame times is "):
        extract_local(path, sampling=sampling, limits=Limits(), **options)


def test_ranges_are_held_to_the_limit_with_and_without_a_saved_index(write):
    # Ranges of a small file would be most of it.
    padding = struct.pack(">I4s", 1_000_000, b"free") + bytes(1_000_000 - 8)
    source = FileParts(write(with_sample_times([(40, 2**30)], timescale=12_800) + padding))
    _, index = extract_ranges(source, sampling=Sampling(), limits=FOREVER)

    for known in ((), index):
        with pytest.raises(VideoTooLargeError, match="span of frame times is "):
            extract_ranges(source, sampling=Sampling(), limits=Limits(), known=known)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_recording_may_start_at_any_time(write, sampler):
    path = write(retimed("mkv", [EPOCH_MS + number * 40 for number in range(40)]))

    frames = extract_local(path, sampling=Sampling(sampler=sampler), limits=HOUR)

    assert frames.selection.time_s[0] == EPOCH_MS / 1e3
    assert np.ptp(frames.selection.time_s) < 2


def test_times_too_large_to_be_exact_are_refused(write):
    path = write(retimed("mkv", [2**60 + number * 40 for number in range(40)]))

    with pytest.raises(VideoTooLargeError, match="frame times reach 1,152,921,504,606,84"):
        extract_local(path, sampling=Sampling(), limits=FOREVER)


@pytest.fixture
def frames(write):
    return extract_local(write(retimed("mp4", range(0, 1600, 40))), sampling=Sampling(), limits=HOUR)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"time_s": [0.0, 1.0, 2.0, 9e3]}, "span of frame times is 9,000 s"),
        ({"time_s": [-9e3, 0.0, 1.0, 2.0]}, "span of frame times is 9,002 s"),
        ({"time_s": [0.0, 1.0, 2.0, float("nan")]}, "frame times reach nan s"),
        ({"time_s": [0.0, 1.0, 2.0, float("inf")]}, "frame times reach inf s"),
        ({"keyframe_ms": np.array([0, 9_000_000])}, "span of frame times is 9,000 s"),
        ({"first_ms": -9_000_000}, "span of frame times is 9,0"),
        ({"duration_s": 9e3}, "duration is 9,000 s"),
        ({"duration_s": float("nan")}, "duration is nan s"),
        ({"fps": 0.001}, "length of 40 frames at 0.001 fps is 40,000 s"),
        ({"fps": 0.001, "total_frames": None}, "length of 31 frames at 0.001 fps is 31,000 s"),
    ],
)
def test_every_known_time_counts(frames, changed, message):
    changed = changed | ({"time_s": np.array(changed["time_s"])} if "time_s" in changed else {})

    with pytest.raises(VideoTooLargeError, match=message):
        check_frame_times(replace(frames.selection, **changed), HOUR)


@pytest.mark.parametrize("sampler", ["keyframes", "fps"])
def test_random_timestamps_are_shown_or_refused_with_a_reason(write, sampler):
    for seed in range(30):
        path = write(fuzzed_timestamps(seed))
        with suppress(VideoError):  # any other error fails the test
            frames = extract_local(path, sampling=Sampling(sampler=sampler), limits=Limits())
            shown = video_input(frames)[1]
            assert np.ptp(frames.selection.time_s) <= Limits().max_duration_s, seed
            assert min(shown["frames_indices"]) >= 0, seed
            assert shown["duration"] <= Limits().max_duration_s + 1, seed


@pytest.mark.parametrize("late_s", [0, 3, 100_000])
def test_a_file_of_a_recording_is_as_long_as_its_frames_whenever_it_begins(make_clip, tmp_path, late_s):
    """FFmpeg cuts a camera's stream into files whose times go on, for days; in Matroska it states when they end."""
    with av.open(str(make_clip("clip.mkv"))) as source, av.open(str(tmp_path / "late.mkv"), "w") as target:
        [stream] = source.streams
        copy = target.add_stream_from_template(stream)
        for packet in source.demux(stream):
            if packet.size:
                late = round(late_s / packet.time_base)
                packet.pts, packet.dts, packet.stream = packet.pts + late, packet.dts + late, copy
                target.mux(packet)

    found = extract_local(tmp_path / "late.mkv", sampling=Sampling(sampler="auto", num_frames=8))

    assert found.selection.duration_s == pytest.approx(4, abs=0.1)
    assert (found.selection.time_s[0], found.method) == (late_s, "index")


@pytest.mark.parametrize("muxer", ["mp4", "matroska"])
@pytest.mark.parametrize("encoder", ["libx264", "libx265", "mpeg2video"])
def test_a_video_that_begins_within_a_gop_counts_from_the_first_frame_that_is_shown(encoder, muxer):
    clip = make_clip(Recipe(encoder=encoder, muxer=muxer, b_frames=2, skipped_packets=3))
    with av.open(io.BytesIO(clip)) as container:
        shown = [(frame.time, frame.key_frame) for frame in container.decode(video=0)]
    expected = [time - shown[0][0] for time, is_keyframe in shown if is_keyframe]

    keyframes = reelabel.extract_frames(clip, "keyframes", num_frames=len(expected))

    assert keyframes.time_s == pytest.approx(expected, abs=2e-3)
