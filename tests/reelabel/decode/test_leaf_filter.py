"""Pictures that nothing refers to are not decoded, and a stream that lies about them gives the same frames."""

from fractions import Fraction

import av
import numpy as np
import pytest

from reelabel.decode.run_decoder import NonReferenceFilter
from reelabel.extract import extract_local
from reelabel.sampling.options import Sampling
from tests.reelabel.decode.nal_units import rewrite

FEW, MANY = (Sampling(sampler="uniform", num_frames=count) for count in (5, 17))
X264, X265 = {"codec": "libx264"}, {"codec": "libx265"}
ENCODES = {
    "b-pyramid none": X264 | {"b_frames": 3, "x264-params": "b-pyramid=none"},
    "b-pyramid strict": X264 | {"b_frames": 3, "x264-params": "b-pyramid=strict"},
    "b-pyramid normal": X264 | {"b_frames": 5, "x264-params": "b-pyramid=normal:ref=4"},
    "open gop": X264 | {"b_frames": 3, "x264-params": "open-gop=1:b-pyramid=normal"},
    "placebo": X264 | {"b_frames": 8, "preset": "placebo"},
    "slices": X264 | {"b_frames": 2, "x264-params": "slices=3:aud=1"},
    "interlaced": X264 | {"b_frames": 2, "x264-params": "tff=1"},
    "long gop": X264 | {"b_frames": 3, "gop": 48},
    "hevc": X265 | {"x265-params": "bframes=4"},
    "hevc open gop": X265 | {"x265-params": "bframes=4:open-gop=1"},
    "hevc sub-layers": X265 | {"x265-params": "bframes=4:temporal-layers=3"},
    "hevc without pyramid": X265 | {"x265-params": "bframes=3:b-pyramid=0:open-gop=0:aud=1"},
    "hevc long gop": X265 | {"x265-params": "bframes=4", "preset": "slow", "gop": 48},
}
OTHERS = {
    "vp9": ("clip.webm", {"codec": "libvpx-vp9", "auto-alt-ref": "1", "lag-in-frames": "16"}),
    "av1": ("clip.mp4", {"codec": "libsvtav1", "preset": "10"}),
    "hevc with timing sei": ("clip.mp4", X265 | {"x265-params": "bframes=3:hrd=1:vbv-maxrate=500:vbv-bufsize=500"}),
    "mpeg-2": ("clip.mkv", {"codec": "mpeg2video", "b_frames": 2}),
}
# Prefix SEI of payload type 6: recovery_poc_cnt 30, exact_match_flag 1 (ITU-T H.265, D.2.8).
HEVC_RECOVERY_POINT = bytes.fromhex("4e010602079480")
TRAIL_N, TRAIL_R, HEVC_PPS, H264_PPS = 0, 1, 34, 8


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mkv"])
@pytest.mark.parametrize("options", ENCODES.values(), ids=ENCODES)
def test_frames_are_the_linear_decodes_own_for_fewer_pictures(make_clip, decode_linearly, name, options):
    path = make_clip(name, **options)

    require_linear_frames(path, decode_linearly, method="seek")
    assert extract_local(path, sampling=FEW).cost.frames_decoded < 48


@pytest.mark.parametrize(("name", "options"), OTHERS.values(), ids=OTHERS)
def test_pictures_that_may_be_referred_to_are_decoded(make_clip, decode_linearly, name, options):
    require_linear_frames(make_clip(name, **options), decode_linearly, method="seek")


def test_half_of_a_hevc_stream_with_a_pyramid_is_not_decoded(make_clip):
    path = make_clip(codec="libx265", gop=48, **{"x265-params": "bframes=4:b-adapt=0"})

    assert extract_local(path, sampling=FEW).cost.frames_decoded < 48 * 0.6


@pytest.mark.parametrize("period", [1, 2, 5])
@pytest.mark.parametrize("parameters", ["bframes=0:ref=3", "bframes=4", "bframes=3:open-gop=1", "intra-refresh=1"])
def test_references_that_claim_to_be_none_are_decoded(make_clip, decode_linearly, tmp_path, parameters, period):
    def mislabel(number, units):
        return [with_type(unit, TRAIL_N) if kind(unit) == TRAIL_R and number % period == 0 else unit for unit in units]

    honest = make_clip(codec="libx265", gop=24, **{"x265-params": parameters})
    path = rewrite(honest, tmp_path / "lie.mp4", mislabel)

    require_linear_frames(path, decode_linearly, method="seek")


@pytest.mark.parametrize("at", [1, 3, 7])
def test_a_recovery_point_does_not_excuse_a_missing_reference(make_clip, decode_linearly, tmp_path, at):
    def mislabel(number, units):
        recovery = [HEVC_RECOVERY_POINT] * (number % 24 == at)
        return recovery + [with_type(unit, TRAIL_N) if kind(unit) == TRAIL_R and number % 2 else unit for unit in units]

    honest = make_clip(codec="libx265", gop=24, **{"x265-params": "bframes=0:ref=3"})

    require_linear_frames(rewrite(honest, tmp_path / "lie.mp4", mislabel), decode_linearly, method="seek")


