import io

import numpy as np
import pytest
from PIL import Image

from reelabel.decode.packets import has_jpeg_tables

QUANTIZATION, HUFFMAN = b"\xff\xdb", b"\xff\xc4"


@pytest.fixture(params=[{}, {"progressive": True}, {"subsampling": 0}, {"optimize": True}], ids=str)
def picture(request):
    noise = np.random.default_rng(1).integers(0, 256, (48, 64, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "JPEG", **request.param)
    return file.getvalue()


def without(picture, marker, *, which):
    """Take one segment out, whole."""
    start = -1
    for _ in range(which + 1):
        start = picture.index(marker, start + 1)
    return picture[:start] + picture[start + 2 + int.from_bytes(picture[start + 2 : start + 4]) :]


def test_a_complete_picture_contains_its_tables(picture):
    assert has_jpeg_tables(memoryview(picture))


@pytest.mark.parametrize("marker", [QUANTIZATION, HUFFMAN])
@pytest.mark.parametrize("which", [0, 1])
def test_a_picture_that_lacks_a_table_is_recognised(picture, marker, which):
    if picture.index(b"\xff\xda") < picture.find(marker, picture.index(marker) + 1) and which:
        which = 0  # a progressive picture has but one Huffman table before its first scan
    assert not has_jpeg_tables(memoryview(without(picture, marker, which=which)))


def test_truncated_or_arbitrary_bytes_are_tolerated(picture):
    scan = picture.index(b"\xff\xda")
    for size in range(scan):
        assert not has_jpeg_tables(memoryview(picture[:size]))
    assert not has_jpeg_tables(memoryview(b""))
    assert not has_jpeg_tables(memoryview(bytes(100)))


def test_damage_before_the_scan_is_tolerated(picture):
    rng = np.random.default_rng(2)
    for _ in range(300):
        damaged = bytearray(picture)
        damaged[rng.integers(0, picture.index(b"\xff\xda") + 12)] = rng.integers(0, 256)
        has_jpeg_tables(memoryview(damaged))


def quantization(number, *, words=False, size=None):
    return bytes([16 * words | number]) + bytes(size or (128 if words else 64))


def huffman(kind, number, *, codes=3):
    return bytes([16 * kind | number]) + bytes([codes, *bytes(15)]) + bytes(codes)


TABLES, CODES = (quantization(0) + quantization(1),), (huffman(0, 0) + huffman(1, 0),)


def header(*, tables=TABLES, codes=CODES, marker=0xC0, dc=0, ac=0, last=63):
    """Make the segments up to the first scan, of two components that use quantization tables 0 and 1."""
    frame = bytes([8, 0, 16, 0, 16, 2, 1, 0x11, 0, 2, 0x11, 1])
    selectors = bytes([2, 1, 0x00, 2, 16 * dc | ac, 0, last, 0])
    parts = [*((0xDB, each) for each in tables), *((0xC4, each) for each in codes), (marker, frame), (0xDA, selectors)]
    return b"\xff\xd8" + b"".join(
        bytes([0xFF, kind]) + (2 + len(content)).to_bytes(2) + content for kind, content in parts
    )


@pytest.mark.parametrize(
    ("changes", "has_tables"),
    [
        pytest.param({}, True, id="baseline"),
        pytest.param({"marker": 0xC1}, True, id="extended"),
        pytest.param({"marker": 0xC2}, True, id="progressive"),
        pytest.param({"marker": 0xC3}, False, id="lossless"),
        pytest.param({"tables": [quantization(0), quantization(1)]}, True, id="a segment for each table"),
        pytest.param({"tables": [quantization(0, words=True) + quantization(1)]}, True, id="of 16 bits"),
        pytest.param({"tables": [quantization(0) + quantization(1, size=63)]}, False, id="a table cut short"),
        pytest.param({"tables": [quantization(0)]}, False, id="a table missing"),
        pytest.param({"codes": [huffman(0, 0), huffman(1, 0)]}, True, id="a segment for each code"),
        pytest.param({"codes": [huffman(0, 0, codes=0) + huffman(1, 0)]}, True, id="a code without entries"),
        pytest.param({"codes": [huffman(0, 0) + huffman(1, 0)[:-1]]}, False, id="a code cut short"),
        pytest.param({"codes": [huffman(0, 0)]}, False, id="no code of AC"),
        pytest.param({"codes": [huffman(0, 0)], "last": 0}, True, id="which a scan of DC does not use"),
        pytest.param({"dc": 1}, False, id="another code of DC"),
        pytest.param({"ac": 1}, False, id="another code of AC"),
        pytest.param({"ac": 1, "codes": [huffman(0, 0) + huffman(1, 0) + huffman(1, 1)]}, True, id="two codes of AC"),
    ],
)
def test_a_scan_uses_tables_that_come_before_it(changes, has_tables):
    assert has_jpeg_tables(memoryview(header(**changes))) == has_tables
