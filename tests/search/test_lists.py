"""Lists hold what is nearest to their centroids, however many there are."""

import numpy as np
import pytest

from tasks.description.embeddings import normalize
from tasks.search.lists import Lists, count_lists, train_lists


@pytest.mark.parametrize(("rows", "lists"), [(0, 1), (1, 1), (3, 2), (10, 8), (100, 32), (10**6, 2048), (10**7, 8192)])
def test_the_number_of_lists_grows_as_the_root_of_the_number_of_vectors(rows, lists):
    assert count_lists(rows) == lists


def test_a_centroid_is_the_mean_of_its_vectors():
    scenes = normalize(np.random.default_rng(0).normal(size=(4, 32)).astype(np.float32))

    found = train_lists(scenes.repeat(50, axis=0), 4)

    assert np.sort(found @ scenes.T, axis=1)[:, -1] == pytest.approx(np.ones(4), abs=1e-5)


def test_among_many_lists_a_vector_is_put_into_the_nearest_or_one_hardly_farther():
    rng = np.random.default_rng(0)
    scenes = rng.normal(size=(500, 64))
    vectors = normalize((scenes[rng.integers(0, 500, 5000)] + 0.5 * rng.normal(size=(5000, 64))).astype(np.float32))
    centroids = train_lists(vectors, 1024)

    lists = Lists(centroids).assign(vectors)

    scores = vectors @ centroids.T
    assert (lists == scores.argmax(axis=1)).mean() > 0.95
    assert (scores.max(axis=1) - scores[np.arange(5000), lists]).mean() < 0.01


def test_the_length_of_a_vector_does_not_matter():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(100, 32)).astype(np.float32)
    lists = Lists(train_lists(normalize(vectors), 16))

    assert lists.assign(np.rint(1000 * vectors).astype(np.int16)).tolist() == lists.assign(vectors).tolist()
