"""Frames and what is known of them, apart from any video."""

from dataclasses import replace

import numpy as np
import pytest

from reelabel.coverage import CoverageThresholds
from reelabel.index import HeaderInfo
from reelabel.result import Cost, Frames, Orientation
from reelabel.segment import Segment
from tests.frame_files import selection_of

IMAGES = np.arange(3, dtype=np.uint8).reshape(3, 1, 1, 1).repeat(2, 1).repeat(4, 2).repeat(3, 3)
SELECTION = selection_of(
    3,
    pts=np.array([10, 20, 30]),
    time_s=np.array([101.0, 102.0, 104.0]),
    frame_index=np.array([1, 2, -1]),
    is_keyframe=np.array([True, False, True]),
    picks=np.array([2, 0, 0, 1]),
    deviation_s=np.array([0.5, 0.0, -0.5, 0.25]),
    keyframes_in_file=2,
    keyframe_ms=np.array([101_000, 104_000]),
    first_ms=100_000,
    first_s=100.0,
    total_frames=5,
    duration_s=5.0,
    native_width_px=640,
    native_height_px=360,
    decode_ms=1.5,
    fetch_ms=2.5,
    bytes_fetched=7,
    frames_decoded=9,
    sampler="fps",
)


def frames_of(**changes):
    return Frames.of(IMAGES, replace(SELECTION, **changes))


def test_columns_are_in_the_order_asked_for_with_repeats():
    frames = frames_of()

    assert frames.images[:, 0, 0, 0].tolist() == [2, 0, 0, 1]
    assert frames.time_s.tolist() == [4.0, 1.0, 1.0, 2.0]
    assert frames.pts.tolist() == [30, 10, 10, 20]
    assert frames.index.tolist() == [-1, 1, 1, 2]
    assert frames.is_keyframe.tolist() == [True, True, True, False]
    assert frames.deviation_s.tolist() == [0.5, 0.0, -0.5, 0.25]


def test_a_slice_has_the_columns_of_its_frames():
    some = frames_of()[1:4:2]

    assert some.images[:, 0, 0, 0].tolist() == [0, 1]
    assert (some.time_s.tolist(), some.deviation_s.tolist()) == ([1.0, 2.0], [0.0, 0.25])
    assert frames_of(deviation_s=None)[:2].deviation_s is None


@pytest.mark.parametrize(
    ("picks", "is_copy"),
    [([0, 1, 2], False), ([0, 2, 1], True), ([0, 0, 1], True), ([0, 1], True), ([1, 2, 2], True)],
)
def test_images_are_copied_only_if_they_are_not_each_shown_once_in_their_places(picks, is_copy):
    frames = frames_of(picks=np.array(picks), deviation_s=None)

    assert (frames.images is not IMAGES) == is_copy
    assert frames.images[:, 0, 0, 0].tolist() == picks


def test_images_can_be_written_to_also_where_the_pixels_cannot():
    pixels = IMAGES.copy()
    pixels.flags.writeable = False

    images = Frames.of(pixels, replace(SELECTION, picks=np.arange(3), deviation_s=None)).images

    assert images.flags.writeable


def test_what_is_known_of_the_video_is_as_shown():
    header = HeaderInfo(container="mp4", codec="h264", hdr="PQ")
    turned = frames_of(orientation=Orientation(is_transposed=True, rotation_deg=90), pixel_aspect=1.5)

    plain, info = frames_of().info, replace(turned, header=header).info

    assert (plain.width, plain.height, plain.rotation_deg, plain.container, plain.codec) == (640, 360, 0, "", "")
    assert (info.width, info.height, info.rotation_deg, info.pixel_aspect) == (360, 640, 90, 1.5)
    assert (info.container, info.codec, info.hdr, info.fps, info.duration_s) == ("mp4", "h264", "PQ", 1.0, 5.0)
    assert frames_of().cost == Cost(decode_ms=1.5, fetch_ms=2.5, bytes_fetched=7, frames_decoded=9)


def test_coverage_is_that_of_the_segment_that_was_sampled():
    thresholds = CoverageThresholds(min_keyframes=1, max_gap_s=9)

    assert frames_of().coverage(thresholds).longest_gap_s == 3.0
    assert frames_of(segment=Segment(4.0, None)).coverage(thresholds).keyframes == 1
    assert frames_of(keyframe_ms=None).coverage(thresholds).keyframes == 2


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        (frames_of(), "Frames(4 x 2x4, 1-4 s, sampler='fps', method='seek')"),
        (frames_of(sampler="")[:2], "Frames(2 x 2x4, 1-4 s, method='seek')"),
        (frames_of()[:0], "Frames(0 x 2x4, sampler='fps', method='seek')"),
    ],
)
def test_frames_print_no_pixels(frames, text):
    assert repr(frames) == text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"time_s": np.zeros(2)}, "columns must be of one length"),
        ({"is_keyframe": np.zeros((3, 1), np.bool_)}, "columns must be of one length"),
        ({"picks": np.array([0, 0, 0, 3])}, "picks must be indices of 3 images"),
        ({"picks": np.array([0, 0, 0, -1])}, "picks must be indices of 3 images"),
        ({"deviation_s": np.zeros(3)}, "4 picks, but 3 deviations"),
    ],
)
def test_a_selection_that_contradicts_itself_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(SELECTION, **changes)


def test_a_selection_of_nothing_is_refused():
    empty = {name: np.zeros(0, np.int64) for name in ("pts", "time_s", "frame_index", "is_keyframe", "picks")}

    with pytest.raises(ValueError, match="at least 1"):
        replace(SELECTION, **empty, deviation_s=None)


# Of 2x3 pixels: 0 1 2 / 3 4 5.
PICTURE = np.arange(6).reshape(2, 3)


@pytest.mark.parametrize(
    ("orientation", "shown"),
    [
        (Orientation(), [[0, 1, 2], [3, 4, 5]]),
        (Orientation(is_mirrored=True), [[2, 1, 0], [5, 4, 3]]),
        (Orientation(is_flipped=True), [[3, 4, 5], [0, 1, 2]]),
        (Orientation(is_transposed=True), [[0, 3], [1, 4], [2, 5]]),
        (Orientation(is_transposed=True, is_mirrored=True), [[3, 0], [4, 1], [5, 2]]),
        (Orientation(is_transposed=True, is_flipped=True), [[2, 5], [1, 4], [0, 3]]),
    ],
)
def test_a_picture_is_transposed_and_then_mirrored(orientation, shown):
    assert orientation.apply(PICTURE).tolist() == shown
