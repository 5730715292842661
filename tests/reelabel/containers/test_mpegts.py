"""Streams that follow one another in an MPEG-TS, in the order of its packets."""

import pytest

from reelabel.containers.mpegts import later_stream
from reelabel.sources.video_file import open_video_file

FIRST, SECOND, AUDIO = 0x100, 0x1234, 0x101


def packet(pid, *, size=188, stream_id=0xE0, adaptation=0, is_start=True):
    """Make a packet; an adaptation field is counted without its length."""
    field = bytes([adaptation, *b"\0" * adaptation]) if adaptation else b""
    flags = bytes([0x47, (0x40 if is_start else 0) | pid >> 8, pid & 0xFF, 0x30 if adaptation else 0x10])
    data = (flags + field + bytes([0, 0, 1, stream_id])).ljust(188, b"\xff")[:188]
    return data.rjust(size, b"\0") if size == 192 else data.ljust(size, b"\0")


@pytest.fixture
def later(tmp_path):
    """Return a function that writes a file, and looks for a stream after another one."""

    def find(pid, *parts):
        path = tmp_path / "clip.ts"
        path.write_bytes(b"".join(parts))
        with open_video_file(path) as file:
            return later_stream(file, pid)

    return find


@pytest.mark.parametrize("packets_read", [7, 1000])
@pytest.mark.parametrize("size", [188, 192, 204])
@pytest.mark.parametrize("adaptation", [0, 7, 179])
def test_a_stream_that_begins_after_the_last_picture_of_another_is_found(
    later, monkeypatch, size, adaptation, packets_read
):
    monkeypatch.setattr("reelabel.containers.mpegts._READ_BYTES", packets_read * size)
    options = {"size": size, "adaptation": adaptation}
    audio = packet(AUDIO, stream_id=0xC0, **options)
    joined = [
        *(packet(FIRST, **options), audio) * 6,
        *(packet(SECOND, **options), audio) * 6,
        packet(FIRST, **options, is_start=False),
    ]

    assert later(FIRST, *joined) == SECOND
    assert later(SECOND, *joined) is None
    assert later(AUDIO, *joined) is None


def test_one_picture_is_enough_in_the_first_packet_and_in_the_last(later):
    audio = packet(AUDIO, stream_id=0xF0)

    assert later(FIRST, packet(FIRST), *[audio] * 5, packet(SECOND, stream_id=0xEF)) == SECOND


def test_packets_may_begin_after_other_bytes_and_end_before_some(later):
    packets = [packet(FIRST)] * 6 + [packet(SECOND)] * 6

    assert later(FIRST, b"\x47\0\0", *packets, packet(SECOND)[:100]) == SECOND


def test_streams_that_overlap_and_files_that_are_none_have_no_later_stream(later):
    assert later(FIRST, *[packet(pid) for pid in (FIRST, SECOND)] * 6) is None
    assert later(FIRST, b"\x47" * 187, b"\0" * 900) is None
    assert later(FIRST) is None


@pytest.mark.parametrize("adaptation", [180, 183, 255])
def test_a_packet_without_room_for_a_picture_has_none(later, adaptation):
    assert later(FIRST, *[packet(FIRST)] * 6, *[packet(SECOND, adaptation=adaptation)] * 6) is None
