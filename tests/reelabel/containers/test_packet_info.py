"""What packets say of the order of their pictures, compared with the pictures themselves."""

from itertools import accumulate

import av
import pytest
from av.video.frame import PictureType

from reelabel.containers.packet_info import (
    TimesOutOfOrderError,
    check_shown_in_turn,
    ends_sequence,
    is_closed_gop_start,
    is_decodable_leading,
    is_shown_early,
    is_splice_point,
    nal_length_bytes,
    nal_units,
    states_reordering,
)


@pytest.fixture
def packets_of(make_clip):
    """Return a function that encodes a clip, and returns its packets and its codec."""

    def read(name, codec):
        with av.open(str(make_clip(name, codec=codec, frames=40, gop=10, b_frames=2))) as container:
            stream = container.streams.video[0]
            return [packet for packet in container.demux(stream) if packet.size], stream.codec_context

    return read


@pytest.mark.parametrize(
    ("name", "codec"), [("clip.mp4", "libx264"), ("clip.mkv", "mpeg2video"), ("clip.mp4", "mpeg4")]
)
def test_pictures_of_type_b_state_that_they_are_shown_early(packets_of, make_clip, name, codec):
    packets, context = packets_of(name, codec)
    with av.open(str(make_clip(name, codec=codec, frames=40, gop=10, b_frames=2))) as container:
        types = {frame.pts: frame.pict_type for frame in container.decode(video=0)}

    early = [is_shown_early(packet, context) for packet in packets]

    assert early == [types[packet.pts] == PictureType.B for packet in packets]
    assert 0 < sum(early) < 40


def test_of_hevc_only_pictures_before_their_keyframe_state_it(packets_of):
    packets, context = packets_of("clip.mp4", "libx265")
    keyframes = accumulate(packets, lambda last, packet: packet if packet.is_keyframe else last)
    leading = [packet.pts < keyframe.pts for packet, keyframe in zip(packets, keyframes, strict=True)]

    assert [is_shown_early(packet, context) for packet in packets] == leading
    assert any(leading)
    assert not any(is_decodable_leading(packet, context) for packet in packets)  # they depend on the GOP before


@pytest.mark.parametrize(
    ("name", "codec", "closed"),
    [("clip.mp4", "libx264", 4), ("clip.mp4", "libx265", 1), ("clip.mp4", "libsvtav1", 4), ("clip.mp4", "mpeg4", 0)],
)
def test_only_what_surely_reorders_nothing_across_keyframes_begins_a_closed_gop(packets_of, name, codec, closed):
    packets, context = packets_of(name, codec)
    keyframes = [packet for packet in packets if packet.is_keyframe]

    found = [is_closed_gop_start(packet, context) for packet in keyframes]

    assert len(keyframes) >= 4
    assert found == [True] * closed + [False] * (len(keyframes) - closed)


def test_timestamps_that_never_fall_are_believed_only_if_no_picture_may_be_shown_earlier(packets_of):
    packets, context = packets_of("clip.mp4", "libx264")
    _, silent = packets_of("clip.mp4", "libx265")
    by_order = [[packet for packet in packets if is_shown_early(packet, context) == early] for early in (False, True)]

    check_shown_in_turn(None, context)
    check_shown_in_turn(by_order[0][1], context)
    for packet, codec in ((by_order[1][0], context), (None, silent)):
        with pytest.raises(TimesOutOfOrderError, match="do not show the order"):
            check_shown_in_turn(packet, codec)
    assert [states_reordering(codec) for codec in (context, silent)] == [False, True]


@pytest.mark.parametrize(
    ("name", "codec", "only", "length_bytes"),
    [
        ("clip.mp4", "libx264", "", 4),
        ("clip.mp4", "libx264", "hevc", None),
        ("clip.mp4", "libx265", "hevc", 4),
        ("clip.ts", "libx264", "", None),
        ("clip.mp4", "mpeg4", "", None),
    ],
)
def test_only_streams_of_h264_and_hevc_with_a_record_have_lengths(packets_of, name, codec, only, length_bytes):
    _, context = packets_of(name, codec)

    assert nal_length_bytes(context, only=only) == length_bytes


