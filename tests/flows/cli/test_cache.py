"""`reelabel cache ls` shows files of each kind apart."""

import json

import pytest

from tasks.frame_cache.eviction import KINDS
from tests.command_line import reelabel


@pytest.fixture
def ls(tmp_path):
    for number, suffix in enumerate([*KINDS, "arrow", "vectors", "vectors"]):
        path = tmp_path / f"v1/00/{number:032x}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 100)
    environment = {"REELABEL_STORE_URI": tmp_path.as_uri(), "REELABEL_HOME": str(tmp_path / "home")}
    return lambda *options: reelabel(environment, "cache", "ls", *options)


def test_files_are_counted_by_kind(ls):
    listed = ls()

    assert listed.returncode == 0, listed.stderr
    assert len(listed.stdout.splitlines()) == len(KINDS) + 3
    assert listed.stderr.splitlines()[:3] == [
        "8 files, 800 bytes",
        "embedding file: 3, 300 bytes",
        "frame file: 2, 200 bytes",
    ]


def test_as_json_each_file_says_its_kind(ls):
    kinds = [json.loads(line)["kind"] for line in ls("--json").stdout.splitlines()]

    assert set(kinds) == set(KINDS.values())
    assert kinds.count("embedding file") == 3
