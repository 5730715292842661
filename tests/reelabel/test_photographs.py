"""Photographs that were taken with the camera turned: their EXIF data says how to show them."""

import struct

import av
import numpy as np
import pytest
from PIL import Image, ImageOps

from reelabel.errors import VideoUnreadableError
from reelabel.extract import extract_local
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.sampling.options import Sampling

ORIENTATION = 0x112
EVERY_ORIENTATION = range(1, 9)


def save(path, **options):
    """Save a picture whose corners differ, so that no two orientations look alike."""
    pixels = np.zeros((84, 56, 3), np.uint8)
    pixels[:28, :28], pixels[:28, 28:], pixels[56:, 28:] = (255, 0, 0), (0, 255, 0), (0, 0, 255)
    Image.fromarray(pixels).save(path, **options)
    return path


def save_turned(path, orientation, **options):
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return save(path, exif=exif, **options)


def turned_by_pillow(image, orientation):
    picture = Image.fromarray(image)
    picture.getexif()[ORIENTATION] = orientation
    return np.asarray(ImageOps.exif_transpose(picture))


@pytest.mark.parametrize("name", ["photo.jpg", "photo.png", "photo.webp"])
@pytest.mark.parametrize("orientation", EVERY_ORIENTATION)
def test_a_photograph_is_turned_as_its_exif_data_says(tmp_path, name, orientation):
    stored = extract_local(save(tmp_path / f"plain-{name}")).unique[0]

    shown = extract_local(save_turned(tmp_path / name, orientation)).unique[0]

    np.testing.assert_array_equal(shown, turned_by_pillow(stored, orientation))


def test_a_locked_process_turns_photographs(tmp_path):
    stored = extract_local(save(tmp_path / "plain.jpg")).unique[0]
    turned = {n: save_turned(tmp_path / f"{n}.jpg", n) for n in EVERY_ORIENTATION}

    with DecodePool(processes=1, timeout_s=20, memory_mib=2048) as pool:
        shown = {n: pool.extract(path, sampling=Sampling(), limits=Limits()) for n, path in turned.items()}

    for orientation, frames in shown.items():
        np.testing.assert_array_equal(frames.unique[0], turned_by_pillow(stored, orientation))


@pytest.mark.parametrize(
    "exif", [b"", b"Exif\0\0", b"Exif\0\0MM\0*\xff\xff\xff\xff", b"Exif\0\0II*\0\x08\0\0\0\xff\xff"]
)
def test_damaged_exif_data_leaves_a_photograph_as_it_is(tmp_path, exif):
    stored = extract_local(save(tmp_path / "plain.jpg")).unique

    shown = extract_local(save(tmp_path / "photo.jpg", exif=exif)).unique

    np.testing.assert_array_equal(shown, stored)


def test_a_photograph_in_tiles_is_refused_instead_of_shown_as_one_of_them(make_clip, tmp_path):
    path = tmp_path / "photo.heic"
    path.write_bytes(in_tiles(make_clip(codec="libx265", frames=1, size=(64, 64)), rows=2, columns=2, side_px=64))

    with pytest.raises(
        VideoUnreadableError, match=r"^The picture is stored in 4 tiles, .*; convert it to JPEG or PNG\.$"
    ):
        extract_local(path)


def test_an_animated_webp_is_called_what_it_is(tmp_path):
    pictures = [Image.new("RGB", (56, 84), colour) for colour in ("red", "blue")]
    pictures[0].save(tmp_path / "clip.webp", save_all=True, append_images=pictures[1:])
    pictures[0].save(tmp_path / "photo.webp", exif=b"Exif\0\0")

    with pytest.raises(VideoUnreadableError, match=r"^The file is an animated WebP, .*; convert it to MP4\.$"):
        extract_local(tmp_path / "clip.webp")
    assert extract_local(tmp_path / "photo.webp").selection.total_frames == 1


def in_tiles(clip, *, rows, columns, side_px):
    """Make a HEIC file (ISO/IEC 23008-12, 6.6.2.3) whose picture is a grid of tiles, each the first frame of a clip."""
    with av.open(str(clip)) as container:
        tile, hvcc = bytes(next(container.demux(video=0))), container.streams.video[0].codec_context.extradata
    count = rows * columns
    size = struct.pack(">HH", columns * side_px, rows * side_px)
    contents = [*[tile] * count, bytes([0, 0, rows - 1, columns - 1]) + size]
    numbers, grid = range(1, count + 1), count + 1
    items = [full(b"infe", 2, struct.pack(">HH4sB", number, 0, b"hvc1", 0)) for number in numbers]
    items.append(full(b"infe", 2, struct.pack(">HH4sB", grid, 0, b"grid", 0)))
    sides = (struct.pack(">II", side_px, side_px), struct.pack(">II", columns * side_px, rows * side_px))
    properties = [box(b"hvcC", hvcc), *(full(b"ispe", 0, each) for each in sides)]
    used = [struct.pack(">HBBB", number, 2, 0x81, 2) for number in numbers] + [struct.pack(">HBB", grid, 1, 3)]
    parts = [struct.pack(">HH", grid, count), *(struct.pack(">H", number) for number in numbers)]

    def meta(start):
        starts = start + np.cumsum([0, *map(len, contents)])
        extents = [
            struct.pack(">HHHII", number, 0, 1, at, len(content))
            for number, at, content in zip((*numbers, grid), starts, contents, strict=False)
        ]
        return full(
            b"meta",
            0,
            full(b"hdlr", 0, struct.pack(">I4s", 0, b"pict") + bytes(13)),
            full(b"pitm", 0, struct.pack(">H", grid)),
            full(b"iloc", 0, struct.pack(">HH", 0x4400, len(contents)), *extents),
            full(b"iinf", 0, struct.pack(">H", len(items)), *items),
            full(b"iref", 0, box(b"dimg", *parts)),
            box(b"iprp", box(b"ipco", *properties), full(b"ipma", 0, struct.pack(">I", len(used)), *used)),
        )

    head = box(b"ftyp", b"heic\0\0\0\0mif1heic")
    return head + meta(len(head) + len(meta(0)) + 8) + box(b"mdat", *contents)


def box(kind, *parts):
    body = b"".join(parts)
    return struct.pack(">I4s", 8 + len(body), kind) + body


def full(kind, version, *parts):
    return box(kind, bytes([version, 0, 0, 0]), *parts)
