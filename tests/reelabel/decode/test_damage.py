"""A damaged video shows the same pixels whatever is asked of it: those of a linear decode.

FFmpeg conceals damage with what the memory of released frames held, which depends on the frames that are still held.
"""

import subprocess
import sys
from collections import defaultdict
from random import Random

import av
import numpy as np
import pytest

from benchmarks.media.matrix import Cell
from reelabel.decode import gops
from reelabel.errors import VideoError
from reelabel.extract import extract_local
from reelabel.index import NO_PTS
from reelabel.sampling.options import Sampling
from reelabel.sampling.spec import EVERY
from reelabel.segment import Segment
from tests.reelabel.decode.nal_units import units_of

NAMES = [
    *("mp4/h264/b-frames-h264", "mkv/h264/open-gop-h264", "mov/h264/one-keyframe", "ivf/vp8", "webm/vp8", "webm/vp9"),
    *("mkv/mpeg1", "ps/mpeg1", "mkv/mpeg2/b-frames", "ts/mpeg2", "mp4/mpeg4", "avi/mjpeg", "mp4/mjpeg"),
]
REQUESTS = [
    *({"sampling": Sampling(sampler="uniform", num_frames=num_frames)} for num_frames in (2, 3, 8, 30)),
    {"sampling": Sampling(sampler="uniform", num_frames=4), "segment": Segment(0.3, 0.9)},
    {"sampling": Sampling(num_frames=3)},
    {"sampling": Sampling(num_frames=EVERY)},
]


def damage(name, number):
    """Return a file of which up to three runs of up to 48 bytes are noise, after its header."""
    random, data = Random(f"{name}{number}"), bytearray(Cell(*name.split("/")).make())
    for _ in range(random.randint(1, 3)):
        at, length = random.randrange(len(data) // 8, len(data)), random.randint(1, 48)
        data[at : at + length] = random.randbytes(len(data[at : at + length]))
    return bytes(data)


def decode_past_errors(path):
    """Return the pixels of all frames by their PTS, decoded with PyAV alone."""
    pixels = defaultdict(list)
    with av.open(str(path), metadata_errors="replace") as container:
        [stream] = container.streams.video
        if stream.codec_context is None:  # the damage is in the codec's name
            return pixels
        stream.codec_context.thread_type = "NONE"
        for packet in container.demux(stream):
            try:
                frames = stream.codec_context.decode(packet if packet.size else None)
            except av.error.FFmpegError:
                continue
            for frame in frames:
                pixels[NO_PTS if frame.pts is None else frame.pts].append(frame.to_ndarray(format="rgb24"))
    return pixels


def require_same_pixels(path, requests=REQUESTS):
    try:
        linear = decode_past_errors(path)
    except av.error.FFmpegError:
        return  # the container is not readable
    for request in requests:
        for threads in (1, 4):
            try:
                got = extract_local(path, as_stored=True, threads=threads, **request)
            except VideoError:
                continue
            for pts, image in zip(got.selection.pts.tolist(), got.unique, strict=True):
                is_shown = any(np.array_equal(image, decoded) for decoded in linear[pts])
                assert is_shown, f"{request}, {threads} threads, frame at {pts}"


@pytest.fixture(autouse=True)
def tiny_pictures_are_shared(monkeypatch):
    monkeypatch.setattr(gops, "LEAST_SHARED_PIXELS", 1)
    monkeypatch.setattr(gops, "LEAST_THREADED_PIXELS", 1)


@pytest.mark.parametrize("name", NAMES)
def test_damaged_stretches_show_the_same_whatever_is_asked(tmp_path, name):
    path = tmp_path / "clip"
    for number in (1, 2):
        path.write_bytes(damage(name, number))
        require_same_pixels(path)


@pytest.mark.system
@pytest.mark.parametrize("name", NAMES)
def test_many_damaged_videos_show_the_same_whatever_is_asked(tmp_path, name):
    path = tmp_path / "clip"
    for number in range(3, 37):
        path.write_bytes(damage(name, number))
        require_same_pixels(path)


def test_damage_to_a_picture_that_is_shown_later_shows_in_those_that_depend_on_it(make_clip):
    path = make_clip(b_frames=2, gop=24, frames=24, size=(160, 120), **{"x264-params": "slices=4"})
    whole = path.read_bytes()
    with av.open(str(path)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
    for number, packet in enumerate(packets):
        earlier = [each.pts for each in packets[number:] if each.pts < packet.pts]
        if not number or not earlier:
            continue
        *_, damaged, third, fourth = units_of(bytes(packet))
        end = packet.pos + packet.size - len(third) - len(fourth) - 2 * 4
        noise = Random(1).randbytes(len(damaged) - len(damaged) // 2)
        # FFmpeg reports nothing where noise ends a slice early, and conceals the rest.
        path.write_bytes(whole[: end - len(noise)] + noise + whole[end:])
        segment = Segment(0.0, float(max(earlier) * packet.time_base) + 0.01)
        require_same_pixels(path, [{"sampling": Sampling(sampler="uniform", num_frames=2), "segment": segment}])


_LOG_AND_DECODE = """
import sys, av
from reelabel.decode import gops
from reelabel.extract import extract_local
from reelabel.sampling.options import Sampling
gops.LEAST_SHARED_PIXELS = gops.LEAST_THREADED_PIXELS = 1
av.logging.set_level(av.logging.ERROR)
every = Sampling(sampler="uniform", num_frames=-1)
for path in sys.argv[1:]:
    extract_local(path, sampling=every, threads=4)
"""


def test_threads_end_where_ffmpeg_logs_damage(make_clip):
    path, paths = make_clip(b_frames=2, gop=48, size=(320, 240)), []
    whole = path.read_bytes()
    first, last = whole.index(b"mdat"), whole.index(b"moov") - 4
    for tenths in (1, 4, 7):
        data = bytearray(whole)
        for at in range(first + (last - first) * tenths // 10, last, 50):
            data[at] ^= 0xA5
        paths.append(path.with_name(f"{tenths}.mp4"))
        paths[-1].write_bytes(data)

    subprocess.run([sys.executable, "-c", _LOG_AND_DECODE, *paths], capture_output=True, timeout=300, check=True)
