"""Vectors as two bytes for each component: how near they come, and what each row scores."""

import numpy as np
import pytest

from tasks.search import codes
from tasks.search.codes import dequantize, quantize, score_rows


@pytest.fixture
def vectors():
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(20, 32)) * 10.0 ** -np.arange(20)[:, None].clip(max=4)
    vectors[7] = 0
    return vectors.astype(np.float32)


def test_a_vector_comes_back_to_a_part_of_its_own_largest_component(vectors):
    far = np.abs(dequantize(*quantize(vectors)) - vectors).max(axis=1)
    assert (far <= np.abs(vectors).max(axis=1) / 30_000).all()


def test_each_of_some_rows_is_scored_by_its_own_scale_in_blocks_or_at_once(vectors, monkeypatch):
    first, _, scales = quantize(vectors)
    query = vectors[2] / np.linalg.norm(vectors[2])
    rows = np.array([2, 3, 7, 8, 19])

    at_once = score_rows(first, scales, rows, query)
    monkeypatch.setattr(codes, "_BLOCK_BYTES", 2 * 4 * 32)

    assert at_once == pytest.approx(vectors[rows] @ query, rel=0.05, abs=1e-5)
    assert score_rows(first, scales, rows, query).tolist() == at_once.tolist()
