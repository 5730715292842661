"""The sheet shows each moment, or why it cannot, whatever its texts hold."""

import numpy as np
import pytest
from tasks.search.sheet import Cell, draw_moments


def colours_of(sheet):
    return {colour for _, colour in sheet.getcolors(maxcolors=2**20)}


@pytest.mark.parametrize("size", [(1, 1), (10, 2000), (2000, 10), (64, 64)])
def test_frames_of_any_size_are_shown(size):
    red = np.full((*size, 3), (255, 0, 0), np.uint8)

    assert (255, 0, 0) in colours_of(draw_moments("red", [Cell(lines=("0.9",), image=red)]))


def test_hostile_texts_and_faults_stay_in_their_places():
    texts = ("a\nb\x1b[2J", "x" * 100_000, "\u202eabc", "")
    cells = [Cell(lines=texts, fault="gone " * 1000) for _ in range(5)]

    sheet = draw_moments("\n".join(texts), cells)

    assert sheet.size == (20 * 2 + 4 * 300 + 3 * 16, 3 * 20 + 20 + 2 * (220 + 4 * 18 + 16))
    assert {sheet.getpixel((x, sheet.height - 1)) for x in range(sheet.width)} == {(255, 255, 255)}


def test_nothing_found_is_an_empty_sheet():
    assert draw_moments("nothing", []).size == (340, 80)
