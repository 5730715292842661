"""What every frame of a video is, to compare with the frames of a video as an object."""

import io

import av
import numpy as np

from reelabel.decode.render import orientation_of


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
