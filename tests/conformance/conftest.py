"""The matrix's files, and the verdict on each of them, made once per test session."""

from functools import cache

import pytest

from benchmarks.exactness.conformance import check_cell


@pytest.fixture(scope="session")
def file_of(tmp_path_factory):
    """Make a cell's file, which must not be changed."""
    folder = tmp_path_factory.mktemp("matrix")

    @cache
    def file_of(cell):
        path = folder / cell.name / "clip"
        path.parent.mkdir(parents=True)
        path.write_bytes(cell.make())
        return path

    return file_of


@pytest.fixture(scope="session")
def verdict_of(file_of):
    """Judge a cell's file."""
    return cache(lambda cell: check_cell(cell, file_of(cell)))
