from functools import cache

import pytest

from benchmarks.exactness.shortcuts import shortcut_faults
from benchmarks.media.matrix import matrix

pytestmark = pytest.mark.xdist_group("matrix")

# Containers that are never read in parts have no shortcut.
CELLS = [cell for cell in matrix() if cell.container in {"mp4", "mov", "mkv", "webm", "avi"}]


@pytest.fixture(scope="session")
def shortcut_of(file_of):
    """Tell whether a keyframe table could be made of a cell's file, and what differs."""
    return cache(lambda cell: shortcut_faults(file_of(cell)))


@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell.name) for cell in CELLS])
def test_ranges_tables_and_threads_give_the_frames_of_the_whole_file(cell, shortcut_of):
    _, faults = shortcut_of(cell)

    assert faults == []


def test_keyframe_tables_cover_plain_mp4(shortcut_of):
    plain = [cell for cell in CELLS if cell.container == "mp4" and cell.structure == "plain"]

    served = {cell.codec for cell in plain if shortcut_of(cell)[0]}

    assert {"h264", "hevc", "av1", "vp9"} <= served
