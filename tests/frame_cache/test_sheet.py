"""A sheet shows each picture, or why it cannot, whatever its texts hold."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from reelabel.result import Frames
from tasks.frame_cache.sheet import Picture, Section, draw_sheet, picture_frames, scale
from tests.reelabel.frames.conftest import keyframes

__all__ = ["keyframes"]


def colours_of(sheet):
    return {colour for _, colour in sheet.getcolors(maxcolors=2**20)}


@pytest.mark.parametrize("size", [(1, 1), (10, 2000), (2000, 10), (64, 64)])
def test_frames_of_any_size_are_shown(size):
    red = scale(np.full((*size, 3), (255, 0, 0), np.uint8))

    assert max(red.size) == 148
    assert (255, 0, 0) in colours_of(draw_sheet("red", "", [Section(pictures=(Picture(image=red),))]))


@pytest.mark.parametrize(("aspect", "size"), [(1.0, (320, 180)), (0.5, (320, 360)), (0.25, (178, 400))])
def test_a_frame_is_as_large_as_its_box_allows(aspect, size):
    assert scale(np.zeros((90, 160, 3), np.uint8), pixel_aspect=aspect, box_px=(320, 400)).size == size


def test_hostile_texts_and_errors_stay_in_their_places():
    texts = ("a\nb\x1b[2J", "x" * 100_000, "\u202eabc", "")
    pictures = tuple(Picture(lines=texts, error="gone " * 1000) for _ in range(5))
    section = Section(title="\n".join(texts), facts=texts[1], pictures=pictures)

    sheet = draw_sheet("\n".join(texts), texts[1], [section], cell_px=300)

    assert sheet.width == 1280
    assert {sheet.getpixel((x, y)) for x in (0, 1279) for y in range(sheet.height)} == {(255, 255, 255)}
    assert {sheet.getpixel((x, sheet.height - 1)) for x in range(sheet.width)} == {(255, 255, 255)}


def test_a_sheet_may_be_empty():
    assert draw_sheet("nothing", "", []).size == (1280, 92)


@pytest.mark.parametrize(("pixel_aspect", "size"), [(1.0, (148, 74)), (0.5, (148, 148)), (0.0, (148, 74))])
def test_each_frame_is_shown_once_in_the_shape_of_its_pixels(keyframes, pixel_aspect, size):
    shown = keyframes.with_selection(picks=np.array([2, 0, 0]), pixel_aspect=pixel_aspect)

    pictures, note = picture_frames(shown)

    assert [(picture.lines, picture.times) for picture in pictures] == [(("2.000 s",), 1), (("0.000 s",), 2)]
    assert ([picture.image.size for picture in pictures], note) == ([size] * 2, "")


@pytest.mark.parametrize(("count", "note"), [(64, ""), (65, "64 of 65 pictures drawn, evenly spaced")])
def test_of_many_frames_some_are_shown(keyframes, count, note):
    numbers = np.arange(count)
    known = replace(
        keyframes.selection, pts=numbers, time_s=numbers / 1.0, frame_index=numbers, is_keyframe=numbers == 0,
        picks=numbers,
    )  # fmt: skip
    pictures, caption = picture_frames(Frames.of(np.zeros((count, 4, 4, 3), np.uint8), known))

    assert (len(pictures), caption) == (64, note)
    times_s = [float(picture.lines[0].removesuffix(" s")) for picture in pictures]
    assert times_s == sorted(set(times_s))
    assert times_s[-1] >= count - 2


def test_a_frame_that_is_shown_several_times_is_marked():
    image = scale(np.full((8, 8, 3), 255, np.uint8))
    single, double = (draw_sheet("", "", [Section(pictures=(Picture(image=image, times=times),))]) for times in (1, 2))

    assert (179, 38, 30) not in colours_of(single)
    assert (179, 38, 30) in colours_of(double)


def test_a_picture_that_is_missing_takes_the_place_of_a_wide_one():
    shown, missing = Picture(image=Image.new("RGB", (320, 200))), Picture(error="gone")
    sheets = [draw_sheet("", "", [Section(pictures=(picture,))], cell_px=320) for picture in (shown, missing)]

    assert sheets[0].size == sheets[1].size


def test_pictures_are_in_rows_below_the_heading_of_their_section():
    red, blue = (scale(np.full((8, 8, 3), colour, np.uint8)) for colour in ((255, 0, 0), (0, 0, 255)))
    sections = [Section(title="a", pictures=(Picture(image=red, lines=("x",)),) * 9), Section(title="b", facts="why")]

    few, many = (
        draw_sheet("", "", sections[:1]),
        draw_sheet("", "", [*sections, Section(pictures=(Picture(image=blue),))]),
    )

    row_px = 148 + 20 + 8
    assert few.height == 92 + 20 + 2 * row_px + 32
    assert few.crop((16, 76, 300, 96)).convert("L").getextrema()[0] < 128  # the heading
    assert many.height == few.height + (40 + 32) + (20 + row_px + 32)
    assert (0, 0, 255) in colours_of(many.crop((0, few.height, 1280, many.height)))
    assert (0, 0, 255) not in colours_of(many.crop((0, 0, 1280, few.height)))
