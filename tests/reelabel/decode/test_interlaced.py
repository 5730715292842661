"""Pictures that are shown as two fields: whether FFmpeg scales their chroma by fields may depend on earlier ones."""

import re
from fractions import Fraction

import av
import numpy as np
import pytest

import reelabel
from reelabel.extract import extract_local
from reelabel.sampling.options import Sampling
from tests.reelabel.decode.nal_units import rewrite

SEI = 6
# Picture timing (ITU-T H.264, D.1.3) that says only how a picture is shown, by `pic_struct`.
FRAME, TWO_FIELDS, BOTTOM_FIRST, THREE_FIELDS, THREE_BOTTOM_FIRST = (
    bytes([SEI, 1, 1, payload, 0x80]) for payload in (0x04, 0x32, 0x42, 0x51, 0x61)
)
TELECINE = (TWO_FIELDS, THREE_FIELDS, BOTTOM_FIRST, THREE_BOTTOM_FIRST)
SHOWN = {
    "film on video": lambda number: TELECINE[number % 4],
    "frames between fields": lambda number: TWO_FIELDS if number % 12 < 3 else FRAME,
    "fields alone": lambda _: TWO_FIELDS,
    "frames alone": lambda _: FRAME,
}


@pytest.fixture
def shown_as(make_clip, tmp_path):
    """Make a clip whose pictures are frames, and are shown as the name says."""

    def make(name, suffix):
        timing = SHOWN[name]
        coded = make_clip("frames.mp4", b_frames=2, **{"x264-params": "pic-struct=1"})
        return rewrite(
            coded,
            tmp_path / f"shown{suffix}",
            lambda number, units: [timing(number), *(u for u in units if not timed(u))],
        )

    return make


def timed(unit):
    return unit[0] & 0x1F == SEI and unit[1] == 1


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize(
    "sampling",
    [Sampling(num_frames=4), Sampling(sampler="uniform", num_frames=48), Sampling(sampler="uniform", num_frames=7)],
    ids=["keyframes", "every frame", "some frames"],
)
def test_frames_shown_as_fields_are_those_of_a_linear_decode(shown_as, decode_linearly, name, suffix, sampling):
    path = shown_as(name, suffix)

    got = extract_local(path, sampling=sampling, as_stored=True)

    linear = {pts: pixels for pts, _, pixels in decode_linearly(path)}
    for pts, image in zip(got.selection.pts.tolist(), got.unique, strict=True):
        np.testing.assert_array_equal(image, linear[pts])
    assert name != "frames alone" or got.method != "linear"


@pytest.mark.parametrize("parameters", ["tff=1", "bff=1"])
@pytest.mark.parametrize("sampling", [Sampling(num_frames=4), Sampling(sampler="uniform", num_frames=7)])
def test_pictures_that_are_coded_by_fields_need_no_linear_decode(make_clip, parameters, sampling):
    path = make_clip(b_frames=2, **{"x264-params": f"{parameters}:pic-struct=1"})

    assert extract_local(path, sampling=sampling).method != "linear"


# Scaling lists (ITU-T H.264, 7.3.2.1.1.1): sixteen equal numbers, one that is the default, and six that are absent.
SCALING_LISTS = "1" + "1" * 16 + "1" + "000010001" + "000000"
SCALING_FLAG_AT = 31  # bits after the header of an SPS of profile High, 4:2:0


def test_scaling_lists_before_the_flag_for_fields_are_skipped(make_clip, tmp_path, decode_linearly):
    coded, path = make_clip(b_frames=2, **{"x264-params": "tff=1:pic-struct=1"}), tmp_path / "scaled.mp4"
    with av.open(str(coded)) as source, av.open(str(path), "w") as copy:
        stream = copy.add_stream_from_template(source.streams.video[0])
        stream.codec_context.extradata = with_scaling_lists(stream.codec_context.extradata)
        for packet in source.demux(video=0):
            packet.stream = stream
            if packet.size:
                copy.mux(packet)

    got = extract_local(path, sampling=Sampling(num_frames=4), as_stored=True)

    assert got.method == "index"
    linear = decode_linearly(path)
    for index, image in zip(got.selection.frame_index, got.unique, strict=True):
        np.testing.assert_array_equal(image, linear[index][2])


def with_scaling_lists(avcc):
    """Add scaling lists to the only SPS of a configuration (ISO/IEC 14496-15, 5.3.3.1)."""
    end = 8 + int.from_bytes(avcc[6:8])
    bits = "".join(f"{byte:08b}" for byte in avcc[9:end].replace(b"\0\0\3", b"\0\0"))
    assert bits[SCALING_FLAG_AT] == "0"
    bits = bits[:SCALING_FLAG_AT] + "1" + SCALING_LISTS + bits[SCALING_FLAG_AT + 1 :].rstrip("0")
    bits += "0" * (-len(bits) % 8)
    sps = avcc[8:9] + re.sub(rb"\0\0(?=[\0-\3])", b"\0\0\3", int(bits, 2).to_bytes(len(bits) // 8))
    return avcc[:6] + len(sps).to_bytes(2) + sps + avcc[end:]


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_interlaced_mpeg4_with_a_variable_rate_leaves_out_what_a_linear_decode_leaves_out(
    tmp_path, decode_linearly, suffix
):
    path = tmp_path / f"clip{suffix}"
    steps_s = [0, 1, 2, 1, 0.5, 0.5, 1, 1, 1, 1, 0.5, 5, 2, 1, 1, 5, 5, 2, 2, 1, 1, 2, 1, 1, 2]
    write_mpeg4(path, times_ms=(np.cumsum(steps_s) * 1000).astype(int).tolist())
    linear = decode_linearly(path)

    with reelabel.open(path) as video:
        frames = [video.frames([number]) for number in range(len(linear))]

    assert len(linear) < len(steps_s)
    for frame, (pts, _, pixels) in zip(frames, linear, strict=True):
        assert frame.pts.tolist() == [pts]
        np.testing.assert_array_equal(frame[0], pixels)


def write_mpeg4(path, *, times_ms):
    """Write interlaced frames with B-frames between them."""
    with av.open(str(path), "w", options={"video_track_timescale": "1000"} if path.suffix == ".mp4" else {}) as file:
        stream = file.add_stream("mpeg4", rate=1, options={"flags": "+ilme+ildct"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        stream.codec_context.gop_size, stream.codec_context.max_b_frames = 12, 3
        stream.codec_context.thread_count = 1
        chance = np.random.default_rng(0)
        for time_ms in times_ms:
            frame = av.VideoFrame.from_ndarray(chance.integers(0, 256, (48, 64, 3), np.uint8), format="rgb24")
            frame.pts, frame.time_base = time_ms, Fraction(1, 1000)
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
