"""Frames come in the order in which a decoder outputs them, at times that never fall, whatever timestamps say."""

import struct
from contextlib import closing
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from benchmarks.exactness.conformance import check_file
from benchmarks.exactness.linear import decode_linearly, digest_pixels
from benchmarks.extraction.loaders import FileParts
from benchmarks.media.matrix import Cell
from benchmarks.media.recipe import make_clip, read_number
from reelabel import PrepareVideo
from reelabel.decode.decoder import LocalDecoder
from reelabel.decode.read_index import read_index
from reelabel.errors import FallbackRequired
from reelabel.extract import Progress, Request, extract, extract_local, extract_ranges
from reelabel.index import NO_PTS
from reelabel.integrations.vllm.video_input import video_input
from reelabel.options import Limits
from reelabel.output_order import ClockReader, output_order, play_times
from reelabel.sampling.options import Sampling
from reelabel.segment import Segment
from reelabel.sources.video_file import open_video_file
from tests.timestamps import retimed

FPS = 25
SET_BACK = "timestamps are set back 1 time; later times count on from there"
CONTRADICTED = "timestamps contradict the order of frames"
# Cells, what is said of them, and the number in the first picture shown.
FILES = {
    Cell("ts", "h264", "joined-b-frames"): (SET_BACK, 0),
    Cell("ps", "h264", "joined"): (SET_BACK, 0),
    Cell("ps", "mpeg2", "joined-b-frames"): (SET_BACK, 0),
    Cell("flv", "h264", "joined-tags"): (SET_BACK, 0),
    Cell("avi", "h264", "b-frames-h264"): (CONTRADICTED, 0),
    Cell("avi", "mpeg4", "b-frames"): ("", 0),
    Cell("asf", "h264", "b-frames-h264"): (CONTRADICTED, 0),
    Cell("mp4", "h264", "times-of-decoding"): (CONTRADICTED, 0),
    Cell("mkv", "h264", "times-of-decoding"): (CONTRADICTED, 0),
    Cell("mkv", "h264", "times-of-decoding-open-gop"): (CONTRADICTED, 0),
    Cell("mp4", "hevc", "times-of-decoding-hevc"): (CONTRADICTED, 0),
    Cell("mkv", "mpeg2", "times-of-decoding"): (CONTRADICTED, 0),
    Cell("mp4", "mpeg4", "times-of-decoding"): (CONTRADICTED, 0),
    Cell("mkv", "hevc", "leading-pictures"): ("", 8),
    Cell("fmp4", "hevc", "leading-pictures"): ("", 8),
    Cell("ts", "hevc", "leading-pictures"): ("", 8),
    Cell("mkv", "hevc", "leading-pictures-open-gop"): ("", 10),
}
SAMPLINGS = [
    *(Sampling(sampler=name, num_frames=8) for name in ("keyframes", "uniform", "num_frames", "middles", "auto")),
    Sampling(sampler="fps", fps=-1),
    Sampling(sampler="qwen2_vl", fps=5),
]
CLUSTER, TIMESTAMP = b"\x1f\x43\xb6\x75", b"\xe7"  # elements of Matroska


@pytest.fixture(scope="module")
def file_of(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips")

    @cache
    def file_of(cell):
        path = folder / cell.name.replace("/", "-")
        path.write_bytes(cell.make())
        return path

    return file_of


def padded(mp4, folder):
    """Copy an MP4 with a box that nobody reads: ranges of a small file would be most of it."""
    path = folder / "padded.mp4"
    path.write_bytes(mp4.read_bytes() + struct.pack(">I4s", 1_000_000, b"free") + bytes(1_000_000 - 8))
    return path


def numbers_of(got):
    return np.array([read_number(image) for image in got.unique])


@pytest.mark.parametrize("segment", [Segment(), Segment(0.3, 1.1)], ids=["whole", "segment"])
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda sampling: sampling.sampler)
@pytest.mark.parametrize("cell", FILES, ids=lambda cell: cell.name)
def test_each_frame_is_at_its_place_and_time(file_of, cell, sampling, segment):
    note, first = FILES[cell]

    got = extract_local(file_of(cell), sampling=sampling, as_stored=True, segment=segment)

    since = numbers_of(got) - first
    assert (np.diff(since) > 0).all()
    assert (np.diff(got.shown) >= 0).all()
    assert (got.selection.time_s - got.selection.first_ms / 1e3) * FPS == pytest.approx(since, abs=0.05)
    assert set((got.selection.frame_index - since).tolist()) <= {0, *(-1 - since)}
    assert since.min() >= (segment.start_s or 0) * FPS
    assert since.max() <= FPS * (segment.end_s or 99)
    if got.method == "linear":
        assert note in got.note


