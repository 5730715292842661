"""The frames and times of a video that are passed to vLLM."""

from fractions import Fraction
from types import SimpleNamespace

import av
import numpy as np
import pytest

from reelabel.extract import extract_local
from reelabel.integrations.vllm.video_input import adapt_video, drop_repeated_frames, video_input
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.segment import Segment
from tests.clips import make_clip
from tests.reelabel.frames.conftest import keyframes

__all__ = ["keyframes", "make_clip"]


@pytest.fixture
def make_uneven_clip(tmp_path):
    """Make a clip whose frames are shown at given times in seconds, every fifth one a keyframe."""

    def make(times_s, name):
        path = tmp_path / name
        with av.open(str(path), "w") as container:
            stream = container.add_stream("libx264", rate=25, options={"g": "5", "sc_threshold": "0", "bf": "0"})
            stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
            stream.codec_context.time_base = Fraction(1, 1000)
            for number, time_s in enumerate(times_s):
                frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), number * 5 % 256, np.uint8), format="rgb24")
                frame.pts, frame.time_base = round(time_s * 1000), Fraction(1, 1000)
                container.mux(stream.encode(frame))
            container.mux(stream.encode())
        return path

    return make


def test_frames_come_in_the_order_shown_with_indices_that_encode_their_times(make_clip):
    frames = extract_local(make_clip(), sampling=Sampling(num_frames=6), limits=Limits())

    pixels, metadata = video_input(frames)

    np.testing.assert_array_equal(pixels, frames.unique[frames.shown])
    assert metadata["frames_indices"] == [0, 0, 12, 24, 24, 36]
    assert (metadata["fps"], metadata["total_num_frames"], metadata["duration"]) == (12, 48, 4)
    assert metadata["do_sample_frames"] is False


def test_a_slice_of_frames_has_the_times_of_its_own_frames(make_clip):
    frames = extract_local(make_clip(), sampling=Sampling(num_frames=6), limits=Limits())

    pixels, metadata = video_input(frames[2:4])

    np.testing.assert_array_equal(pixels, frames.images[2:4])
    assert metadata["frames_indices"] == [12, 24]
    assert metadata["total_num_frames"] == 48
    with pytest.raises(ValueError, match=r"^There is no frame to show\.$"):
        video_input(frames[:0])


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mkv", "clip.ts", "clip.avi", "clip.flv"])
@pytest.mark.parametrize("sampling", [Sampling(num_frames=8), Sampling(sampler="uniform", num_frames=20)])
def test_every_time_is_true_with_a_variable_frame_rate(make_uneven_clip, name, sampling):
    times_s = np.cumsum([0, *[0.04] * 20, *[0.57] * 20, *[0.013] * 8])
    frames = extract_local(make_uneven_clip(times_s, name), sampling=sampling, limits=Limits())

    _, metadata = video_input(frames)

    stated_s = np.array(metadata["frames_indices"]) / metadata["fps"]
    true_s = frames.selection.time_s[frames.shown] - frames.selection.time_s[0]
    np.testing.assert_allclose(stated_s, true_s, rtol=0, atol=0.004)
    assert len(set(metadata["frames_indices"])) == len(set(frames.shown.tolist()))
    assert metadata["frames_indices"][-1] < metadata["total_num_frames"]
    assert metadata["duration"] == pytest.approx(times_s[-1], abs=0.6)


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mkv", "clip.ts"])
def test_times_count_from_the_first_frame_wherever_the_streams_clock_starts(make_uneven_clip, name):
    times_s = 7 + np.arange(50) / 25
    frames = extract_local(make_uneven_clip(times_s, name), sampling=Sampling(num_frames=4), limits=Limits())

    _, metadata = video_input(frames)

    assert metadata["fps"] == 25
    assert metadata["frames_indices"] == [0, 15, 30, 45]


@pytest.mark.parametrize(("segment", "length"), [((1, None), 36), ((None, 2.9), 35), ((1, 2.9), 23)])
def test_the_length_of_a_segment_is_its_own(make_clip, segment, length):
    uniform = Sampling(sampler="uniform", num_frames=4)
    frames = extract_local(make_clip(), sampling=uniform, limits=Limits(), segment=Segment(*segment))

    assert video_input(frames)[1]["total_num_frames"] == length


def test_without_a_frame_rate_indices_are_milliseconds(keyframes):
    _, metadata = video_input(keyframes.with_selection(fps=0.0, duration_s=0.0, total_frames=None))

    assert (metadata["fps"], metadata["frames_indices"]) == (1000, [0, 0, 1000, 2000])
    assert metadata["total_num_frames"] == 2001


@pytest.mark.parametrize("sampling", [Sampling(num_frames=4), Sampling(sampler="uniform", num_frames=4)])
def test_the_length_of_a_file_that_is_cut_short_is_that_of_the_frames_that_decode(make_clip, tmp_path, sampling):
    data = make_clip("clip.avi", frames=100, gop=10).read_bytes()
    cut = tmp_path / "cut.avi"
    cut.write_bytes(data[: len(data) * 3 // 5])
    frames = extract_local(cut, sampling=sampling, limits=Limits())

    _, metadata = video_input(frames)

    assert frames.selection.duration_s * frames.selection.fps == pytest.approx(frames.selection.total_frames)
    assert metadata["total_num_frames"] == frames.selection.total_frames < 100


@pytest.mark.parametrize(
    ("model", "shown", "wanted"),
    [
        pytest.param({"model_type": "qwen3_vl"}, [0, 0, 12], [0, 0, 12], id="repeats are kept"),
        pytest.param({"model_type": "glm4v"}, [0, 0, 12], [0, 12], id="of which GLM has none"),
        pytest.param({"model_type": "glm46v", "patch": 2}, [12, 12], [12, 12], id="a frame alone is doubled for pairs"),
        pytest.param({"model_type": "qwen3_vl", "patch": 2}, [7], [7, 7], id="of any model"),
        pytest.param({"model_type": "glm4v", "patch": 1}, [7, 7], [7], id="but not where frames are taken one by one"),
        pytest.param({"model_type": "qwen3_vl", "patch": 2}, [7, 9], [7, 9], id="nor where there are two"),
    ],
)
def test_a_video_is_adapted_to_what_a_models_processor_expects(model, shown, wanted):
    vision = SimpleNamespace(temporal_patch_size=model["patch"]) if "patch" in model else None
    config = SimpleNamespace(model_type=model["model_type"], vision_config=vision)
    pixels = np.array(shown, np.uint8).reshape(-1, 1, 1, 1).repeat(3, -1)

    got, metadata = adapt_video((pixels, {"fps": 12.0, "frames_indices": shown}), config)

    assert metadata == {"fps": 12.0, "frames_indices": wanted}
    assert got[:, 0, 0, 0].tolist() == wanted


def test_frames_that_are_shown_once_are_left_as_they_are():
    video = np.zeros((2, 1, 1, 3), np.uint8), {"frames_indices": [3, 9]}

    assert drop_repeated_frames(video) is video
