"""Videos as objects: frames by position, by time, by a sampler, and all of them."""

import pickle
import random
import struct
import sys
import threading

import av
import numpy as np
import pytest

import reelabel
from benchmarks.media.matrix import Cell
from tests.clips import cut_start
from tests.reelabel.linear_decode import decode_all, require_frames

PLAIN = "mp4/h264 fmp4/h264 mov/h264 mkv/h264 webm/vp9 avi/mpeg4 flv/h264 ts/h264 ps/mpeg2 ogg/vp8 asf/wmv2 mxf/mpeg2"
STRUCTURED = (
    "mp4/hevc/open-gop-hevc mp4/h264/b-frames-h264 mp4/h264/edit-trims mp4/h264/rotated-by-90 "
    "mp4/h264/rotated-and-mirrored mkv/h264/cut-in mp4/h264/variable-rate mp4/h264/one-keyframe ts/h264/start-later"
)
CELLS = [Cell(*name.split("/")) for name in f"{PLAIN} {STRUCTURED}".split()]
each_cell = pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)


@each_cell
def test_frames_are_those_of_a_linear_decode(cell):
    data = cell.make()

    with reelabel.open(data) as video:
        require_frames(video, decode_all(data))


@pytest.mark.parametrize("name", ["mp4/h264/b-frames-h264", "ts/h264", "mp4/h264/rotated-by-90"])
def test_a_pool_decodes_the_same_frames(pool, name):
    data = Cell(*name.split("/")).make()

    with pool.open(data) as video:
        require_frames(video, decode_all(data))


@pytest.fixture
def clip(make_clip):
    return make_clip(b_frames=2, frames=60)


def test_only_the_groups_of_pictures_that_hold_them_are_decoded(make_clip):
    with reelabel.open(make_clip(frames=240, gop=12)) as video:
        got = video.frames([230, 5, 5])

    assert got.index.tolist() == [230, 5, 5]
    assert got.cost.frames_decoded <= 24
    assert len(got.unique) == 2


def test_an_index_tells_where_frames_are_without_decoding(clip):
    with reelabel.open(clip) as video:
        index = video.index()

    with av.open(str(clip)) as container:
        stream = container.streams.video[0]
        rows = sorted(
            (each.pts, each.is_keyframe, each.pos, each.size) for each in container.demux(stream) if each.size
        )
        times_s = [float((row[0] - rows[0][0]) * stream.time_base) for row in rows]
    assert [*zip(index.pts, index.is_keyframe, index.pos, index.size, strict=True)] == rows
    assert index.time_s == pytest.approx(times_s)
    assert repr(index) == "FrameIndex(60 frames, 5 keyframes, 4.917 s, listed='index')"


def test_info_says_how_a_video_is_shown(make_clip):
    with reelabel.open(make_clip(size=(96, 64), rotation_deg=90)) as video:
        info = video.info

        assert (info.container, info.codec, info.width, info.height) == ("mp4", "h264", 64, 96)
        assert (info.fps, info.duration_s, info.rotation_deg) == (12, 4, 90)
        assert video[0].shape == (96, 64, 3)


def test_a_codec_has_its_own_name_whatever_decodes_it(make_clip):
    with reelabel.open(make_clip(codec="libsvtav1", frames=4)) as video:
        assert video.info.codec == "av1"


def test_stored_frames_are_not_turned(make_clip, decode_linearly):
    clip = make_clip(size=(96, 64), rotation_deg=90)

    with reelabel.open(clip, as_stored=True) as video:
        assert np.array_equal(video[7], decode_linearly(clip)[7][2])


def test_a_frame_is_shown_until_the_next_one(clip):
    with reelabel.open(clip) as video:
        assert video.frames_at([0.5, 0.5 + 0.08, 0.5 + 0.09, 0]).index.tolist() == [6, 6, 7, 0]
        assert video.frames_at([]).images.shape == (0, 48, 64, 3)
        assert video.frames_at([5, 0]).index.tolist() == [59, 0]  # until the end


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda video: video[60], "There is no frame 60: the video has 60, numbered from 0 to 59."),
        (lambda video: video[-61], "There is no frame -61: the video has 60, numbered from 0 to 59."),
        (lambda video: video[2**64], f"There is no frame {2**64}: the video has 60, numbered from 0 to 59."),
        (lambda video: video.frames_at([7]), "No frame is shown at 7 s: the video ends at 5 s."),
        (lambda video: video.frames_at([-1]), "No frame is shown at -1 s: times count from the first frame, at 0 s."),
        (lambda video: video.frames_at([1, 5.01]), "No frame is shown at 5.01 s: the video ends at 5 s."),
        (
            lambda video: video.frames_at([np.inf, 1]),
            "No frame is shown at inf s: times count from the first frame, at 0 s.",
        ),
    ],
)
def test_a_frame_that_is_not_there_is_an_index_error_in_a_sentence(clip, ask, message):
    with reelabel.open(clip) as video, pytest.raises(IndexError) as raised:
        ask(video)

    assert str(raised.value) == message
    assert isinstance(raised.value, reelabel.ReelabelError)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda video: video.sample(reelabel.Sampling(), num_frames=3), "beside a Sampling: num_frames; put them"),
        (lambda video: video.sample(segment=(3, 2)), "the segment from 3 to 2 s is not valid"),
        (lambda video: video.batches(4, segment=(-1, None)), "the segment from -1 to None s is not valid"),
        (lambda video: video.batches(0), "size is 0; it must be at least 1"),
    ],
)
def test_what_cannot_be_asked_for_is_an_error_of_the_caller(clip, ask, message):
    with reelabel.open(clip) as video, pytest.raises(ValueError, match=message):
        ask(video)


