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
    places = np.random.default_rng(2)
    for _ in range(300):
        damaged = bytearray(picture)
        damaged[places.integers(0, picture.index(b"\xff\xda") + 12)] = places.integers(0, 256)
        has_jpeg_tables(memoryview(damaged))
