"""Keyframe coverage depends on where the keyframes are, whatever frames are requested."""

from dataclasses import replace
from fractions import Fraction

import av
import numpy as np
import pytest

from benchmarks.media.matrix import cells_like
from reelabel.coverage import CoverageThresholds, measure_coverage
from reelabel.extract import extract_local
from reelabel.frames.frame_file import read_frames
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.segment import WHOLE, Segment
from tests.clips import cut_start, write_clip
from tests.frame_files import frame_file_of

THRESHOLDS = CoverageThresholds(min_keyframes=3, max_gap_s=4, coverage_radius_s=1, min_coverage=0.5)


def judged(times_s, duration_s=12.0, segment=WHOLE, **known):
    times_ms = None if times_s is None else np.array([1000 * each for each in times_s], np.int64)
    return measure_coverage(
        times_ms, keyframes=7, duration_s=duration_s, thresholds=THRESHOLDS, segment=segment, **known
    )


@pytest.mark.parametrize(
    ("times_s", "reasons"),
    [
        pytest.param([0, 2, 4, 6, 8, 10], [], id="enough"),
        pytest.param([5, 7, 9, 11, 13, 15], [], id="timestamps that start late"),
        pytest.param([0], ["one_keyframe", "long_gap", "low_coverage"], id="one"),
        pytest.param([0, 6], ["few_keyframes", "long_gap", "low_coverage"], id="few"),
        pytest.param([0, 1, 2, 3, 4, 5, 6], ["long_gap"], id="a long gap at the end"),
        pytest.param([0, 4, 8], ["low_coverage"], id="sparse"),
        pytest.param(None, ["unknown"], id="unknown times"),
        pytest.param([], ["unknown"], id="no keyframe"),
    ],
)
def test_reasons_against_keyframes_are_found(times_s, reasons):
    coverage = judged(times_s)

    assert list(coverage.reasons) == reasons
    assert coverage.is_good == (not reasons)


def test_gaps_and_cover_count_up_to_the_end_of_the_video():
    coverage = judged([0, 2, 7])

    assert coverage.longest_gap_s == 5
    assert coverage.cover == pytest.approx((2 + 2 + 1) / 12)
    assert coverage.keyframes == 3


def test_no_gap_matters_where_every_frame_is_a_keyframe():
    assert judged([0, 11], frames=2).is_good
    assert not judged([0, 11], frames=3).is_good


def test_a_keyframe_after_the_stated_end_counts():
    coverage = judged([0, 2, 4, 6, 8, 10, 13])

    assert (coverage.longest_gap_s, coverage.cover) == (3, pytest.approx(12 / 13))


def test_a_video_begins_with_its_first_keyframe_at_the_latest():
    times_ms = np.array([1000, 3000, 8000])
    arguments = {"keyframes": 3, "duration_s": 12.0, "thresholds": THRESHOLDS}

    assert measure_coverage(times_ms, first_ms=2000, **arguments) == measure_coverage(times_ms, **arguments)


def test_one_keyframe_is_enough_for_a_video_as_short_as_it_represents():
    assert judged([0], duration_s=0.9).is_good


def test_a_video_of_unknown_length_cannot_be_judged():
    assert judged([0, 1], duration_s=0.0).reasons == ("unknown",)


def test_a_segment_is_judged_by_its_own_keyframes():
    times_s = [0, 2, 4, 10]

    coverage = judged(times_s, segment=Segment(1.5, 9.0))

    assert (coverage.keyframes, coverage.longest_gap_s) == (2, 5.0)
    assert coverage.cover == pytest.approx((0.5 + 2 + 1) / 7.5)
    assert judged(times_s, segment=Segment(0.5, 1.5)).is_good == judged([0], duration_s=1.0).is_good
    assert judged(times_s, segment=Segment(5.0, 9.0)).reasons == judged([0], duration_s=4.0).reasons


@pytest.mark.parametrize(
    ("times_s", "duration_s"),
    [
        pytest.param([0, 2, 6], 8.0, id="a gap as long as allowed, and as few keyframes"),
        pytest.param([0, 4, 8], 10.0, id="as much covered as demanded"),
        pytest.param([0], 1.0, id="one that covers all"),
    ],
)
def test_keyframes_at_the_limits_are_enough(times_s, duration_s):
    assert judged(times_s, duration_s).is_good


def test_thresholds_that_are_not_given_are_the_usual_ones():
    sampling = Sampling(sampler="auto", max_gap_s=4, min_keyframes=2)

    assert CoverageThresholds.of(sampling) == CoverageThresholds(max_gap_s=4.0, min_keyframes=2)
    assert CoverageThresholds.of(None) == CoverageThresholds(
        min_keyframes=4, max_gap_s=2.5, coverage_radius_s=0.5, min_coverage=0.4
    )


CLIPS = [
    pytest.param("clip.mp4", "libx264", {"b_frames": 3}, id="mp4"),
    pytest.param("clip.mp4", "libx264", {"b_frames": 2, "x264-params": "open-gop=1"}, id="open gop"),
    pytest.param("clip.mkv", "libx264", {"b_frames": 2}, id="mkv"),
    pytest.param("clip.webm", "libvpx-vp9", {}, id="webm"),
    pytest.param("clip.avi", "mpeg4", {}, id="avi"),
    pytest.param("clip.ts", "libx264", {"b_frames": 2}, id="mpeg-ts"),
]


