"""Video that has been cut and joined: a decoder leaves out frames around the cut, which the container announces."""

from fractions import Fraction

import av
import numpy as np
import pytest

import reelabel
from reelabel.extract import extract_local
from reelabel.index import UNKNOWN_POSITION
from reelabel.sampling.options import Sampling
from tests.reelabel.decode.nal_units import rewrite

IRAP, IDR, CRA, BLA_W_LP = range(16, 24), range(19, 21), 21, 16
END_OF_SEQUENCE = bytes([36 << 1, 1])
GOP = 12
FRAGMENTS = {"movflags": "frag_keyframe+empty_moov"}


def kind(unit):
    return unit[0] >> 1 & 0x3F


def with_bla(_, units):
    return [bytes([unit[0] & 0x81 | BLA_W_LP << 1]) + unit[1:] if kind(unit) == CRA else unit for unit in units]


def with_ends_before(number, units):
    return [*units, END_OF_SEQUENCE] if number % GOP == GOP - 1 else units


def with_ends_in_front(_, units):
    return [END_OF_SEQUENCE, *units] if any(kind(unit) == CRA for unit in units) else units


def without_output_of_prior_pictures(number, units):
    return [unit[:2] + bytes([unit[2] | 0x40]) + unit[3:] if number and kind(unit) in IDR else unit for unit in units]


SPLICES = {
    "BLA pictures": (with_bla, "open-gop=1"),
    "ends of sequences": (with_ends_before, "open-gop=1"),
    "ends of sequences in front": (with_ends_in_front, "open-gop=1"),
    "no output of prior pictures": (without_output_of_prior_pictures, "open-gop=0"),
}
SAMPLINGS = [
    Sampling(num_frames=4),
    *(Sampling(sampler="uniform", num_frames=frames) for frames in (9, 24, 48)),
]


def spliced(make_clip, path, name, **options):
    change, parameters = SPLICES[name]
    coded = make_clip("clip.mp4", codec="libx265", **{"x265-params": f"{parameters}:bframes=3:log-level=none"})
    return rewrite(coded, path, change, **options)


def assert_shown(got, linear):
    for index, pts, image in zip(got.selection.frame_index, got.selection.pts.tolist(), got.unique, strict=True):
        position = [each for each, _, _ in linear].index(pts)
        assert index in {position, UNKNOWN_POSITION}
        np.testing.assert_array_equal(image, linear[position][2])


@pytest.mark.parametrize(("suffix", "options"), [(".mp4", {}), (".mkv", {}), (".mov", FRAGMENTS)])
@pytest.mark.parametrize("name", SPLICES)
def test_no_frame_around_a_splice_is_shown_or_counted_that_a_linear_decode_leaves_out(
    make_clip, tmp_path, decode_linearly, name, suffix, options
):
    path = spliced(make_clip, tmp_path / f"spliced{suffix}", name, **options)
    linear = decode_linearly(path)
    assert len(linear) < 48

    for sampling in SAMPLINGS:
        got = extract_local(path, sampling=sampling, as_stored=True)
        is_read = name != "ends of sequences" or sampling.sampler != "keyframes"  # else the end is in another packet
        assert got.selection.total_frames in {None, len(linear)} or not is_read
        assert_shown(got, linear)


def test_an_end_of_the_last_sequence_is_no_splice(make_clip, tmp_path):
    parameters = {"x265-params": "open-gop=1:bframes=3:log-level=none"}
    coded = make_clip("clip.mp4", codec="libx265", **parameters)
    path = rewrite(
        coded, tmp_path / "ended.mp4", lambda number, units: [*units, END_OF_SEQUENCE] if number == 47 else units
    )

    got = extract_local(path, sampling=Sampling(sampler="uniform", num_frames=9))

    assert (got.method, got.selection.total_frames) == ("seek", 48)


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
@pytest.mark.parametrize(
    ("codec", "changed"),
    [
        ("mpeg1video", {"size": (48, 48)}),
        ("mpeg2video", {"size": (48, 48)}),
        ("mpeg2video", {"pix_fmt": "yuv422p"}),
        ("mpeg4", {"size": (48, 48)}),
    ],
)
def test_no_frame_is_counted_that_a_linear_decode_leaves_out_where_pictures_change(
    make_clip, tmp_path, decode_linearly, codec, changed, suffix
):
    container = ".avi" if codec == "mpeg4" else ".ts"  # where each keyframe states all
    options = {"codec": codec, "fps": 25, "b_frames": 2}
    parts = [make_clip(f"one{container}", **options), make_clip(f"other{container}", **options | changed)]
    path = join(parts, tmp_path / f"joined{suffix}")

    assert_each_is_shown(path, decode_linearly(path))


def assert_each_is_shown(path, linear):
    assert len(linear) < 96
    with reelabel.open(path, as_stored=True) as video:
        for number, (pts, _, pixels) in enumerate(linear):
            frame = video.frames([number])
            assert (frame.index.tolist(), frame.pts.tolist()) == ([number], [pts])
            np.testing.assert_array_equal(frame[0], pixels)


def test_clips_of_one_size_are_joined_without_a_change_even_if_their_pixels_have_another_shape(make_clip, tmp_path):
    parts = [make_clip(name, codec="mpeg2video", fps=25, b_frames=2) for name in ("one.ts", "other.ts")]
    size, narrow, wide = b"\0\0\1\xb3\x04\0\x30", b"\x23", b"\x33"  # ISO/IEC 13818-2, 6.2.2.1
    parts[1].write_bytes(parts[1].read_bytes().replace(size + narrow, size + wide))

    with reelabel.open(join(parts, tmp_path / "joined.mkv")) as video:
        assert video.frames([95]).method == "seek"


def join(parts, path):
    """Write the packets of clips of 25 frames per second one after another."""
    with av.open(str(path), "w") as target:
        copy, ends = None, Fraction(0)
        for part in parts:
            with av.open(str(part)) as source:
                [stream] = source.streams
                copy = copy or target.add_stream_from_template(stream)
                packets, step = [each for each in source.demux(stream) if each.size], int(1 / (25 * stream.time_base))
                first = min(each.pts for each in packets if each.pts is not None)
                shift = int(ends / stream.time_base) - first
                for number, packet in enumerate(packets):
                    packet.dts = (number - 2) * step + first + shift
                    packet.pts, packet.stream = (packet.pts + shift), copy
                    target.mux(packet)
                ends += Fraction(len(packets), 25)
    return path