@pytest.mark.parametrize("threads", [0, -1])
def test_a_number_of_threads_that_is_not_valid_is_named(clip, threads):
    with pytest.raises(ValueError, match="threads: must be at least 1") as raised:
        reelabel.open(clip, threads=threads)

    assert isinstance(raised.value, reelabel.ReelabelError)


def test_frames_that_no_index_lists_are_listed_by_their_packets_or_not_at_all(make_clip):
    with reelabel.open(make_clip("clip.ts", b_frames=2)) as video:
        index = video.index()
        assert (len(index), index.listed, int(index.is_keyframe.sum()), len(video)) == (48, "packets", 4, 48)
    with reelabel.open(make_clip("clip.h264")) as video:
        with pytest.raises(reelabel.NoIndexError, match=r"clip\.h264 does not list its frames: a packet has no PTS"):
            video.index()
        assert len(video) == 48


@pytest.mark.parametrize(
    ("name", "method", "note"),
    [("trimmed.mp4", "seek", ""), ("clip.h264", "linear", "the container has no index in its header")],
)
def test_frames_that_were_counted_by_decoding_are_found_as_fast_as_ever(make_clip, tmp_path, name, method, note):
    path = cut_start(make_clip(), tmp_path / name, frames=5) if name == "trimmed.mp4" else make_clip(name)
    want = decode_all(path.read_bytes())

    with reelabel.open(path) as video:
        assert len(video) == len(want)
        frames = video.frames([30, 20])
        assert (frames.method, frames.note) == (method, note)
        assert np.array_equal(frames.images, [want[30], want[20]])
        require_frames(video, want)


def test_slices_are_those_of_a_list(clip):
    want = decode_all(clip.read_bytes())

    with reelabel.open(clip) as video:
        for key in (slice(-5, None), slice(None, None, -20), slice(50, 1000, 5), slice(5, 5), slice(100, 200)):
            assert [*map(np.ndarray.tolist, video[key])] == [*map(np.ndarray.tolist, want[key])]
        assert video[5:5].shape == (0, 48, 64, 3)


@pytest.mark.parametrize("position", [np.int64(5), np.uint8(5), np.array(5)])
def test_a_position_is_a_whole_number_of_any_kind(clip, position):
    with reelabel.open(clip) as video:
        assert np.array_equal(video[position], video[5])


def test_a_sampler_chooses_from_a_segment_at_native_size_or_scaled(clip):
    with reelabel.open(clip) as video:
        frames = video.sample("uniform", num_frames=4, segment=(1.5, 4))
        scaled = video.sample("keyframes", num_frames=2, max_pixels=784, size_multiple_px=28)

    assert repr(frames) == "Frames(4 x 48x64, 1.5-4 s, sampler='uniform', method='seek')"
    assert frames.images.shape == (4, 48, 64, 3)
    assert scaled.images.shape == (2, 28, 28, 3)
    assert scaled.is_keyframe.all()


def test_times_count_from_the_first_frame_whatever_the_clock_of_the_file():
    with reelabel.open(Cell("ts", "h264", "start-later").make()) as video:
        assert video.index().time_s[0] == 0
        assert video.sample("uniform", num_frames=2).time_s[0] == 0
        assert video.frames([0]).time_s.tolist() == [0]


def test_frames_are_a_sequence(clip):
    frames = reelabel.extract_frames(clip, "uniform", num_frames=6)

    assert len(frames) == 6
    assert np.array_equal(frames[2], frames.images[2])
    assert np.array_equal([*frames][-1], frames[-1])
    assert frames[1:3].time_s.tolist() == frames.time_s[1:3].tolist()
    assert np.array_equal(frames[1:3].images, frames.images[1:3])
    assert len(frames[3:3]) == 0
    assert len(frames.to_pil()) == 6
    assert frames.to_pil()[0].size == (64, 48)


def test_a_batch_at_a_time_of_a_segment(clip):
    want = decode_all(clip.read_bytes())

    with reelabel.open(clip) as video:
        parts = list(video.batches(10, segment=(1, 3)))

    assert [len(part) for part in parts] == [10, 10, 5]
    assert np.array_equal(np.concatenate([part.images for part in parts]), want[12:37])


@pytest.mark.parametrize("name", ["mp4/h264", "mkv/h264"])
def test_batches_decode_a_video_once(name):
    data = Cell(*name.split("/")).make()

    with reelabel.open(data) as video:
        parts = list(video.batches(7))

    assert sum(part.cost.frames_decoded for part in parts) == sum(map(len, parts))