@pytest.mark.parametrize(("name", "codec", "options"), CLIPS)
@pytest.mark.parametrize("sampler", ["keyframes", "num_frames"])
def test_every_sampler_reports_all_keyframe_times(make_clip, decode_linearly, sampler, name, codec, options):
    path = make_clip(name, codec=codec, **options)
    with av.open(str(path)) as container:
        ms = container.streams.video[0].time_base * 1000
    shown = [pts for pts, is_keyframe, _ in decode_linearly(path) if is_keyframe]
    # PyAV's own AVI demuxer gives no presentation times; there, frames are as long as their rate says.
    expected = [round(Fraction(pts) * ms) for pts in shown] if None not in shown else [0, 1000, 2000, 3000]

    got = extract_local(path, sampling=Sampling(sampler=sampler, num_frames=3), limits=Limits())

    assert got.selection.keyframe_ms.tolist() == expected
    assert got.sampler == sampler


CUT = {"cut.mp4": "libx264", "cut.mkv": "mpeg4", "cut.avi": "mpeg4"}


@pytest.fixture(scope="module", params=CUT)
def cut_clip(request, tmp_path_factory):
    """A clip of 10 seconds whose first keyframe is shown at 8: the one before was cut away."""
    folder, name = tmp_path_factory.mktemp("cut"), request.param
    wanted = {"codec": CUT[name], "frames": 132, "gop": 108, "size": (320, 240), "preset": "ultrafast"}
    path = write_clip(folder / f"whole-{name}", **wanted)
    return cut_start(path, folder / name, frames=12)


@pytest.mark.parametrize("sampler", ["keyframes", "num_frames", "auto"])
def test_frames_before_the_first_keyframe_count_also_in_a_frame_file(cut_clip, sampler):
    sampling = Sampling(sampler=sampler, num_frames=3)

    got = extract_local(cut_clip, sampling=sampling, limits=Limits())

    assert got.coverage(THRESHOLDS).longest_gap_s == pytest.approx(8, abs=0.1)
    data = frame_file_of(got, source_uri="v", fingerprint="f", sampling=sampling)
    assert read_frames(data).coverage(THRESHOLDS) == got.coverage(THRESHOLDS)
    assert sampler != "auto" or got.sampler != "keyframes"


@pytest.mark.parametrize(
    ("name", "sampling", "decoded"),
    [
        pytest.param("clip.mp4", Sampling(num_frames=3), 3, id="keyframes only"),
        pytest.param("clip.mp4", Sampling(num_frames=16), 4, id="each keyframe once"),
        pytest.param("clip.mp4", Sampling(sampler="uniform", num_frames=2), 13, id="the GOPs of the picks"),
        pytest.param("clip.mp4", Sampling(sampler="uniform", num_frames=48), 48, id="every frame"),
        pytest.param("clip.ts", Sampling(num_frames=3), 48 + 37, id="the whole video, and up to the last pick"),
    ],
)
def test_decoded_keyframes_are_counted(make_clip, name, sampling, decoded):
    got = extract_local(make_clip(name), sampling=sampling, limits=Limits())

    assert got.cost.frames_decoded == decoded


AUTO = Sampling(sampler="auto", num_frames=3, dense_sampler="num_frames")


@pytest.mark.parametrize(("gop", "sampler", "decoded"), [(12, "keyframes", 3), (48, "num_frames", 48)])
def test_auto_takes_keyframes_if_they_are_enough_and_otherwise_decodes_none(make_clip, gop, sampler, decoded):
    path = make_clip(gop=gop)

    got = extract_local(path, sampling=AUTO, limits=Limits())

    alone = extract_local(path, sampling=Sampling(sampler=sampler, num_frames=3), limits=Limits())
    assert (got.sampler, got.cost.frames_decoded) == (sampler, decoded)
    np.testing.assert_array_equal(got.unique, alone.unique)


def test_auto_follows_the_given_thresholds(make_clip):
    strict = replace(AUTO, min_keyframes=5, coverage_radius_s=0.25)

    assert extract_local(make_clip(), sampling=strict, limits=Limits()).sampler == "num_frames"


@pytest.mark.parametrize("container", ["flv", "ts", "ps", "ogg", "asf", "mxf"])
@pytest.mark.parametrize("sampler", ["keyframes", "uniform", "auto"])
def test_keyframes_are_counted_in_containers_without_an_index(tmp_path, container, sampler):
    [one] = [each for each in cells_like(f"{container}/") if each.structure == "one-keyframe"]
    path = tmp_path / "clip"
    path.write_bytes(one.make())

    got = extract_local(path, sampling=Sampling(sampler=sampler))

    assert "one_keyframe" in got.coverage(THRESHOLDS).reasons
    assert sampler != "auto" or got.sampler == "uniform"


@pytest.mark.parametrize(("gop", "sampler"), [(12, "keyframes"), (48, "num_frames")])
def test_auto_decodes_a_container_without_an_index_to_find_out(make_clip, gop, sampler):
    got = extract_local(make_clip("clip.flv", gop=gop), sampling=AUTO, limits=Limits())

    assert (got.sampler, got.coverage(THRESHOLDS).is_good) == (sampler, gop == 12)


def test_packet_flags_are_not_trusted(tmp_path):
    """Recovery points are flagged in MPEG-TS, but only the first frame is independent of others."""
    [cell] = cells_like("ts/h264/intra-refresh")
    path = tmp_path / "clip"
    path.write_bytes(cell.make())

    got = extract_local(path, sampling=AUTO)

    assert (got.sampler, got.selection.keyframes_in_file) == ("num_frames", 1)


def test_without_times_coverage_is_unknown(tmp_path):
    [cell] = cells_like("raw/h264/plain")
    path = tmp_path / "clip"
    path.write_bytes(cell.make())

    got = extract_local(path, sampling=AUTO)

    assert (got.sampler, got.coverage(THRESHOLDS).reasons) == ("num_frames", ("unknown",))
