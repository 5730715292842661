"""The types that programs of users are checked against: what the documentation shows is accepted."""

import ast
import dataclasses
import inspect
import subprocess
import sys

import pytest

from reelabel import PrepareVideo

PROGRAM = """
import gzip
import mmap
import tempfile
import zipfile

import numpy as np
import reelabel


class Ranges:
    size_bytes = 1

    def read(self, start: int, size: int) -> bytes:
        return b""


def opened(path: str, archive: zipfile.ZipFile, mapped: mmap.mmap) -> None:
    reelabel.open(Ranges())
    reelabel.open(gzip.GzipFile(path))
    reelabel.open(archive.open(path))
    reelabel.open(tempfile.SpooledTemporaryFile())
    reelabel.open(mapped)
    with open(path, "rb") as file:
        reelabel.open(file)


def prepared() -> None:
    reelabel.PrepareVideo()
    reelabel.PrepareVideo(sampling={"fps": 1}, output_format="numpy", s3={"region": "eu-west-1"}, cache_dir="copies")
    reelabel.PrepareVideo(sampling=reelabel.Sampling(), web=reelabel.WebOptions(), allow_roots=["/videos"])


def first(frames: reelabel.Frames) -> int:
    return int(frames[np.int64(0)].max())


reelabel.open(3)
"""


@pytest.mark.system
def test_what_the_documentation_shows_passes_strict_type_checks(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)

    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "Found 1 error" in checked.stdout, checked.stdout + checked.stderr
    assert f"program.py:{len(PROGRAM.splitlines())}: error" in checked.stdout


def test_the_constructor_that_type_checkers_see_has_all_options_of_the_stage():
    (seen,) = (
        node
        for node in ast.walk(ast.parse(inspect.getsource(PrepareVideo)))
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    )

    assert [argument.arg for argument in seen.args.kwonlyargs] == [
        field.name for field in dataclasses.fields(PrepareVideo)
    ]
