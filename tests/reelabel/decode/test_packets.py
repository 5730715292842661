"""Packets that are flagged as keyframes, and are none."""

from types import MappingProxyType

import av
import pytest

from reelabel.decode.packets import is_flagged_wrongly

ENCODERS = MappingProxyType({"h264": "libx264", "hevc": "libx265", "mpeg4": "mpeg4"})
# Types of slices in Exp-Golomb (ITU-T H.264, 9.1), after that of the first macroblock, 0.
CODES = ["1", "010", "011", "00100", "00101", "00110", "00111", "0001000", "0001001", "0001010"]
INTER = {0, 1, 5, 6}  # P and B


@pytest.fixture
def codec_of(make_clip):
    """Return a function that returns the codec of a clip."""

    def codec_of(name):
        with av.open(str(make_clip(codec=ENCODERS[name], frames=4))) as container:
            return container.streams.video[0].codec_context

    return codec_of


def packet_of(*units):
    return av.Packet(b"".join(len(unit).to_bytes(4) + bytes(unit) for unit in units))


@pytest.mark.parametrize("rest", "01")
def test_a_keyframe_of_h264_is_no_slice_of_type_p_or_b(codec_of, rest):
    codec = codec_of("h264")
    packets = [packet_of(b"\x67\0", [1, int(f"1{code}".ljust(8, rest)[:8], 2)]) for code in CODES]

    assert {kind for kind, packet in enumerate(packets) if is_flagged_wrongly(packet, codec)} == INTER
    assert not is_flagged_wrongly(packet_of(b"\x67\0"), codec)  # no picture, of which nothing is known


def test_a_keyframe_of_hevc_is_a_random_access_picture(codec_of):
    codec = codec_of("hevc")
    packets = [packet_of([32 << 1, 1, 0], [kind << 1, 1, 0x80]) for kind in range(24)]

    assert {kind for kind, packet in enumerate(packets) if not is_flagged_wrongly(packet, codec)} >= {*range(16, 22)}
    assert all(is_flagged_wrongly(packet, codec) for packet in packets[:10])
    assert not is_flagged_wrongly(packet_of([32 << 1, 1, 0]), codec)


def test_keyframes_of_other_codecs_are_believed(codec_of):
    assert not is_flagged_wrongly(packet_of(b"\0\0\1\xb6\x40"), codec_of("mpeg4"))
