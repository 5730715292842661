"""A damaged video shows the same pixels whatever is asked of it: those of a linear decode.

FFmpeg conceals damage with what the memory of released frames held, which depends on the frames that are still held.
"""

from collections import defaultdict
from random import Random

import av
import numpy as np
import pytest

from benchmarks.media.matrix import Cell
from reelabel.errors import VideoError
from reelabel.extract import extract_local
from reelabel.sampled_frames import NO_PTS
from reelabel.sampling.options import Sampling
from reelabel.segment import Segment

NAMES = ["ivf/vp8", "webm/vp8", "webm/vp9", "ps/mpeg1", "ts/mpeg2", "avi/mjpeg", "mp4/mjpeg"]
REQUESTS = [
    *({"sampling": Sampling(sampler="uniform", num_frames=num_frames)} for num_frames in (2, 3, 8, 30)),
    {"sampling": Sampling(sampler="uniform", num_frames=4), "segment": Segment(0.3, 0.9)},
    {"sampling": Sampling(num_frames=3)},
    {"sampling": Sampling(), "every": True},
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
    with av.open(str(path)) as container:
        [stream] = container.streams.video
        stream.codec_context.thread_type = "NONE"
        for packet in container.demux(stream):
            try:
                frames = stream.codec_context.decode(packet if packet.size else None)
            except av.error.FFmpegError:
                continue
            for frame in frames:
                pixels[NO_PTS if frame.pts is None else frame.pts].append(frame.to_ndarray(format="rgb24"))
    return pixels


def require_same_pixels(path):
    try:
        linear = decode_past_errors(path)
    except av.error.FFmpegError:
        return  # the container is not readable
    for request in REQUESTS:
        try:
            got = extract_local(path, native=True, **request)
        except VideoError:
            continue
        for pts, image in zip(got.pts.tolist(), got.images, strict=True):
            assert any(np.array_equal(image, decoded) for decoded in linear[pts]), f"{request}, frame at {pts}"


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
