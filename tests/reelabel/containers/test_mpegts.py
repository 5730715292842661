"""Streams that follow one another in an MPEG-TS, in the order of its packets."""

import pytest

from reelabel.containers.mpegts import later_stream
from reelabel.sources.video_file import open_video_file

FIRST, SECOND, AUDIO = 0x100, 0x1234, 0x101


def packet(pid, *, size, stream_id=0xE0, adaptation=0, begins=True):
    """Make a packet; an adaptation field is counted without its length."""
    field = bytes([adaptation, *b"\0" * adaptation]) if adaptation else b""
    flags = bytes([0x47, (0x40 if begins else 0) | pid >> 8, pid & 0xFF, 0x30 if adaptation else 0x10])
    data = (flags + field + bytes([0, 0, 1, stream_id])).ljust(188, b"\xff")
    return data.rjust(size, b"\0") if size == 192 else data.ljust(size, b"\0")


@pytest.mark.parametrize("size", [188, 192, 204])
@pytest.mark.parametrize("adaptation", [0, 7, 179])
def test_a_stream_that_begins_after_the_last_picture_of_another_is_found(tmp_path, size, adaptation):
    options = {"size": size, "adaptation": adaptation}
    path = tmp_path / "joined.ts"
    path.write_bytes(
        b"".join(
            [
                *(packet(FIRST, **options), packet(AUDIO, stream_id=0xC0, **options)) * 3,
                packet(FIRST, **options | {"begins": False}),
                *(packet(SECOND, **options), packet(AUDIO, stream_id=0xC0, **options)) * 3,
                packet(FIRST, **options | {"begins": False}),
            ]
        )
    )

    with open_video_file(path) as file:
        assert later_stream(file, FIRST) == SECOND
        assert later_stream(file, SECOND) is None
        assert later_stream(file, AUDIO) is None


def test_streams_that_overlap_and_files_that_are_none_have_no_later_stream(tmp_path):
    both = [packet(pid, size=188) for pid in (FIRST, SECOND)] * 6
    for data in (b"".join(both), b"\x47" * 187 + b"\0" * 900, b""):
        path = tmp_path / "clip.ts"
        path.write_bytes(data)

        with open_video_file(path) as file:
            assert later_stream(file, FIRST) is None
