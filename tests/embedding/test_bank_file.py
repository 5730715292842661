"""Banks on the store are those that were put there."""

import numpy as np
import pytest

from infra.settings import StoreSettings
from reelabel.errors import ConfigurationError
from reelabel.seal import Seal
from reelabel.sources.object_store import ObjectStore
from tasks.domain import ModelIdentity
from tasks.embedding import bank_file
from tasks.embedding.bank_file import BankFiles
from tests.description.colours import INFO

TEXTS = ("a dog", "ein Hündchen")
MODEL = ModelIdentity(name="siglip", fingerprint="f")
VECTORS = np.eye(2, 3, dtype=np.float32)


@pytest.fixture
def files(tmp_path):
    root = f"file://{tmp_path}"
    return BankFiles(objects=ObjectStore(StoreSettings(uri=root)), root_uri=root, seal=Seal(b"k" * 32))


def test_texts_come_back_by_their_digest(files):
    digest = files.save_texts(TEXTS)

    assert files.save_texts(TEXTS) == digest != files.save_texts(TEXTS[::-1])
    assert files.read_texts(digest).texts == TEXTS


@pytest.mark.parametrize("altered", ['["a cat"]', "5", "null", "{", "[NaN]", "[" * 100_000])
def test_texts_that_were_altered_or_are_gone_are_refused(files, tmp_path, altered):
    digest = files.save_texts(TEXTS)
    [path] = (tmp_path / "banks").iterdir()
    path.write_text(altered)

    for wrong in (digest, "0" * 32):
        with pytest.raises(ConfigurationError, match="is missing or was altered; describe again with the bank's file"):
            files.read_texts(wrong)


def test_vectors_come_back_for_the_same_texts_and_model_only(files, monkeypatch):
    files.save_vectors(TEXTS, VECTORS, INFO, MODEL)

    assert files.load_vectors(TEXTS, MODEL)[0].tolist() == VECTORS.tolist()
    assert files.load_vectors(TEXTS[:1], MODEL) is None
    assert files.load_vectors(TEXTS, MODEL.model_copy(update={"fingerprint": "g"})) is None
    monkeypatch.setattr(bank_file, "encoder_versions", lambda _python: {"torch": "another"})
    assert files.load_vectors(TEXTS, MODEL) is None


def test_vectors_that_were_altered_are_regenerated(files, tmp_path):
    files.save_vectors(TEXTS, VECTORS, INFO, MODEL)
    [path] = (tmp_path / "banks").iterdir()
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\1")

    assert files.load_vectors(TEXTS, MODEL) is None
    files.save_vectors(TEXTS, VECTORS, INFO, MODEL)
    assert files.load_vectors(TEXTS, MODEL) is not None
