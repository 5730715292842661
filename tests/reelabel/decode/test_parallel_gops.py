"""Several decoders and threads give the frames that one gives, and none outlives an extraction."""

import resource
import threading
from dataclasses import fields

import av
import numpy as np
import pytest

from reelabel.decode import gops
from reelabel.decode.canvas import Canvas
from reelabel.decode.packets import threads_that_fit
from reelabel.decode.render import Renderer
from reelabel.decode.run_decoder import RunDecoder
from reelabel.errors import VideoUnreadableError
from reelabel.extract import extract_local
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.sampling.options import Sampling
from tests.reelabel.decode.nal_units import with_reorder_depth

LIMITS = Limits()
UNIFORM = Sampling(sampler="uniform", num_frames=7)
EVERY_SECOND = Sampling(sampler="uniform", num_frames=24)
EVERY = Sampling(sampler="uniform", num_frames=-1)
CLIPS = [
    pytest.param("clip.mp4", {"b_frames": 3, "x264-params": "b-pyramid=normal"}, id="mp4 with referenced b-frames"),
    pytest.param("clip.mp4", {"b_frames": 2, "x264-params": "open-gop=1"}, id="open gop"),
    pytest.param("clip.mkv", {"b_frames": 3, "x264-params": "open-gop=1:ref=1"}, id="one reference"),
    pytest.param("clip.mp4", {"codec": "libx265", "x265-params": "open-gop=1:bframes=3"}, id="open gop of hevc"),
    pytest.param("clip.mkv", {"codec": "mpeg2video", "b_frames": 2}, id="open gop of mpeg-2"),
    pytest.param("clip.webm", {"codec": "libvpx-vp9"}, id="vp9"),
    pytest.param("clip.mp4", {"codec": "libsvtav1", "preset": "12"}, id="av1"),
    pytest.param("clip.mp4", {"b_frames": 2, "rotation_deg": 90}, id="rotated"),
    pytest.param("clip.mp4", {"b_frames": 2, "gop": 48}, id="a single gop"),
    pytest.param("clip.mp4", {"codec": "libx265", "gop": 48, "x265-params": "bframes=3"}, id="a single gop of hevc"),
    pytest.param("clip.webm", {"codec": "libvpx-vp9", "gop": 48}, id="a single gop of vp9"),
]


@pytest.fixture(autouse=True)
def tiny_pictures_are_shared(monkeypatch):
    monkeypatch.setattr(gops, "LEAST_SHARED_PIXELS", 1)
    monkeypatch.setattr(gops, "LEAST_THREADED_PIXELS", 1)


def facts_of(frames):
    """Return all that is known of frames, but what it took to decode them."""
    costs = {"decode_ms", "frames_decoded"}
    return {"pixels": frames.unique.tobytes()} | {
        field.name: (value.shape, value.tobytes())
        if isinstance(value := getattr(frames.selection, field.name), np.ndarray)
        else value
        for field in fields(frames.selection)
        if field.name not in costs
    }


@pytest.mark.parametrize(("name", "options"), CLIPS)
def test_any_number_of_threads_gives_the_same_frames(make_clip, name, options):
    path = make_clip(name, **options)

    for sampling in (UNIFORM, EVERY_SECOND):
        alone = extract_local(path, sampling=sampling, limits=LIMITS)
        for threads in (2, 3, 8):
            got = extract_local(path, sampling=sampling, limits=LIMITS, threads=threads)
            assert got.method == "seek"
            assert facts_of(got) == facts_of(alone)


@pytest.mark.parametrize("depth", [15, 16])
def test_threads_decode_a_video_that_states_a_deep_reordering(make_clip, tmp_path, depth):
    clip = make_clip(b_frames=3, gop=48, size=(384, 256))
    path = with_reorder_depth(clip, tmp_path / "deep.mkv", depth)
    with av.open(str(path)) as container:
        assert container.streams.video[0].codec_context.reorder_depth == depth

    with DecodePool(processes=1, timeout_s=60, memory_mib=2048, threads=4) as pool:  # FFmpeg would end this process
        got = pool.extract(path, sampling=EVERY, limits=LIMITS)

    np.testing.assert_array_equal(got.unique, extract_local(clip, sampling=EVERY, limits=LIMITS).unique)


