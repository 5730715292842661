"""Videos as objects: frames by position, by time, by a sampler, and all of them, from every kind of source."""

import gzip
import io
import pickle
import random
import subprocess
import tarfile
import threading
from pathlib import Path

import av
import numpy as np
import pytest

import reelabel
from benchmarks.media.matrix import Cell
from reelabel.decode.render import orientation_of
from reelabel.options import WebOptions
from tests.clips import LONG
from tests.reelabel.sources.web_server import Page, serving

PLAIN = "mp4/h264 fmp4/h264 mov/h264 mkv/h264 webm/vp9 avi/mpeg4 flv/h264 ts/h264 ps/mpeg2 ogg/vp8 asf/wmv2 mxf/mpeg2"
STRUCTURED = (
    "mp4/hevc/open-gop-hevc mp4/h264/b-frames-h264 mp4/h264/edit-trims mp4/h264/rotated-by-90 "
    "mp4/h264/rotated-and-mirrored mkv/h264/cut-in mp4/h264/variable-rate mp4/h264/one-keyframe ts/h264/start-later"
)
CELLS = [Cell(*name.split("/")) for name in f"{PLAIN} {STRUCTURED}".split()]
each_cell = pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)


def decode_all(data):
    """Decode a video with PyAV alone, frame by frame; return its frames, turned as players turn them."""
    with av.open(io.BytesIO(data)) as container:
        container.streams.video[0].codec_context.thread_type = "NONE"
        return [orientation_of(frame).apply(frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]


def require_frames(video, want):
    """Compare a video's frames, asked for in every way, with those of a linear decode."""
    last = len(want) - 1
    some = [last, 1, last // 2, 1]
    assert len(video) == len(want)
    assert np.array_equal(video[some], [want[number] for number in some])
    assert np.array_equal(video[last // 3], want[last // 3])
    assert np.array_equal(video[-2], want[-2])
    assert np.array_equal(video[1:last:5], want[1:last:5])
    parts = list(video.batches(7))
    assert [len(part) for part in parts[:-1]] == [7] * (len(parts) - 1)
    assert np.array_equal(np.concatenate([part.images for part in parts]), want)
    times_s = np.concatenate([part.time_s for part in parts])
    assert times_s[0] == 0
    shown = [last, 0, last // 2]
    assert np.array_equal(video.frames_at(times_s[shown]).images, [want[number] for number in shown])


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


class Remote:
    """A source of byte ranges in memory."""

    def __init__(self, data):
        self.data, self.size_bytes, self.bytes_read = data, len(data), 0
        self.starts = []

    def read(self, start, size):
        self.starts.append(start)
        self.bytes_read += size
        return self.data[start : start + size]


class Unnamed(io.RawIOBase):
    """A seekable file of no descriptor."""

    def __init__(self, data):
        self.inner = io.BytesIO(data)

    def seekable(self):
        return True

    def readable(self):
        return True

    def tell(self):
        return self.inner.tell()

    def seek(self, offset, whence=io.SEEK_SET):
        return self.inner.seek(offset, whence)

    def readinto(self, buffer):
        return self.inner.readinto(buffer)


def in_tar(path):
    archive = path.with_suffix(".tar")
    with tarfile.open(archive, "w") as file:
        file.add(path, "clip.mp4")
    return f"{archive}#clip.mp4"


def in_gzip(path):
    packed = path.with_suffix(".gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    return gzip.open(packed)


def in_open_tar(path):
    archive = in_tar(path).removesuffix("#clip.mp4")
    return tarfile.open(archive).extractfile("clip.mp4")


LOCAL = {
    "path": Path,
    "text": str,
    "uri": lambda path: path.as_uri(),
    "bytes": lambda path: path.read_bytes(),
    "bytearray": lambda path: bytearray(path.read_bytes()),
    "bytes in memory": lambda path: io.BytesIO(path.read_bytes()),
    "file": lambda path: path.open("rb"),
    "file of no descriptor": lambda path: Unnamed(path.read_bytes()),
    "byte source": lambda path: Remote(path.read_bytes()),
    "data uri": lambda path: f"data:video/mp4;base64,{__import__('base64').b64encode(path.read_bytes()).decode()}",
    "member": in_tar,
    "file that unpacks another": in_gzip,
    "file within another": in_open_tar,
}


@pytest.fixture
def clip(make_clip):
    return make_clip(b_frames=2, frames=60)


@pytest.mark.parametrize("is_pooled", [False, True])
@pytest.mark.parametrize("kind", LOCAL)
def test_every_kind_of_source_yields_the_same_frames(clip, pool, kind, is_pooled):
    with reelabel.open(LOCAL[kind](clip), pool=pool if is_pooled else None) as video:
        require_frames(video, decode_all(clip.read_bytes()))


@pytest.fixture(params=[48, 360], ids=["small", "read by ranges"])
def remote_clip(request, make_clip):
    """A clip that is read whole, and one that is not."""
    return make_clip(b_frames=2, frames=120, size=(request.param * 4 // 3, request.param), qp="1", preset="ultrafast")


@pytest.mark.parametrize("is_pooled", [False, True])
def test_a_video_on_s3_yields_the_same_frames(remote_clip, pool, objects, store_settings, is_pooled):
    clip = remote_clip
    uri = f"{store_settings.uri}/clip.mp4"
    objects.replace(uri, clip.read_bytes())

    with reelabel.open(uri, store=objects, pool=pool if is_pooled else None) as video:
        require_frames(video, decode_all(clip.read_bytes()))


@pytest.mark.parametrize("ranges", [True, False])
def test_a_video_on_a_web_server_yields_the_same_frames(remote_clip, ranges):
    clip = remote_clip
    store = reelabel.ObjectStore(web=WebOptions(allow_private=True))

    with serving() as server:
        server.pages["/clip.mp4"] = Page(body=clip.read_bytes(), ranges=ranges)
        with reelabel.open(f"{server.url}/clip.mp4", store=store) as video:
            require_frames(video, decode_all(clip.read_bytes()))


def test_a_few_frames_of_a_remote_video_need_a_part_of_its_bytes(make_clip):
    source = Remote(make_clip(**LONG | {"b_frames": 0, "gop": 12}).read_bytes())

    with reelabel.open(source) as video:
        got = video.frames([100, 30])

    assert got.index.tolist() == [100, 30]
    assert 0 < got.cost.bytes_fetched <= source.bytes_read < source.size_bytes / 3


@pytest.mark.parametrize("keyframes_come_first", [True, False])
def test_the_header_of_a_remote_video_is_read_once_for_keyframes_and_other_frames(make_clip, keyframes_come_first):
    source = Remote(make_clip(**LONG | {"b_frames": 0, "gop": 12}).read_bytes())
    asks = [lambda video: video.sample(num_frames=4), lambda video: video.frames([100, 130])]

    with reelabel.open(source) as video:
        for ask in asks if keyframes_come_first else reversed(asks):
            ask(video)

    assert source.starts.count(0) == 1
    assert source.bytes_read < source.size_bytes


def test_only_the_groups_of_pictures_that_hold_them_are_decoded(make_clip):
    with reelabel.open(make_clip(frames=240, gop=12)) as video:
        got = video.frames([230, 5, 5])

    assert got.index.tolist() == [230, 5, 5]
    assert got.cost.frames_decoded <= 24
    assert len(got.unique) == 2


def test_a_file_object_stays_where_it_is_and_open(clip):
    with clip.open("rb") as file:
        file.seek(17)
        with reelabel.open(file) as video:
            assert video[0].shape == (48, 64, 3)
        assert file.tell() == 17


def test_a_pipe_is_refused_in_a_sentence(clip):
    with subprocess.Popen(["cat", clip], stdout=subprocess.PIPE) as process:
        with pytest.raises(TypeError, match="The file is not seekable, such as a pipe"):
            reelabel.open(process.stdout)
        process.stdout.read()


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


def test_stored_frames_are_not_turned(make_clip, decode_linearly):
    clip = make_clip(size=(96, 64), rotation_deg=90)

    with reelabel.open(clip, as_stored=True) as video:
        assert np.array_equal(video[7], decode_linearly(clip)[7][2])


def test_a_frame_is_shown_until_the_next_one(clip):
    with reelabel.open(clip) as video:
        assert video.frames_at([0.5, 0.5 + 0.08, 0.5 + 0.09, 0]).index.tolist() == [6, 6, 7, 0]
        assert video.frames_at([]).images.shape == (0, 48, 64, 3)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda video: video[60], "There is no frame 60: the video has 60, numbered from 0 to 59."),
        (lambda video: video[-61], "There is no frame -61: the video has 60, numbered from 0 to 59."),
        (lambda video: video.frames_at([7]), "No frame is shown at 7 s: the video ends at 5 s."),
        (lambda video: video.frames_at([-1]), "No frame is shown at -1 s: times count from the first frame, at 0 s."),
    ],
)
def test_a_frame_that_is_not_there_is_an_index_error_in_a_sentence(clip, ask, message):
    with reelabel.open(clip) as video, pytest.raises(IndexError) as caught:
        ask(video)

    assert str(caught.value) == message
    assert isinstance(caught.value, reelabel.ReelabelError)


def test_slices_are_those_of_a_list(clip):
    want = decode_all(clip.read_bytes())

    with reelabel.open(clip) as video:
        for key in (slice(-5, None), slice(None, None, -20), slice(50, 1000, 5), slice(5, 5), slice(100, 200)):
            assert [*map(np.ndarray.tolist, video[key])] == [*map(np.ndarray.tolist, want[key])]
        assert video[5:5].shape == (0, 48, 64, 3)


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
    ("source", "kind", "message"),
    [
        ("/nowhere/clip.mp4", reelabel.VideoError, "no video at /nowhere/clip.mp4"),
        (Path("/nowhere/clip.mp4"), reelabel.VideoError, "no video at /nowhere/clip.mp4"),
        (b"", reelabel.VideoError, "empty"),
        (b"not a video", reelabel.VideoError, "cannot open the video"),
        (3, TypeError, "not int"),
        (io.StringIO("text"), TypeError, "mode 'rb'"),
    ],
)
def test_what_is_no_video_is_refused_in_a_sentence(source, kind, message):
    with pytest.raises(kind, match=message), reelabel.open(source) as video:
        _ = video[0]


def test_what_a_source_raises_is_raised(clip):
    class Lost(Remote):
        def read(self, _start, _size):
            raise ConnectionError("the cable is cut")

    with reelabel.open(Lost(clip.read_bytes())) as video, pytest.raises(ConnectionError, match="cable"):
        _ = video[0]


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