@pytest.mark.parametrize("cell", FILES, ids=lambda cell: cell.name)
def test_frames_spread_over_a_video_are_evenly_spread_over_what_the_decoder_outputs(file_of, cell):
    note, first = FILES[cell]

    got = extract_local(file_of(cell), sampling=Sampling(sampler="uniform", num_frames=8), as_stored=True)

    assert (numbers_of(got) - first).tolist() == np.linspace(0, got.selection.total_frames - 1, 8, dtype=int).tolist()
    assert note in got.note
    assert got.selection.duration_s == pytest.approx(got.selection.total_frames / FPS, abs=0.2)
    metadata = video_input(got)[1]
    assert metadata["frames_indices"] == got.selection.frame_index[got.shown].tolist()
    assert (metadata["fps"], metadata["total_num_frames"]) == (FPS, got.selection.total_frames)


def test_the_note_is_in_the_rows_of_datasets(file_of):
    path = file_of(Cell("ts", "h264", "joined-b-frames"))
    prepare = PrepareVideo(sampling={"sampler": "uniform", "num_frames": 4})
    try:
        [[meta]] = prepare({"video_uri": [str(path)]})["video_meta"]
    finally:
        prepare.close()

    assert SET_BACK in meta["decode_note"]
    assert np.diff(meta["frame_timestamps"]) == pytest.approx([26 / FPS, 26 / FPS, 27 / FPS], abs=0.01)


@pytest.mark.parametrize("sampler", ["keyframes", "uniform"])
def test_a_note_says_from_when_on_the_video_goes_on_in_another_stream(file_of, tmp_path, sampler):
    path, first = tmp_path / "clip.ts", file_of(Cell("ts", "h264")).read_bytes()
    mux_options = {"mpegts_start_pid": "512", "mpegts_pmt_start_pid": "4352"}
    path.write_bytes(first + make_clip(replace(Cell("ts", "h264").recipe, mux_options=mux_options, first_number=40)))

    got = extract_local(path, sampling=Sampling(sampler=sampler, num_frames=8), as_stored=True)

    assert numbers_of(got).max() < 40
    assert got.note.endswith("; from 1.6 s on, the video goes on in another stream (PID 512), which is not shown")
    path.write_bytes(2 * first)
    assert "another stream" not in extract_local(path, sampling=Sampling(sampler=sampler), as_stored=True).note


def test_pieces_of_joined_recordings_follow_each_other(file_of):
    path, sampling = file_of(Cell("ts", "h264", "joined-b-frames")), Sampling(sampler="uniform", num_frames=-1)
    pieces = [Segment(None, 1.01), Segment(1.03, 2.01), Segment(2.03, None)]

    progress = Progress(ways=("decode",))
    with open_video_file(path) as file, closing(LocalDecoder(file, Limits())) as decoder:
        requests = [Request(sampling=sampling, segment=piece) for piece in pieces]
        numbers = [numbers_of(extract(decoder, request, progress)) for request in requests]

    assert np.concatenate(numbers).tolist() == list(range(80))


def test_every_keyframe_of_joined_recordings_is_in_its_place(file_of):
    got = extract_local(file_of(Cell("ts", "h264", "joined")), sampling=Sampling(num_frames=-1), as_stored=True)

    assert got.selection.frame_index.tolist() == numbers_of(got).tolist() == list(range(0, 80, 10))
    assert (got.selection.keyframe_ms - got.selection.first_ms).tolist() == list(range(0, 3200, 400))


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(sampler="uniform", num_frames=8)], ids=lambda each: each.sampler
)
def test_ranges_are_refused_where_timestamps_do_not_show_the_order(file_of, tmp_path, sampling):
    path = padded(file_of(Cell("mp4", "h264", "times-of-decoding-open-gop")), tmp_path)

    with pytest.raises(FallbackRequired, match="timestamps do not show the order of frames"):
        extract_ranges(FileParts(path), sampling=sampling, limits=Limits())


