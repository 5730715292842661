"""A fragment that contradicts itself, or what the index says of it, is not used."""

import numpy as np
import pytest

from reelabel.errors import FrameFileError
from tasks.search.codes import LARGEST_SCALE
from tasks.search.fragment import Rows

EXPECTED = {"rows": 3, "files": 2, "dimensions": 4, "lists": 5}


def fragment(path, **changed):
    columns = {
        "lists": np.array([0, 2, 4], np.int32),
        "files": np.array([1, 0, 1], np.uint32),
        "pts_ms": np.array([0, 1, 2]),
        "scales": np.array([0, LARGEST_SCALE, 0.001], np.float32),
        "codes": np.ones((3, 4), np.int8),
        "fine": np.ones((3, 4), np.int8),
    }
    changed = {name: np.asarray(values, columns[name].dtype) for name, values in changed.items()}
    path.write_bytes(Rows(**columns | changed).encode())
    return path


def test_a_fragment_is_read_as_it_was_written(tmp_path):
    rows = Rows.open(fragment(tmp_path / "a.arrow"), **EXPECTED)
    assert (rows.lists.tolist(), rows.files.tolist(), rows.pts_ms.tolist()) == ([0, 2, 4], [1, 0, 1], [0, 1, 2])


@pytest.mark.parametrize(
    "changed",
    [
        {"lists": [0, 2, 5]},
        {"lists": [-1, 2, 4]},
        {"files": [0, 1, 2]},
        {"scales": [0, 0, np.nan]},
        {"scales": [0, 0, -0.001]},
        {"scales": [0, 0, 2 * LARGEST_SCALE]},
    ],
)
def test_a_fragment_that_names_what_there_is_not_is_refused(tmp_path, changed):
    with pytest.raises(FrameFileError, match="contradicts what the index says"):
        Rows.open(fragment(tmp_path / "a.arrow", **changed), **EXPECTED)


@pytest.mark.parametrize("changed", [{"rows": 2}, {"rows": 4}, {"dimensions": 3}])
def test_a_fragment_of_another_size_is_refused(tmp_path, changed):
    with pytest.raises(FrameFileError):
        Rows.open(fragment(tmp_path / "a.arrow"), **EXPECTED | changed)