@pytest.mark.parametrize(
    ("data", "length_bytes", "units", "whole"),
    [
        pytest.param(b"\0\0\0\2ab\0\0\0\1c", 4, [b"ab", b"c"], [b"ab", b"c"], id="two"),
        pytest.param(b"\0\2ab\0\1c", 2, [b"ab", b"c"], [b"ab", b"c"], id="short lengths"),
        pytest.param(b"\0\0\0\1a\0\0\0\4bc", 4, [b"a", b"bc"], [b"a"], id="cut short"),
        pytest.param(b"\0\0\0\1a\0\0\0\0\0\0\0\1b", 4, [b"a"], [b"a"], id="up to an empty one"),
        pytest.param(b"\0\0\0\1a\0\0\0\1", 4, [b"a"], [b"a"], id="a length at the end"),
        pytest.param(b"\0\0\0\1a", None, [], [], id="without lengths"),
    ],
)
def test_a_packet_is_split_by_the_lengths_of_its_units(data, length_bytes, units, whole):
    assert [bytes(unit) for unit in nal_units(memoryview(data), length_bytes)] == units
    assert [bytes(unit) for unit in nal_units(memoryview(data), length_bytes, whole_only=True)] == whole


# Types of slices in Exp-Golomb (ITU-T H.264, 9.1), after that of the first macroblock, 0.
CODES = ["1", "010", "011", "00100", "00101", "00110", "00111", "0001000", "0001001", "0001010"]


@pytest.mark.parametrize("rest", "01")
@pytest.mark.parametrize("kind", range(10))
def test_slices_of_h264_of_types_1_and_6_are_shown_early(packets_of, kind, rest):
    _, context = packets_of("clip.mp4", "libx264")
    header = int(f"1{CODES[kind]}".ljust(8, rest)[:8], 2)
    parameters = b"\0\0\0\1\x67"

    assert is_shown_early(av.Packet(parameters + bytes([0, 0, 0, 2, 1, header])), context) == (kind in {1, 6})
    assert not is_shown_early(av.Packet(bytes([0, 0, 0, 2, 1, header & 0x7F])), context)  # of a later macroblock
    assert not is_shown_early(av.Packet(bytes([0, 0, 0, 3, 1, header])), context)  # cut short


_SEI, _VPS, _END, _END_OF_STREAM = 39, 32, 36, 37


def hevc(*units):
    """Make a packet of NAL units, each of a type and the first byte of its slice header."""
    bodies = [bytes([kind << 1, 1, *header]) for kind, *header in units]
    return av.Packet(b"".join(len(body).to_bytes(4) + body for body in bodies))


@pytest.mark.parametrize("kind", range(23))
def test_pictures_of_hevc_state_their_order_by_their_type(packets_of, kind):
    _, context = packets_of("clip.mp4", "libx265")
    packet = hevc((_VPS, 0), (kind, 0xFF))

    assert is_shown_early(packet, context) == (kind in {6, 7, 8, 9})
    assert is_decodable_leading(packet, context) == (kind in {6, 7})
    assert is_closed_gop_start(packet, context) == (kind == 20)


@pytest.mark.parametrize(
    ("units", "alone", "after_an_end"),
    [
        pytest.param([(15, 0xFF)], False, False, id="no keyframe"),
        *(pytest.param([(kind, 0)], True, True, id=f"BLA {kind}") for kind in (16, 17, 18)),
        *(pytest.param([(kind, 0xBF)], False, False, id=f"IDR {kind}") for kind in (19, 20)),
        *(pytest.param([(kind, 0x40)], True, True, id=f"IDR {kind} without prior pictures") for kind in (19, 20)),
        pytest.param([(21, 0x40)], False, True, id="CRA"),
        pytest.param([(22, 0x40)], False, False, id="reserved"),
        pytest.param([(_END,), (_SEI, 0), (21, 0)], True, True, id="CRA after an end in its packet"),
        pytest.param([(1, 0), (16, 0)], False, False, id="its first picture decides"),
        pytest.param([(_SEI, 0)], False, False, id="no picture"),
    ],
)
def test_hevc_is_joined_where_a_decoder_leaves_pictures_out(packets_of, units, alone, after_an_end):
    _, context = packets_of("clip.mp4", "libx265")

    assert is_splice_point(hevc(*units), context) == alone
    assert is_splice_point(hevc(*units), context, has_ended=True) == after_an_end


def test_a_sequence_ends_with_the_last_unit_of_a_packet(packets_of):
    _, context = packets_of("clip.mp4", "libx265")
    _, other = packets_of("clip.mp4", "libx264")

    assert all(ends_sequence(hevc((1, 0), (kind,)), context) for kind in (_END, _END_OF_STREAM))
    assert not any(ends_sequence(hevc((1, 0), (kind,)), context) for kind in (_END - 1, _END_OF_STREAM + 1))
    assert not ends_sequence(hevc((_END,), (1, 0)), context)
    assert not ends_sequence(hevc((_END,)), other)
