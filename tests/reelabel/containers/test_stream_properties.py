"""Frames that exceed the size limit are refused wherever they are in a stream."""

from dataclasses import replace

import pytest

from benchmarks.media.matrix import Cell
from benchmarks.media.recipe import make_clip
from reelabel.errors import VideoTooLargeError
from reelabel.extract import extract_local
from reelabel.options import Limits
from reelabel.sampling.options import Sampling

# Of 96x64 at first, and then of 512x384.
LIMITS = Limits(max_frame_pixels=100_000)
STREAMS = ["ts/h264", "ts/hevc", "ts/mpeg2", "ps/mpeg2", "raw/mpeg4", "raw/mjpeg", "raw/av1", "ogg/vp8"]


@pytest.mark.parametrize("sampling", [Sampling(num_frames=4), Sampling(sampler="fps")], ids=lambda value: value.sampler)
@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_whose_frames_grow_past_the_limit_is_refused(name, sampling, tmp_path):
    recipe = Cell(*name.split("/")).recipe
    path = tmp_path / "grows"
    path.write_bytes(make_clip(recipe) + make_clip(replace(recipe, width_px=512, height_px=384, frames=12)))

    with pytest.raises(VideoTooLargeError, match="512x384"):
        extract_local(path, sampling=sampling, limits=LIMITS)


@pytest.mark.parametrize("name", ["mp4/h264", "ts/hevc", "mkv/vp9", "avi/mjpeg", "asf/wmv2", "mxf/mpeg2", "rm/rv10"])
def test_a_stream_that_starts_past_the_limit_is_refused(name, tmp_path):
    path = tmp_path / "large"
    path.write_bytes(Cell(*name.split("/")).make())

    with pytest.raises(VideoTooLargeError, match="96x64"):
        extract_local(path, sampling=Sampling(), limits=Limits(max_frame_pixels=96 * 64 - 1))