def test_no_gop_is_decoded_twice_by_several_decoders(make_clip):
    path = make_clip(frames=96, gop=12, b_frames=2)

    alone, shared = (extract_local(path, sampling=UNIFORM, limits=LIMITS, threads=count) for count in (1, 4))

    assert shared.cost.frames_decoded == alone.cost.frames_decoded


@pytest.mark.parametrize(
    ("sampling", "gop", "decoders", "threads_of_each"),
    [
        (EVERY_SECOND, 12, 4, 1),
        (EVERY_SECOND, 24, 2, 2),
        (EVERY_SECOND, 48, 1, 4),
        pytest.param(EVERY, 24, 2, 2, id="gops that follow each other without a gap"),
        pytest.param(EVERY, 4, 3, 1, id="gops that are too short for a seek of their own"),
    ],
)
def test_threads_are_divided_among_the_gops(make_clip, monkeypatch, sampling, gop, decoders, threads_of_each):
    path, used = make_clip(gop=gop), []
    prepare = RunDecoder.__post_init__
    monkeypatch.setattr(
        RunDecoder,
        "__post_init__",
        lambda decoder: (prepare(decoder), used.append(decoder.stream.codec_context.thread_count))[0],
    )

    extract_local(path, sampling=sampling, limits=LIMITS, threads=4)

    assert used == [threads_of_each] * decoders


def test_long_runs_are_shared_out_before_short_ones(make_clip, monkeypatch):
    path, shared = make_clip(frames=96, gop=24), []
    share = Canvas.share
    monkeypatch.setattr(
        Canvas, "share", lambda canvas, runs, workers: shared.extend(runs) or share(canvas, runs, workers)
    )

    got = extract_local(path, sampling=Sampling(sampler="uniform", num_frames=4), limits=LIMITS, threads=2)

    assert got.selection.frame_index.tolist() == [0, 31, 63, 95]
    assert [info.position for [info] in shared] == [0, 95, 63, 31]


def test_runs_wait_until_the_first_frame_has_settled_size_and_orientation(make_clip, monkeypatch):
    path = make_clip(frames=48, gop=12, rotation_deg=90)
    first_pts = extract_local(path, sampling=UNIFORM, limits=LIMITS).selection.pts[0]
    settled, others_began = [], threading.Event()
    decode = RunDecoder.decode

    def first_run_last(decoder, run):
        if run[0].pts == first_pts:
            others_began.wait()
        for decoded in decode(decoder, run):
            others_began.set()
            yield decoded

    monkeypatch.setattr(RunDecoder, "decode", first_run_last)
    from_frame = Renderer.from_frame
    monkeypatch.setattr(
        Renderer, "from_frame", lambda frame, **named: (settled.append(frame.pts), from_frame(frame, **named))[1]
    )

    extract_local(path, sampling=UNIFORM, limits=LIMITS, threads=2)

    assert settled == [first_pts]


def test_damage_in_any_gop_leads_to_the_linear_decode(make_clip, decode_linearly):
    path = make_clip(frames=48, gop=12, b_frames=2)
    with av.open(str(path)) as container:
        packets = [bytes(packet) for packet in container.demux(video=0) if packet.size]
    damaged = packets[24]  # a keyframe is large enough that flipped bits never decode by chance, on any processor
    data = path.read_bytes()
    path.write_bytes(data.replace(damaged, damaged[:12] + bytes(byte ^ 0xA5 for byte in damaged[12:])))
    shown = {pts: image for pts, _, image in decode_linearly(path)}
    before = threading.active_count()

    got = extract_local(path, sampling=EVERY_SECOND, limits=LIMITS, as_stored=True, threads=3)

    assert got.method == "linear"
    assert got.cost.frames_decoded > 2 * 48
    for image, pts in zip(got.unique, got.selection.pts.tolist(), strict=True):
        np.testing.assert_array_equal(image, shown[pts])
    assert threading.active_count() <= before


