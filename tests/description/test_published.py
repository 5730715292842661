"""The published method is repeated exactly: against its formulas, written down one by one in plain NumPy."""

import numpy as np
import pytest

from tasks.description.chunks import cut_chunks, embed_chunks
from tasks.description.embeddings import Embeddings, normalize
from tasks.description.pooling import TextBank
from tasks.description.scenes.detect import detect_published
from tests.description.colours import describe

FRAMES, CHUNK_S, BEST = 16, 10.0, 5


def transcribe(frames_of, tags, captions):
    """Compute what the published formulas say, as they say it."""
    found_tags, found_captions = [], []
    for e in frames_of:
        p = np.mean(e, axis=0)
        p = p / np.linalg.norm(p)
        s = tags @ p
        top = sorted(range(len(s)), key=lambda j: (-s[j], j))[:BEST]
        found_tags.append({j: s[j] for j in top})
        c = captions @ p
        found_captions.append((int(np.argmax(c)), np.max(c)))
    mean = {j: np.mean([one[j] for one in found_tags if j in one]) for one in found_tags for j in one}
    best = sorted(mean.items(), key=lambda item: -item[1])[:BEST]
    return best, max(found_captions, key=lambda one: one[1])


@pytest.mark.parametrize("seed", range(5))
def test_tags_and_caption_are_those_of_the_formulas(seed):
    rng = np.random.default_rng(seed)
    durations = [CHUNK_S, CHUNK_S, CHUNK_S, 4.0]
    centres = normalize(rng.normal(size=(6, 24)))
    scenes = np.sort(rng.integers(0, len(centres), FRAMES * len(durations)))
    vectors = normalize(centres[scenes] + 0.1 * rng.normal(size=(len(scenes), 24)))
    tags, captions = normalize(rng.normal(size=(20, 24))), normalize(rng.normal(size=(40, 24)))
    chunks = cut_chunks(sum(durations), chunk_s=CHUNK_S)
    times_s = np.concatenate([chunk.times_s(FRAMES) for chunk in chunks])

    described = describe(
        Embeddings(vectors=vectors, pts_ms=(times_s * 1000).astype(np.int64)),
        chunks,
        tags=TextBank(texts=tuple(f"tag {n}" for n in range(20)), vectors=tags),
        captions=TextBank(texts=tuple(f"caption {n}" for n in range(40)), vectors=captions),
        method="published",
    )
    best, (caption, caption_score) = transcribe(np.split(vectors, len(durations)), tags, captions)

    assert [tag.text for tag in described.tags] == [f"tag {j}" for j, _ in best]
    assert [tag.score for tag in described.tags] == pytest.approx([score for _, score in best], abs=1e-6)
    assert (described.caption.text, described.caption.score) == (
        f"caption {caption}",
        pytest.approx(caption_score, abs=1e-6),
    )


def test_frames_that_cancel_out_fit_nothing_and_are_no_nan():
    """A score that is not a number cannot be written to Postgres."""
    vectors = np.array([[1, 0], [-1, 0]], np.float32)
    texts = TextBank(texts=("a", "b"), vectors=np.eye(2, dtype=np.float32))
    chunks = cut_chunks(2, chunk_s=2)
    embeddings = Embeddings(vectors=vectors, pts_ms=np.array([0, 1000]))

    described = describe(embeddings, chunks, tags=texts, captions=texts, method="published")
    blank = Embeddings(vectors=np.zeros((2, 2), np.float32), pts_ms=np.arange(2))
    _, average = detect_published(embed_chunks(chunks, blank))

    assert [tag.score for tag in (*described.tags, described.caption)] == [0, 0, 0]
    assert average.vector.tolist() == [0, 0]
