"""Backends of the towers are found by name, or told to be missing."""

import pytest

from reelabel.errors import ConfigurationError
from reelabel_engine.errors import ModelError
from tasks.embedding import backend as registry
from tasks.embedding.backend import TowersBackend, TowersOptions, register, towers_backend
from tasks.embedding.identity import TINY_TOWERS


class OwnBackend(TowersBackend):
    name = "own"

    def card(self, name, *, revision=None):
        raise ModelError(f"There is no {name} at {revision}.")

    def open(self, card, options):
        raise NotImplementedError


@pytest.fixture
def own(monkeypatch):
    monkeypatch.setattr(registry, "_LOADERS", dict(registry._LOADERS))
    register(OwnBackend())


def test_the_default_backend_opens_a_model_without_starting_it(tmp_path):
    backend = towers_backend()

    card = backend.card(str(TINY_TOWERS))
    towers = backend.open(card, TowersOptions(log_path=tmp_path / "log"))

    assert (card.identity.name, card.location) == ("reelabel-tiny-siglip", str(TINY_TOWERS))
    assert towers.starts == 0


@pytest.mark.usefixtures("own")
def test_a_backend_from_outside_is_found_by_its_name():
    assert isinstance(towers_backend("own"), OwnBackend)


@pytest.mark.usefixtures("own")
def test_a_backend_that_does_not_exist_is_told_with_those_that_do():
    with pytest.raises(ConfigurationError, match="no backend other for embeddings; use one of transformers, own"):
        towers_backend("other")