@pytest.mark.parametrize("sampler", ["keyframes", "uniform"])
def test_a_segment_counts_from_the_leading_pictures_that_are_shown_first(file_of, sampler):
    path = file_of(Cell("mkv", "hevc", "leading-pictures"))

    got = extract_local(
        path, sampling=Sampling(sampler=sampler, num_frames=1), as_stored=True, segment=Segment(0.07, 0.09)
    )

    assert (numbers_of(got).tolist(), got.note.count("in the segment")) == ([10], 0)
    assert got.selection.starts_s == pytest.approx(0.4 if sampler == "uniform" else 0.39)


def test_the_packets_of_joined_recordings_are_not_listed(file_of):
    with (
        open_video_file(file_of(Cell("flv", "h264", "joined-tags"))) as file,
        pytest.raises(FallbackRequired, match="timestamps jump back"),
    ):
        read_index(file, Limits(), lists="frames")


def test_a_frame_without_a_timestamp_is_timed_by_its_neighbours(file_of):
    """In MPEG-PS, only some frames of H.264 have one, and the first is not at zero."""
    got = extract_local(
        file_of(Cell("ps", "h264")), sampling=Sampling(sampler="uniform", num_frames=-1), as_stored=True
    )

    assert NO_PTS in got.selection.pts
    assert np.diff(got.selection.time_s) == pytest.approx(np.full(39, 1 / FPS), abs=1e-4)


@pytest.mark.parametrize("structure", ["plain", "b-frames-h264"])
def test_fragments_whose_times_jump_back_are_shown_in_full(tmp_path, structure):
    """They begin again a fifth of a second later, so that no two frames share a time."""
    data = Cell("fmp4", "h264", structure).make()
    data = data[: data.index(b"mfra") - 4]
    again = bytearray(data[data.index(b"moof") - 4 :])
    at = again.find(b"tfdt")
    while at >= 0:
        (time,) = struct.unpack_from(">Q", again, at + 8)
        struct.pack_into(">Q", again, at + 8, time + 512 * 5 + 7)
        at = again.find(b"tfdt", at + 1)

    assert_all_are_shown(tmp_path, data + again)


def test_clusters_whose_times_jump_back_are_shown_in_full(tmp_path):
    data = Cell("webm", "vp9", "no-index").make()
    again = bytearray(data[data.index(CLUSTER) :])
    at = again.find(CLUSTER)
    while at >= 0:
        length = again[again.index(TIMESTAMP, at) + 1] & 0x7F
        again[again.index(TIMESTAMP, at) + 1 + length] += 47
        at = again.find(CLUSTER, at + 1)

    assert_all_are_shown(tmp_path, data + again)


def test_a_clock_that_is_set_back_by_minutes_has_not_wrapped(tmp_path):
    """FFmpeg takes an MPEG-TS whose clock falls below its start for one that has run for a day."""
    path = tmp_path / "clip"
    path.write_bytes(retimed("ts", range(600_000, 601_600, 40)) + retimed("ts", range(0, 1_600, 40)))

    got = extract_local(path, sampling=Sampling(sampler="uniform", num_frames=-1))

    assert len(got) == 80
    assert np.diff(got.time_s) == pytest.approx(np.full(79, 0.04), abs=1e-3)
    assert got.info.duration_s == pytest.approx(3.2, abs=0.1)
    assert "timestamps are set back 1 time" in got.note


def assert_all_are_shown(tmp_path, data):
    path = tmp_path / "clip"
    path.write_bytes(data)

    got = extract_local(path, sampling=Sampling(sampler="uniform", num_frames=-1), as_stored=True)
    linear = decode_linearly(path).frames

    assert check_file(path).faults == ()
    assert [digest_pixels(image) for image in got.unique] == [frame.digest for frame in linear]
    assert len(linear) > 40
    assert SET_BACK in got.note
    assert (np.diff(got.selection.time_s) > 0).all()