def in_front(units, hidden):
    return [hidden, *units]


def after_a_start_code(units, hidden):
    return [*units[:-1], units[-1] + b"\0\0\1" + hidden]


@pytest.mark.parametrize("at", [5, 6, 7, 8])
@pytest.mark.parametrize("hide", [in_front, after_a_start_code])
def test_parameters_in_a_leaf_of_h264_are_obeyed(make_clip, decode_linearly, tmp_path, hide, at):
    parameters = {"b_frames": 3, "gop": 24, "qp": "20"}
    honest = make_clip(**parameters, **{"x264-params": "b-pyramid=none:b-adapt=0"})
    other = make_clip("other.mp4", **parameters, **{"x264-params": "b-pyramid=none:b-adapt=0:chroma-qp-offset=9"})
    pps = h264_pps(extradata_of(other))
    hidden = bytes([H264_PPS]) + pps[1:]  # nal_ref_idc 0, which the standard forbids

    path = rewrite(honest, tmp_path / "lie.mp4", lambda number, units: hide(units, hidden) if number == at else units)

    with_it, without = decode_linearly(path), decode_linearly(honest)
    assert any((mine[2] != other[2]).any() for mine, other in zip(with_it, without, strict=True))
    require_linear_frames(path, decode_linearly, method="seek")


@pytest.mark.parametrize("at", [4, 5, 6, 7, 8, 9])
@pytest.mark.parametrize("hide", [in_front, after_a_start_code])
def test_parameters_within_a_gop_of_hevc_are_obeyed(make_clip, decode_linearly, tmp_path, hide, at):
    options = {"codec": "libx265", "gop": 24}
    honest = make_clip(**options, **{"x265-params": "bframes=3:b-adapt=0:cbqpoffs=0:crqpoffs=1"})
    other = make_clip("other.mp4", **options, **{"x265-params": "bframes=3:b-adapt=0:cbqpoffs=9:crqpoffs=1"})
    pps = hevc_pps(extradata_of(other))

    path = rewrite(honest, tmp_path / "lie.mp4", lambda number, units: hide(units, pps) if number == at else units)

    with_it, without = decode_linearly(path), decode_linearly(honest)
    assert any((mine[2] != other[2]).any() for mine, other in zip(with_it, without, strict=True))
    require_linear_frames(path, decode_linearly, method="seek")


@pytest.mark.parametrize("codec", ["libx264", "libx265"])
def test_nothing_is_skipped_after_side_data_which_may_be_a_new_configuration(make_clip, codec):
    path = make_clip(codec=codec, b_frames=3, **({"x265-params": "bframes=3"} if codec == "libx265" else {}))
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        leaves, skipped = NonReferenceFilter(stream.codec_context), []
        for number, packet in enumerate(each for each in container.demux(stream) if each.size):
            if number == 24:
                packet.set_sidedata(some_side_data())
            is_admitted = leaves.accepts(packet, is_wanted=False)
            skipped.append(not is_admitted or stream.codec_context.skip_frame == "NONREF")

    assert any(skipped[:24])
    assert not any(skipped[24:])


def some_side_data():
    """Return side data of a packet, as an encoder makes it."""
    encoder = av.CodecContext.create("libx264", "w")
    encoder.width, encoder.height, encoder.pix_fmt, encoder.time_base = 64, 48, "yuv420p", Fraction(1, 12)
    packets = encoder.encode(av.VideoFrame(64, 48, "yuv420p")) + encoder.encode(None)
    return packets[0].get_sidedata("quality_stats")


def require_linear_frames(path, decode_linearly, *, method):
    """Compare the frames of several samplings with those of the linear decode."""
    linear = decode_linearly(path)
    for sampling in (FEW, MANY):
        got = extract_local(path, sampling=sampling, as_stored=True)
        assert got.method == method, got.note
        for image, index in zip(got.unique, got.selection.frame_index, strict=True):
            np.testing.assert_array_equal(image, linear[index][2])


def kind(unit):
    """Return the type of a NAL unit of HEVC."""
    return unit[0] >> 1 & 0x3F


def with_type(unit, new):
    """Return a NAL unit of HEVC of another type."""
    return bytes([unit[0] & 0x81 | new << 1]) + unit[1:]


def extradata_of(path):
    """Return the codec's configuration."""
    with av.open(str(path)) as container:
        return container.streams.video[0].codec_context.extradata


def h264_pps(avcc):
    """Return the only PPS of a configuration (ISO/IEC 14496-15, 5.3.3.1), which has one SPS."""
    at = 8 + int.from_bytes(avcc[6:8]) + 1
    return avcc[at + 2 : at + 2 + int.from_bytes(avcc[at : at + 2])]


def hevc_pps(hvcc):
    """Return the only PPS of a configuration (ISO/IEC 14496-15, 8.3.3.1), whose arrays have one unit each."""
    at = 23
    while hvcc[at] & 0x3F != HEVC_PPS:
        at += 5 + int.from_bytes(hvcc[at + 3 : at + 5])
    return hvcc[at + 5 : at + 5 + int.from_bytes(hvcc[at + 3 : at + 5])]
