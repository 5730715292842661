import shutil

import pytest

from infra.errors import ModelError
from tasks.model.identity import TINY_MODEL, fingerprint_folder, read_model_card


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(TINY_MODEL, tmp_path / "model")


def test_the_tiny_model_is_the_default():
    card = read_model_card(None)

    assert card.location == str(TINY_MODEL)
    assert card.size_multiple_px == 28
    assert card.max_pixels == 56 * 56


def test_a_moved_folder_is_the_same_model(folder, tmp_path):
    before = fingerprint_folder(folder)
    moved = folder.rename(tmp_path / "elsewhere")

    assert fingerprint_folder(moved) == before


def test_other_weights_are_another_model(folder):
    before = fingerprint_folder(folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")

    assert fingerprint_folder(folder) != before


def test_a_folder_without_weights_is_refused(folder):
    (folder / "model.safetensors").unlink()

    with pytest.raises(ModelError, match="no weights"):
        read_model_card(str(folder))


def test_a_folder_without_a_configuration_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"no config\.json"):
        read_model_card(str(tmp_path))


def test_a_missing_folder_is_named():
    with pytest.raises(ModelError, match="no model folder"):
        read_model_card("./nowhere")
