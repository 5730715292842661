"""Only embeddings of one model are searched together, and others are named."""

import pytest

from reelabel.errors import ConfigurationError
from tasks.domain import ModelIdentity
from tasks.search.catalogue import VectorSpace, choose_space


class Listing(dict):
    """How many embedding files each space has."""

    def spaces(self):
        return self


def test_models_without_embeddings_are_refused_and_those_with_some_named(world):
    catalogue = Listing({world.space: 1})
    other = ModelIdentity(name="clip")

    assert choose_space(catalogue, world.model) == world.space
    with pytest.raises(ConfigurationError, match=r"siglip \(abcdef01\), 32 dimensions: 1 video.*cannot be compared"):
        choose_space(catalogue, other)
    with pytest.raises(ConfigurationError, match="nothing to search yet"):
        choose_space(Listing(), other)


def test_spaces_differ_by_model_version_and_size(world):
    model = world.model
    spaces = {
        VectorSpace(model=model, dimensions=32).key,
        VectorSpace(model=model, dimensions=33).key,
        VectorSpace(model=model.model_copy(update={"fingerprint": "x"}), dimensions=32).key,
        VectorSpace(model=model.model_copy(update={"name": "x"}), dimensions=32).key,
    }

    assert len(spaces) == 4
