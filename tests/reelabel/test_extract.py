import av
import numpy as np
import pytest

from reelabel.errors import (
    NoFramesError,
    NoVideoStreamError,
    VideoEmptyError,
    VideoRefusedError,
    VideoTooLargeError,
    VideoUnreadableError,
)
from reelabel.extract import extract_local
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.segment import Segment

LIMITS = Limits()

CONTAINERS = [
    pytest.param("clip.mp4", "libx264", {"b_frames": 0}, "index", id="mp4"),
    pytest.param("clip.mp4", "libx264", {"b_frames": 3}, "index", id="mp4 with b-frames"),
    pytest.param("clip.mov", "libx264", {"b_frames": 2}, "index", id="mov with b-frames"),
    pytest.param("clip.mkv", "libx264", {"b_frames": 2}, "index", id="mkv with b-frames"),
    pytest.param("clip.webm", "libvpx-vp9", {}, "index", id="webm"),
    pytest.param("clip.webm", "libvpx", {}, "index", id="webm with vp8"),
    pytest.param("clip.avi", "mpeg4", {}, "index", id="avi"),
    pytest.param("clip.ts", "libx264", {"b_frames": 2}, "linear", id="mpeg-ts with b-frames"),
    pytest.param("clip.mpg", "mpeg2video", {"b_frames": 2}, "linear", id="mpeg-ps with b-frames"),
    pytest.param("clip.flv", "libx264", {}, "linear", id="flv"),
]


@pytest.mark.parametrize(("name", "codec", "options", "method"), CONTAINERS)
def test_every_frame_equals_that_of_the_linear_decode(make_clip, decode_linearly, name, codec, options, method):
    path = make_clip(name, codec=codec, **options)
    linear = decode_linearly(path)

    got = extract_local(path, sampling=Sampling(num_frames=6), limits=LIMITS, as_stored=True)

    assert got.method == method
    assert len(got.shown) == 6
    for image, pts, index, is_keyframe in zip(
        got.unique, got.selection.pts, got.selection.frame_index, got.selection.is_keyframe, strict=True
    ):
        true_pts, true_flag, true_image = (
            next(frame for frame in linear if frame[0] == pts) if index < 0 else linear[index]
        )
        assert (true_pts if true_pts is not None else -1) == pts
        assert true_flag == is_keyframe
        np.testing.assert_array_equal(image, true_image)
    assert got.selection.keyframes_in_file == sum(flag for _, flag, _ in linear)
    assert got.selection.total_frames in {None, len(linear)}


@pytest.mark.parametrize(("name", "codec", "options", "method"), CONTAINERS)
def test_every_keyframe_is_taken_if_all_are_requested(make_clip, decode_linearly, name, codec, options, method):
    path = make_clip(name, codec=codec, **options)
    expected = [image for _, flag, image in decode_linearly(path) if flag]

    got = extract_local(path, sampling=Sampling(num_frames=-1), limits=LIMITS, as_stored=True)

    np.testing.assert_array_equal(got.unique, np.stack(expected))
    assert got.shown.tolist() == list(range(len(expected)))
    assert got.method == method


def test_two_keyframes_for_sixteen_frames_are_shown_eight_times_each(make_clip):
    path = make_clip(frames=24, gop=12)

    got = extract_local(path, sampling=Sampling(num_frames=16), limits=LIMITS)

    assert len(got.unique) == 2
    assert got.shown.tolist() == [0] * 8 + [1] * 8
    assert got.selection.time_s.tolist() == [0.0, 1.0]


def test_frames_are_scaled_to_the_models_patch_within_its_pixel_limit(make_clip):
    path = make_clip(size=(320, 240))

    got = extract_local(path, sampling=Sampling(max_pixels=28 * 28 * 20, size_multiple_px=28), limits=LIMITS)

    assert got.unique.shape[1:3] == (84, 140)
    assert (got.selection.native_width_px, got.selection.native_height_px) == (320, 240)


def test_a_file_cut_in_the_middle_yields_the_keyframes_before_the_cut(make_clip, decode_linearly):
    path = make_clip("clip.mkv", frames=96)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    linear = {pts: image for pts, _, image in decode_linearly(path)}

    got = extract_local(path, sampling=Sampling(num_frames=4), limits=LIMITS, as_stored=True)

    for pts, image in zip(got.selection.pts.tolist(), got.unique, strict=True):
        np.testing.assert_array_equal(image, linear[pts])


def test_an_empty_file_is_named(tmp_path):
    path = tmp_path / "empty.mp4"
    path.touch()
    with pytest.raises(VideoEmptyError):
        extract_local(path, sampling=Sampling(), limits=LIMITS)


def test_a_text_file_is_not_a_video(tmp_path):
    path = tmp_path / "text.mp4"
    path.write_text("not a video " * 100)
    with pytest.raises(VideoUnreadableError):
        extract_local(path, sampling=Sampling(), limits=LIMITS)


def test_a_file_cut_in_its_header_is_unreadable(make_clip):
    path = make_clip()
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises((VideoUnreadableError, NoFramesError)):
        extract_local(path, sampling=Sampling(), limits=LIMITS)


def test_an_audio_file_has_no_video_stream(tmp_path):
    path = tmp_path / "audio.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=44100)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.rate = 44100
        for packet in [*stream.encode(frame), *stream.encode()]:
            container.mux(packet)
    with pytest.raises(NoVideoStreamError):
        extract_local(path, sampling=Sampling(), limits=LIMITS)


def test_frames_over_the_limit_are_refused_before_decoding(make_clip):
    path = make_clip(size=(320, 240))
    with pytest.raises(VideoTooLargeError, match="320x240"):
        extract_local(path, sampling=Sampling(), limits=Limits(max_frame_pixels=50_000))


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(sampler="uniform")], ids=lambda sampling: sampling.sampler)
def test_a_video_with_too_many_frames_is_refused_if_they_are_counted(make_clip, sampling):
    path = make_clip("clip.avi", codec="mpeg4", frames=48)

    with pytest.raises(VideoTooLargeError, match="has more than 40 frames"):
        extract_local(path, sampling=sampling, limits=Limits(max_frames=40))


def test_a_video_that_claims_to_last_too_long_is_refused(make_clip):
    with pytest.raises(VideoTooLargeError, match=r"4 s, which exceeds extract\.max_duration_s \(3 s\)"):
        extract_local(make_clip(frames=48), sampling=Sampling(), limits=Limits(max_duration_s=3))


def test_an_error_of_ffmpeg_is_one_of_the_video(make_clip):
    data = make_clip().read_bytes()
    count = data.index(b"stts") + len("stts") + 4  # of its entries, for which FFmpeg would need 16 GiB

    with pytest.raises(VideoUnreadableError, match="cannot be decoded"):
        extract_local(data[:count] + b"\x7f\xff\xff\xff" + data[count + 4 :])


@pytest.mark.parametrize("ends", [(-1.0, 2.0), (3.0, 2.0), (float("nan"), 2.0), (0.0, float("inf"))])
def test_a_segment_that_is_not_valid_is_an_error_of_the_caller(make_clip, ends):
    with pytest.raises(ValueError, match=r"the segment from .* is not valid"):
        extract_local(make_clip(), segment=Segment(*ends))


@pytest.mark.parametrize("uri", ["s3://bucket/a.mp4", "https://host/a.mp4?token=secret", "data:video/mp4;base64,AAAA"])
def test_a_uri_is_distinguished_from_a_path(uri):
    with pytest.raises(VideoRefusedError, match="is a URI, but only a path") as raised:
        extract_local(uri)

    assert "secret" not in raised.value.message
