"""Tags and captions of chunks and videos."""

import numpy as np
import pytest

from tasks.description.chunks import cut_chunks
from tasks.description.embeddings import Embeddings, normalize
from tasks.description.pooling import LogitScale, TextBank
from tests.description.colours import describe

AXES = np.eye(4, dtype=np.float32)
TAGS = TextBank(texts=("north", "east", "south", "west"), vectors=AXES)
CAPTIONS = TextBank(texts=("northeast", "southwest"), vectors=normalize(np.array([[1, 1, 0, 0], [0, 0, 1, 1.0]])))


def embeddings_of(vectors, every_ms=1000):
    vectors = normalize(np.array(vectors, np.float32))
    return Embeddings(vectors=vectors, pts_ms=np.arange(len(vectors), dtype=np.int64) * every_ms)


def describe_frames(vectors, duration_s, **options):
    return describe(embeddings_of(vectors), cut_chunks(duration_s, chunk_s=10), tags=TAGS, captions=CAPTIONS, **options)


def test_a_chunk_is_described_by_the_mean_of_its_frames():
    described = describe_frames([AXES[0]] * 6 + [AXES[1]] * 4, 10, top_k=2)

    [chunk] = described.chunks
    assert [tag.text for tag in chunk.tags] == ["north", "east"]
    assert [tag.score for tag in chunk.tags] == pytest.approx([0.6 / 0.52**0.5, 0.4 / 0.52**0.5])
    assert chunk.caption.text == "northeast"


def test_a_tag_of_a_video_is_weighted_by_duration_over_all_chunks():
    described = describe_frames([AXES[0]] * 10 + [AXES[2]] * 5, 15, top_k=2)

    assert [(tag.text, round(tag.score, 4)) for tag in described.tags] == [("north", 0.6667), ("south", 0.3333)]
    assert (described.caption.text, round(described.caption.score, 4)) == ("northeast", 0.4714)


def test_the_published_method_favours_a_rare_tag_and_the_default_does_not():
    # A tag that is the best of one short chunk only; another is second best everywhere.
    usual, rare = [[0.8, 0.6, 0, 0]] * 40, [[0, 0.6, 0, 0.8]] * 2
    frames = usual + rare

    described = describe_frames(frames, 42, top_k=1)
    published = describe_frames(frames, 42, top_k=1, method="published")

    assert [tag.text for tag in described.tags] == ["north"]
    assert {tag.text for tag in published.tags} <= {"north", "west"}
    assert published.tags[0].score == pytest.approx(0.8)
    assert described.tags[0].score == pytest.approx(0.8 * 40 / 42)


def test_a_chunk_without_frames_has_no_tags_and_counts_for_nothing():
    embeddings = Embeddings(vectors=AXES[[0, 0]], pts_ms=np.array([0, 21_000]))

    described = describe(embeddings, cut_chunks(30, chunk_s=10), tags=TAGS, captions=CAPTIONS)

    assert [(chunk.frames, len(chunk.tags)) for chunk in described.chunks] == [(1, 4), (0, 0), (1, 4)]
    assert described.tags[0].score == 1


@pytest.mark.parametrize("method", ["default", "published"])
def test_a_video_without_frames_has_an_empty_description(method):
    none = Embeddings(vectors=AXES[:0], pts_ms=np.array([], np.int64))

    described = describe(none, cut_chunks(0, chunk_s=10), tags=TAGS, captions=CAPTIONS, method=method)

    assert (described.tags, described.caption, described.chunks[0].caption) == ((), None, None)


@pytest.mark.parametrize("method", ["default", "published"])
def test_a_single_frame_of_no_duration_is_described(method):
    described = describe_frames([AXES[3]], 0.0, top_k=1, method=method)

    assert described.tags[0].text == "west"


def test_probabilities_are_the_models_sigmoid_and_left_out_without_a_bias():
    with_bias = describe_frames([AXES[0]], 1, logits=LogitScale(scale=10, bias=-5))
    without = describe_frames([AXES[0]], 1, logits=LogitScale(scale=10))

    assert with_bias.tags[0].probability == pytest.approx(1 / (1 + np.exp(-5)))
    assert without.tags[0].probability is None
    assert LogitScale(scale=1e6, bias=0).probability(-1) == pytest.approx(0)


def test_equal_scores_keep_the_order_of_the_bank():
    described = describe_frames([[1, 1, 1, 1]], 1, top_k=3)

    assert [tag.text for tag in described.tags] == ["north", "east", "south"]


def test_a_bank_of_another_model_is_refused():
    with pytest.raises(ValueError, match="a bank of size 3 for vectors of 4"):
        describe(
            embeddings_of([AXES[0]]),
            cut_chunks(1, chunk_s=10),
            tags=TextBank(texts=("a",), vectors=np.ones((1, 3), np.float32)),
            captions=CAPTIONS,
        )


@pytest.mark.parametrize(
    ("vectors", "pts_ms", "fault"),
    [
        (AXES, [0, 1, 2], "do not match"),
        (AXES, [0, 1, 1, 2], "do not increase"),
        (AXES * np.nan, [0, 1, 2, 3], "not finite"),
    ],
)
def test_embeddings_that_cannot_be_are_refused(vectors, pts_ms, fault):
    with pytest.raises(ValueError, match=fault):
        Embeddings(vectors=vectors, pts_ms=np.array(pts_ms))