def test_no_thread_outlives_frames_that_cannot_be_used(make_clip, monkeypatch):
    path, before = make_clip(frames=96, gop=12), threading.active_count()

    def refuse(*_):
        raise VideoUnreadableError("The frame size changes within the video.")

    monkeypatch.setattr(Renderer, "draw", refuse)
    with pytest.raises(VideoUnreadableError) as raised:
        extract_local(path, sampling=EVERY_SECOND, limits=LIMITS, threads=4)

    assert threading.active_count() <= before, raised.value


def test_one_decoder_goes_on_where_memory_does_not_suffice_for_several(make_clip, monkeypatch):
    path = make_clip(frames=48, gop=12, b_frames=2)
    alone = extract_local(path, sampling=EVERY_SECOND, limits=LIMITS)
    decode = RunDecoder.decode

    def run_out_of_memory(decoder, run):
        for number, decoded in enumerate(decode(decoder, run)):
            if number == 2 and threading.current_thread() is not threading.main_thread():
                raise MemoryError
            yield decoded

    monkeypatch.setattr(RunDecoder, "decode", run_out_of_memory)

    assert facts_of(extract_local(path, sampling=EVERY_SECOND, limits=LIMITS, threads=3)) == facts_of(alone)


def test_threads_leave_room_in_a_limited_address_space(monkeypatch):
    codec = av.CodecContext.create("h264", "r")
    codec.width, codec.height = 1920, 1080

    threads = {}
    for limit_mib in (256, 2048, 4096):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit_mib=limit_mib: (limit_mib * 1024**2, -1))
        threads[limit_mib] = threads_that_fit(8, codec)

    assert threads == {256: 1, 2048: 4, 4096: 8}


@pytest.mark.parametrize(("size", "used"), [((64, 48), [1]), ((320, 180), [1] * 4)])
def test_much_is_shared_and_tiny_pictures_have_one_thread_each(make_clip, monkeypatch, size, used):
    monkeypatch.undo()
    path, threads = make_clip(frames=96, gop=24, size=size), []
    prepare = RunDecoder.__post_init__
    monkeypatch.setattr(
        RunDecoder, "__post_init__", lambda decoder: (prepare(decoder), threads.append(decoder.threads))[0]
    )

    got = extract_local(path, sampling=EVERY, limits=LIMITS, threads=8)

    assert (threads, len(got.selection.pts)) == (used, 96)


@pytest.mark.parametrize("codec", ["libx264", "libx265"])
def test_roughly_decoded_frames_are_nearly_the_same(make_clip, codec):
    path = make_clip(codec=codec, gop=48, b_frames=2)
    exact, rough = (read(path, skip_loop_filter=roughly).unique.astype(int) for roughly in (False, True))

    assert 0 < np.abs(rough - exact).mean() < 3


def read(path, **named):
    return extract_local(path, sampling=EVERY_SECOND, limits=LIMITS, **named)


@pytest.mark.system
@pytest.mark.parametrize("sampling", [EVERY_SECOND, Sampling(num_frames=64)], ids=["dense", "keyframes"])
def test_confined_processes_with_many_threads_and_little_memory_give_the_same_frames(sampling, make_clip):
    clips = [make_clip(f"{gop}.mp4", gop=gop, b_frames=2, size=(640, 360)) for gop in (1, 48)]
    with DecodePool(processes=1, timeout_s=60, memory_mib=512, threads=64) as pool:
        confined = [pool.extract(clip, sampling=sampling, limits=LIMITS) for clip in clips]

    for clip, got in zip(clips, confined, strict=True):
        assert facts_of(got) == facts_of(extract_local(clip, sampling=sampling, limits=LIMITS))
