"""Files with several pictures in them: the one that players show, and files that have been joined."""

from fractions import Fraction

import av
import numpy as np
import pytest
from av.stream import Disposition

from benchmarks.media.matrix import Cell
from reelabel.extract import extract_local
from reelabel.sampling.options import Sampling
from tests.clips import own_scheduling

NONE, DEFAULT = Disposition(0), Disposition.default
SIGNED = Disposition.default | Disposition.visual_impaired
# Of a small stream, which comes first, and of a larger one: how many frames, and what the file says of them.
STREAMS = {
    "no difference": ((12, DEFAULT), (12, DEFAULT), ".mp4", "small"),
    "the second is the default": ((12, NONE), (12, DEFAULT), ".mp4", "large"),
    "the second is the default, in Matroska": ((12, NONE), (12, DEFAULT), ".mkv", "large"),
    "the first is the default": ((12, DEFAULT), (12, NONE), ".mov", "small"),
    "a single picture first": ((1, DEFAULT), (12, DEFAULT), ".mp4", "large"),
    "a single picture first, in Matroska": ((1, DEFAULT), (12, DEFAULT), ".mkv", "large"),
    "with an interpreter first": ((12, SIGNED), (12, DEFAULT), ".mp4", "large"),
}
SIZES = {"small": (32, 32), "large": (64, 48)}


def write(path, streams):
    with own_scheduling(), av.open(str(path), "w") as container:
        written = []
        for (frames, disposition), size in zip(streams, SIZES.values(), strict=True):
            stream = container.add_stream("libx264", rate=12, options={"x264-params": "keyint=4:log-level=none"})
            stream.width, stream.height = size
            stream.codec_context.thread_count = 1
            stream.disposition = disposition
            written.append((stream, frames))
        for stream, frames in written:
            for number in range(frames):
                pixels = np.full((stream.height, stream.width, 3), number * 20, np.uint8)
                frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
                frame.pts, frame.time_base = number, Fraction(1, 12)
                container.mux(stream.encode(frame))
            container.mux(stream.encode())


@pytest.mark.parametrize("sampling", [Sampling(num_frames=2), Sampling(sampler="uniform", num_frames=3)])
@pytest.mark.parametrize("name", STREAMS)
def test_of_several_video_streams_the_one_is_shown_that_ffmpegs_tools_show(tmp_path, name, sampling):
    *streams, suffix, shown = STREAMS[name]
    path = tmp_path / f"clip{suffix}"
    write(path, streams)
    with av.open(str(path)) as container:
        best = container.streams.best("video")
        assert (best.width, best.height) == SIZES[shown]

    got = extract_local(path, sampling=sampling)

    assert (got.selection.native_width_px, got.selection.native_height_px) == SIZES[shown]
    assert got.method != "linear"


@pytest.mark.parametrize("cell", [Cell("mkv", "h264"), Cell("webm", "vp9", "cues-in-front")], ids=str)
@pytest.mark.parametrize("sampling", [Sampling(num_frames=8), Sampling(sampler="uniform", num_frames=80)])
def test_matroska_files_that_are_joined_are_shown_to_their_end(tmp_path, cell, sampling):
    path = tmp_path / "clip.mkv"
    path.write_bytes(2 * cell.make())

    got = extract_local(path, sampling=sampling, as_stored=True)

    assert (got.selection.total_frames, got.selection.keyframes_in_file) == (80, 8)
    assert sorted(got.selection.frame_index) == (
        [0, 10, 20, 30, 40, 50, 60, 70] if len(got.unique) == 8 else [*range(80)]
    )
