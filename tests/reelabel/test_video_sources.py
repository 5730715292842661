"""Videos as objects of every kind of source: local, in memory, on S3 and on web servers."""

import gc
import gzip
import io
import mmap
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import reelabel
from reelabel.options import WebOptions
from tests.clips import LONG
from tests.open_descriptors import open_descriptors
from tests.reelabel.linear_decode import decode_all, require_frames
from tests.reelabel.sources.web_server import Page, serving


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


def mapped(path):
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


LOCAL = {
    "path": Path,
    "text": str,
    "uri": lambda path: path.as_uri(),
    "bytes": lambda path: path.read_bytes(),
    "bytearray": lambda path: bytearray(path.read_bytes()),
    "bytes in memory": lambda path: io.BytesIO(path.read_bytes()),
    "file": lambda path: path.open("rb"),
    "file mapped into memory": mapped,
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


def test_a_file_object_stays_where_it_is_and_open(clip):
    with clip.open("rb") as file:
        file.seek(17)
        with reelabel.open(file) as video:
            assert video[0].shape == (48, 64, 3)
        assert file.tell() == 17


@pytest.mark.parametrize("kind", ["path", "bytes", "file", "uri"])
def test_a_video_that_is_not_closed_leaves_nothing_open(clip, kind):
    gc.collect()
    before = len(open_descriptors())
    for _ in range(3):
        _ = reelabel.open(LOCAL[kind](clip))[0]

    assert len(open_descriptors()) <= before


_WITH_MODULES_THAT_STAY = """
import ctypes, sys, reelabel
videos = reelabel.open(sys.argv[1]), reelabel.open("file://" + sys.argv[1])
for module in [*sys.modules.values()]:  # as an extension such as torch makes them
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(module))
"""


def test_a_video_that_is_not_closed_ends_with_the_interpreter_in_silence(clip):
    command = [sys.executable, "-c", _WITH_MODULES_THAT_STAY, clip]

    assert subprocess.run(command, capture_output=True, check=True).stderr == b""


def test_a_pipe_is_refused_in_a_sentence(clip):
    with subprocess.Popen(["cat", clip], stdout=subprocess.PIPE) as process:
        with pytest.raises(TypeError, match="The file is not seekable, such as a pipe"):
            reelabel.open(process.stdout)
        process.stdout.read()


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
def test_anything_but_a_video_is_refused_in_a_sentence(source, kind, message):
    with pytest.raises(kind, match=message), reelabel.open(source) as video:
        _ = video[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limits": None}, "limits must be reelabel.Limits, not NoneType"),
        ({"limits": {}}, "limits must be reelabel.Limits, not dict"),
        ({"pool": 1}, "pool must be a reelabel.DecodePool, not int"),
        ({"pool": 0}, "pool must be a reelabel.DecodePool, not int"),
        ({"store": "s3://bucket"}, "store must be a reelabel.ObjectStore, not str"),
    ],
    ids=str,
)
def test_an_option_of_another_type_is_no_fault_of_the_video(clip, options, message):
    with pytest.raises(TypeError, match=message):
        reelabel.extract_frames(clip, **options)


def test_an_empty_path_is_not_the_working_folder():
    with pytest.raises(reelabel.VideoError, match="path of the video is empty"):
        reelabel.open("")


@pytest.mark.parametrize("size_bytes", [len, None, 4.5], ids=["a method", "None", "a fraction"])
def test_a_source_whose_size_is_no_number_is_an_error_of_the_caller(size_bytes):
    source = Remote(b"video")
    source.size_bytes = size_bytes

    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        reelabel.open(source)


def test_what_a_source_raises_is_raised(clip):
    class Lost(Remote):
        def read(self, _start, _size):
            raise ConnectionError("the cable is cut")

    with reelabel.open(Lost(clip.read_bytes())) as video, pytest.raises(ConnectionError, match="cable"):
        _ = video[0]
