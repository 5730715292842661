"""The verdict on each cell of the matrix, made once per test session."""

from functools import cache

import pytest

from benchmarks.exactness.conformance import check_cell


@pytest.fixture(scope="session")
def verdict_of(tmp_path_factory):
    """Make a cell's file and judge it."""
    folder = tmp_path_factory.mktemp("matrix")

    @cache
    def verdict_of(cell):
        path = folder / "clip"
        path.write_bytes(cell.make())
        return check_cell(cell, path)

    return verdict_of
