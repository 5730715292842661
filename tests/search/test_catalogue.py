"""Only embeddings of one model are searched together, and others are named."""

import pytest

from reelabel.errors import ConfigurationError
from tasks.domain import ModelIdentity
from tasks.search.catalogue import require_model


def test_models_without_embeddings_are_refused_and_those_with_some_named(world):
    other = ModelIdentity(name="clip")

    require_model({world.model: 1}, world.model)
    with pytest.raises(ConfigurationError, match=r"siglip \(abcdef01\): 1 video.*cannot be compared"):
        require_model({world.model: 1}, other)
    with pytest.raises(ConfigurationError, match="No described videos to search"):
        require_model({}, other)


@pytest.mark.parametrize("changed", [{"fingerprint": "x"}, {"name": "x"}])
def test_each_version_of_a_model_has_its_own_index(world, changed):
    world.add_random(1)
    world.search([1.0] * world.size)

    world.model = world.model.model_copy(update=changed)

    assert len(world.index().missing(world.table()["key"])) == 1