def test_a_batch_may_be_larger_than_any_video(clip):
    with reelabel.open(clip) as video:
        assert [len(part) for part in video.batches(sys.maxsize)] == [60]


@pytest.mark.parametrize("mask", [[True, False], np.array([True, False]), True], ids=["list", "array", "one"])
def test_a_mask_is_not_taken_for_positions(clip, mask):
    with reelabel.open(clip) as video, pytest.raises(TypeError, match="flatnonzero"):
        _ = video[mask]


def test_iterating_yields_every_frame(clip):
    with reelabel.open(clip) as video:
        assert np.array_equal([*video], decode_all(clip.read_bytes()))


def test_a_loop_that_occupies_all_processes_says_so_instead_of_waiting_for_itself(clip, pool):
    with pool.open(clip) as video:
        for _ in video.batches(10):
            with pytest.raises(reelabel.ReelabelError, match="occupy all 1 decoding processes"):
                _ = video[3]
            break
        assert video[3].shape == (48, 64, 3)


def test_a_loop_that_another_thread_ends_occupies_no_process(clip, pool):
    with pool.open(clip) as video:
        loop = video.batches(10)
        next(loop)

        ender = threading.Thread(target=loop.close)
        ender.start()
        ender.join()

        assert video[3].shape == (48, 64, 3)


def test_a_closed_video_says_so(clip):
    with reelabel.open(clip) as video:
        pass

    assert repr(video).endswith(", closed)")
    with pytest.raises(ValueError, match="closed"):
        _ = video[0]


def test_a_video_cannot_be_pickled(clip):
    with reelabel.open(clip) as video, pytest.raises(TypeError, match="pass its path"):
        pickle.dumps(video)


@pytest.mark.parametrize(
    "name", ["ts/h264/joined", "mkv/h264/joined", "avi/mpeg4/no-index", "mp4/h264/one-keyframe", "flv/h264/no-index"]
)
def test_odd_files_yield_the_frames_of_a_linear_decode(name):
    data = Cell(*name.split("/")).make()
    want = decode_all(data)

    with reelabel.open(data) as video:
        assert len(video) == len(want)
        assert np.array_equal(video[[-1, 0, 5]], [want[-1], want[0], want[5]])
        assert np.array_equal(np.concatenate([part.images for part in video.batches(16)]), want)


def test_every_instant_before_the_last_frame_shows_one_whatever_duration_the_header_states():
    data = bytearray(Cell("mp4", "h264", "variable-rate").make())
    struct.pack_into(">I", data, data.index(b"mdhd") + 20, 1)  # the duration, in the units of its time scale

    with reelabel.open(bytes(data)) as video:
        times_s = video.frames(range(len(video))).time_s
        between_s = (times_s[1:] + times_s[:-1]) / 2
        for number, instant_s in enumerate(between_s):
            assert video.frames_at([instant_s, 0]).index.tolist() == [number, 0]
        with pytest.raises(reelabel.NoSuchFrameError):
            video.frames_at([times_s[-1] + 10])


def test_a_video_of_one_frame(make_clip):
    clip = make_clip(frames=1)

    with reelabel.open(clip) as video:
        assert (len(video), len(video.frames_at([0])), video[:].shape) == (1, 1, (1, 48, 64, 3))
        assert [len(part) for part in video.batches(4)] == [1]


def test_a_video_without_frames_is_an_error(make_clip):
    data = make_clip("clip.mkv").read_bytes()
    cluster = data.index(b"\x1f\x43\xb6\x75")

    with reelabel.open(data[:cluster]) as video:
        for ask in (len, lambda video: video[0], lambda video: list(video.batches(4)), lambda video: video.info):
            with pytest.raises(reelabel.VideoError):
                ask(video)


def test_a_damaged_header_that_states_absurd_sizes_is_an_error_of_the_video(make_clip):
    data = bytearray(make_clip().read_bytes())
    struct.pack_into(">I", data, data.index(b"stts") + 8, 2**32 - 1)

    with reelabel.open(bytes(data)) as video:
        for ask in (len, lambda video: video[0], lambda video: list(video.batches(4)), lambda video: video.info):
            with pytest.raises(reelabel.VideoError):
                ask(video)


@pytest.mark.parametrize("name", ["mp4/h264", "mkv/h264", "avi/mpeg4", "ts/h264"])
def test_mutated_files_raise_errors_of_the_library_alone(name):
    whole, chance = Cell(*name.split("/")).make(), random.Random(name)
    for _ in range(25):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 4, 40))):
            data[chance.randrange(chance.choice((4096, len(data))) % len(data) or 1)] = chance.randrange(256)
        try:
            with reelabel.open(bytes(data)) as video:
                _ = video[3]
                _ = video.frames_at([0.5])
                _ = video.sample("keyframes", num_frames=2)
                assert sum(len(part) for part in video.batches(64)) > 0
                _ = len(video), video.info, video.index()
        except reelabel.ReelabelError as error:
            assert str(error).endswith(".")  # noqa: PT017
