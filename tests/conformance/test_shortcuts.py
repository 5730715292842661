import pytest

from benchmarks.exactness.shortcuts import shortcut_faults
from benchmarks.media.matrix import matrix

# Containers that are never read in parts have no shortcut.
CELLS = [cell for cell in matrix() if cell.container in {"mp4", "mov", "mkv", "webm", "avi"}]


@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell.name) for cell in CELLS])
def test_parts_tables_and_threads_show_what_the_file_shows(cell, tmp_path):
    path = tmp_path / "clip"
    path.write_bytes(cell.make())

    _, faults = shortcut_faults(path)

    assert faults == []


def test_tables_are_made_of_plain_mp4(tmp_path):
    path = tmp_path / "clip"
    served = set()
    for cell in CELLS:
        if cell.container == "mp4" and cell.structure == "plain":
            path.write_bytes(cell.make())
            if shortcut_faults(path)[0]:
                served.add(cell.codec)

    assert {"h264", "hevc", "av1", "vp9"} <= served
