"""Photographs that were taken with the camera turned: their EXIF data says how to show them."""

import numpy as np
import pytest
from PIL import Image, ImageOps

from reelabel.extract import extract_keyframes
from reelabel.limits import Limits
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
    stored = extract_keyframes(save(tmp_path / f"plain-{name}")).images[0]

    shown = extract_keyframes(save_turned(tmp_path / name, orientation)).images[0]

    np.testing.assert_array_equal(shown, turned_by_pillow(stored, orientation))


def test_a_locked_process_turns_photographs(tmp_path):
    stored = extract_keyframes(save(tmp_path / "plain.jpg")).images[0]
    turned = {n: save_turned(tmp_path / f"{n}.jpg", n) for n in EVERY_ORIENTATION}

    with DecodePool(processes=1, timeout_s=20, memory_mib=2048) as pool:
        shown = {n: pool.extract(path, sampling=Sampling(), limits=Limits()) for n, path in turned.items()}

    for orientation, frames in shown.items():
        np.testing.assert_array_equal(frames.images[0], turned_by_pillow(stored, orientation))


@pytest.mark.parametrize(
    "exif", [b"", b"Exif\0\0", b"Exif\0\0MM\0*\xff\xff\xff\xff", b"Exif\0\0II*\0\x08\0\0\0\xff\xff"]
)
def test_damaged_exif_data_leaves_a_photograph_as_it_is(tmp_path, exif):
    stored = extract_keyframes(save(tmp_path / "plain.jpg")).images

    shown = extract_keyframes(save(tmp_path / "photo.jpg", exif=exif)).images

    np.testing.assert_array_equal(shown, stored)
