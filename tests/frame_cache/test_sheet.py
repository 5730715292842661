"""A sheet shows each picture, or why it cannot, whatever its texts hold."""

import numpy as np
import pytest

from tasks.frame_cache.sheet import Picture, Section, draw_sheet, scale


def colours_of(sheet):
    return {colour for _, colour in sheet.getcolors(maxcolors=2**20)}


@pytest.mark.parametrize("size", [(1, 1), (10, 2000), (2000, 10), (64, 64)])
def test_frames_of_any_size_are_shown(size):
    red = scale(np.full((*size, 3), (255, 0, 0), np.uint8))

    assert max(red.size) == 148
    assert (255, 0, 0) in colours_of(draw_sheet("red", "", [Section(pictures=(Picture(image=red),))]))


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