@pytest.mark.parametrize(
    ("pts", "clocks", "times"),
    [
        ([5, 6, 8, 9], [0] * 4, [5, 6, 8, 9]),
        ([5, 6, 7, 8, 5, 6, 7, 8], [0] * 4 + [1] * 4, range(5, 13)),
        ([5, 6, 7, 6, 7, 8, 2, 3], [0] * 3 + [1] * 3 + [2] * 2, range(5, 13)),
        ([0, 2, 1, 4, 3, 5], [0] * 6, range(6)),
        ([0, 2, 1, 1, 0, 2], [0] * 3 + [1] * 3, range(6)),
        ([None, 11, None, None, 14, None], [0] * 6, range(10, 16)),
        ([3, None, 4, 3, None], [0, 0, 0, 1, 1], [3, 3.5, 4, 4.5, 5.5]),
        ([None, None, None], [0] * 3, [0, 1, 2]),
        ([7], [0], [7]),
        ([5, 5, 5], [0] * 3, [5, 5, 5]),
        ([5, 6, 7, -(2**62)], [0, 0, 0, 1], [5, 6, 7, 7]),
    ],
)
def test_times_never_fall(pts, clocks, times):
    got = play_times(pts, clocks, unit_s=0.5, fps=2.0)

    assert (got.times_s * 2).tolist() == pytest.approx(list(times))


def test_without_timestamps_and_a_rate_times_are_unknown():
    assert play_times([None, None], [0, 0], unit_s=0.5, fps=0.0).times_s is None
    assert play_times([], [], unit_s=0.5, fps=2.0).times_s.tolist() == []


def clocks_of(packets, frames):
    reader = ClockReader()
    for pts, is_keyframe in packets:
        reader.add(pts, is_keyframe=is_keyframe)
    return [reader.clock_of(pts) for pts in frames]


def test_a_clock_is_set_back_at_a_keyframe_or_by_more_than_frames_are_reordered():
    recording = [(pts, pts in {0, 10}) for pts in (0, 4, 2, 1, 3, 10, 8, 9, 14, 12)]
    late = [(pts, pts == 0) for pts in range(20)]

    assert clocks_of(recording, range(15)) == [0] * 15
    assert clocks_of(recording * 2, [0, 1, 2, 3, 4, 8, 9, 10, 12, 14, 0, 1]) == [0] * 10 + [1] * 2
    assert clocks_of([*late, (2, False), (3, False)], [*range(20), 2, 3])[-3:] == [0, 1, 1]
    assert clocks_of([(0, True), (40, True), (39, True), (80, True)], [0, 40, 39, 80]) == [0] * 4
    assert clocks_of([(0, True), (None, False), (2, False)], [0, None, 2]) == [0] * 3


@pytest.mark.parametrize(
    ("pts", "keys", "message"),
    [
        ([0, 1, 1], [0], "share a PTS"),
        ([1, 0, 2], [0], "frames precede the first keyframe"),
        ([0, 1, 2], [1], "frames precede the first keyframe"),
        ([0, 3, 2], [0, 2], "timestamps jump back"),
        ([0, *range(20, 37), 5], [0], "timestamps jump back"),
        ([0, 10, 5, 12], [0, 2], "timestamps jump back"),
    ],
)
def test_packets_that_do_not_determine_the_order_are_refused(pts, keys, message):
    pts = np.array(pts)

    with pytest.raises(FallbackRequired, match=message):
        output_order(pts, np.isin(np.arange(len(pts)), keys), np.ones(len(pts), np.bool_))


def test_as_many_frames_as_a_decoder_reorders_may_be_decoded_before_one_that_is_shown_earlier():
    pts = np.array([0, *range(20, 36), 5])
    is_keyframe = np.arange(len(pts)) == 0

    assert output_order(pts, is_keyframe, np.ones(len(pts), np.bool_)).tolist() == [0, 17, *range(1, 17)]
    assert clocks_of([(each, each == 0) for each in pts.tolist()], pts.tolist()) == [0] * len(pts)


def test_the_order_is_that_of_the_timestamps_of_what_is_shown():
    is_shown = np.array([True, True, True, False, True])

    assert output_order(np.array([0, 3, 1, 2, 5]), np.arange(5) == 0, is_shown).tolist() == [0, 2, 1, 4]
