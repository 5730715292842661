from functools import cache

import pytest

from benchmarks.media.matrix import Cell, matrix
from tests.conformance.shortcuts import dense_faults, shortcut_faults

pytestmark = pytest.mark.xdist_group("matrix")

# Containers that are never read in parts have no shortcut.
CELLS = [cell for cell in matrix() if cell.container in {"mp4", "mov", "mkv", "webm", "avi"}]


@pytest.fixture(scope="session")
def shortcut_of(file_of):
    """Tell whether a cell's file is read in parts, and what differs."""
    return cache(lambda cell: shortcut_faults(file_of(cell)))


@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell.name) for cell in CELLS])
def test_ranges_headers_and_threads_give_the_frames_of_the_whole_file(cell, shortcut_of):
    _, faults = shortcut_of(cell)

    assert faults == []


def test_plain_mp4_is_read_in_parts(shortcut_of):
    plain = [cell for cell in CELLS if cell.container == "mp4" and cell.structure == "plain"]

    served = {cell.codec for cell in plain if shortcut_of(cell)[0]}

    assert {"h264", "hevc", "av1", "vp9"} <= served


@pytest.fixture(scope="session")
def dense_faults_of(file_of):
    """Count the samplings between keyframes that a cell's file serves in parts, and tell what differs."""
    return cache(lambda cell: dense_faults(file_of(cell)))


@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell.name) for cell in CELLS if cell.container != "avi"])
def test_frames_between_keyframes_read_in_parts_equal_a_linear_decode(cell, dense_faults_of):
    _, faults = dense_faults_of(cell)

    assert faults == []


@pytest.mark.parametrize("name", ["mp4/h264", "mp4/hevc", "mp4/vp9", "mp4/av1", "mkv/h264", "mkv/hevc", "webm/vp9"])
def test_plain_files_serve_frames_between_keyframes_in_parts(name, dense_faults_of):
    served, _ = dense_faults_of(Cell(*name.split("/")))

    assert served >= 2
