"""The memory of embedding a film does not grow with its length: frames are decoded and embedded in batches."""

import tracemalloc

import pytest

from benchmarks.embedding import tiny_embedder
from benchmarks.media.clips import BenchClip
from reelabel.pool.decode_pool import DecodePool
from reelabel.segment import WHOLE

pytestmark = pytest.mark.system

FRAME_BYTES = 240 * 136 * 3


def test_a_film_is_embedded_in_much_less_memory_than_its_frames_take(tmp_path):
    film = BenchClip(width_px=240, height_px=136, gop=60, length_s=20 * 60).make(tmp_path)
    with DecodePool(processes=1) as pool, tiny_embedder(pool, tmp_path) as embedder:
        tracemalloc.start()
        found = embedder.embed_segment(str(film), WHOLE).embeddings
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert peak_bytes < len(found.pts_ms) * FRAME_BYTES / 2
