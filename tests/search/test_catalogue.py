"""Only embeddings of one model are searched together, and others are named."""

import pytest

from reelabel.errors import ConfigurationError
from tasks.domain import ModelIdentity
from tasks.search.catalogue import TableCatalogue, VectorSpace, choose_space


def test_jobs_are_selected_by_dataset_and_task(world):
    world.list("a.mp4", "v1/a", dataset="films", task="colour")
    world.list("b.mp4", "v1/b", dataset="films", task="shape")
    world.list("c.mp4", "v1/c", dataset="ads", task="shape")
    catalogue = TableCatalogue({world.space: world.table()})

    def ids(**selected):
        return catalogue.read(world.space, **selected)["job_id"].to_list()

    assert ids() == ["job-a.mp4", "job-b.mp4", "job-c.mp4"]
    assert ids(dataset="films") == ["job-a.mp4", "job-b.mp4"]
    assert ids(dataset="films", task="shape") == ["job-b.mp4"]
    assert ids(dataset="none") == []


def test_models_without_embeddings_are_refused_and_those_with_some_named(world):
    world.list("a.mp4", "v1/a")
    catalogue = TableCatalogue({world.space: world.table()})
    other = ModelIdentity(name="clip")

    assert choose_space(catalogue, world.model) == world.space
    with pytest.raises(ConfigurationError, match=r"siglip \(abcdef01\), 32 dimensions: 1 video.*cannot be compared"):
        choose_space(catalogue, other)
    with pytest.raises(ConfigurationError, match="nothing to search yet"):
        choose_space(TableCatalogue({}), other)


def test_spaces_differ_by_model_version_and_size(world):
    model = world.model
    spaces = {
        VectorSpace(model=model, dimensions=32).key,
        VectorSpace(model=model, dimensions=33).key,
        VectorSpace(model=model.model_copy(update={"fingerprint": "x"}), dimensions=32).key,
        VectorSpace(model=model.model_copy(update={"name": "x"}), dimensions=32).key,
    }

    assert len(spaces) == 4
