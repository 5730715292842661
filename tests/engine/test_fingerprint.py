"""Which changes of a folder make it another model."""

import hashlib
import os
import shutil

import pytest

from reelabel_engine.fingerprint import fingerprint_folder
from tasks.model.identity import TINY_MODEL


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(TINY_MODEL, tmp_path / "model")


def test_a_moved_folder_is_the_same_model(folder, tmp_path):
    before = fingerprint_folder(folder)
    moved = folder.rename(tmp_path / "elsewhere")

    assert fingerprint_folder(moved) == before


def test_different_weights_are_a_different_model(folder):
    before = fingerprint_folder(folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")

    assert fingerprint_folder(folder) != before


@pytest.fixture
def large_weights(folder, tmp_path, monkeypatch):
    """The folder's weights, too large to be read each time; digests are kept in a folder of this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    weights = folder / "model.safetensors"
    os.truncate(weights, 70_000_000)
    return weights


@pytest.mark.parametrize("changed_byte", [0, 40_000_001, 69_999_999])
def test_a_changed_byte_anywhere_in_large_weights_is_a_different_model(folder, large_weights, changed_byte):
    before = fingerprint_folder(folder)

    with large_weights.open("r+b") as file:
        file.seek(changed_byte)
        file.write(b"\xfe")

    assert fingerprint_folder(folder) != before


def test_large_weights_are_read_once_and_again_where_nothing_can_be_kept(folder, large_weights, tmp_path, monkeypatch):
    read, file_digest = [], hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda file, name: read.append(file.name) or file_digest(file, name))
    expected = fingerprint_folder(folder)

    assert fingerprint_folder(folder) == expected
    assert len(read) == 1
    [kept] = (tmp_path / "caches" / "reelabel" / "digests").iterdir()
    kept.write_text("damaged")
    assert fingerprint_folder(folder) == expected
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "config.json"))  # which is no folder
    assert fingerprint_folder(folder) == expected
    assert read == [str(large_weights)] * 3


def test_notes_that_tools_leave_in_a_models_folder_do_not_change_the_model(folder):
    before = fingerprint_folder(folder)

    notes = folder / ".cache" / "huggingface" / "download" / "model.safetensors.metadata"
    notes.parent.mkdir(parents=True)
    notes.write_text("1764000000.0")
    (folder / ".gitattributes").write_text("*.safetensors filter=lfs")

    assert fingerprint_folder(folder) == before
