import numpy as np
import pytest

from reelabel.errors import ConfigurationError
from tasks.description.chunks import Chunk, EmbeddedChunk
from tasks.description.scenes.change import SceneChange
from tasks.description.scenes.detect import Scene, detect_ema, detect_scenes, merge_shots


def unit(rows):
    rows = np.asarray(rows, np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def scenes_of(lengths, *, seed=0, noise=0.02, size=32):
    """Return vectors of scenes of some lengths; those of one scene differ a little."""
    rng = np.random.default_rng(seed)
    rows = [rng.normal(size=size) for _ in lengths]
    return unit(
        [row + rng.normal(0, noise, size) for row, length in zip(rows, lengths, strict=True) for _ in range(length)]
    )


def chunks_of(vectors, *, per_chunk=16, gap_ms=625):
    times = np.arange(len(vectors), dtype=np.int64) * gap_ms + 7
    return tuple(
        EmbeddedChunk(
            chunk=Chunk(
                index=start // per_chunk,
                start_s=start * gap_ms / 1000,
                duration_s=len(vectors[start : start + per_chunk]) * gap_ms / 1000,
            ),
            vectors=vectors[start : start + per_chunk],
            pts_ms=times[start : start + per_chunk],
        )
        for start in range(0, len(vectors), per_chunk)
    )


def published_in_numpy(chunks, alpha=0.9, threshold=0.15):
    """Transcribe the published formulas, with times in seconds."""
    found, average = [], None
    for chunk in chunks:
        start, duration, count = chunk.start_ms / 1000, chunk.duration_ms / 1000, len(chunk.vectors)
        for i, e in enumerate(chunk.vectors):
            if average is None:
                average = e
            score = max(0.0, 1.0 - np.dot(e, average))
            if score >= threshold:
                found.append((start + i / max(1, count - 1) * duration, score))
            average = alpha * average + (1 - alpha) * e
            average = average / np.linalg.norm(average)
    return found


def test_one_cut_is_one_change_at_its_true_time():
    chunks = chunks_of(scenes_of([9, 20, 11]))

    found = detect_scenes("ema", chunks).changes

    assert [(each.since_ms, each.pts_ms) for each in found] == [
        (8 * 625 + 7, 9 * 625 + 7),
        (28 * 625 + 7, 29 * 625 + 7),
    ]


def test_chunks_of_any_length_give_the_same_changes():
    vectors = scenes_of([5, 30, 3, 17], seed=3)

    found = {size: detect_scenes("ema", chunks_of(vectors, per_chunk=size)).changes for size in (1, 7, 16, 99)}

    assert len(found[99]) == 3
    assert found[1] == found[7] == found[16] == found[99]


def test_a_dissolve_over_two_frames_is_one_change():
    before, after = scenes_of([1, 1], noise=0)
    vectors = unit([before] * 6 + [before + after] + [after] * 6)

    assert len(detect_scenes("ema", chunks_of(vectors)).changes) == 1


def test_the_average_of_a_scene_forgets_a_tenth_at_each_frame():
    vectors = scenes_of([6, 4], noise=0.2)
    average = vectors[0]
    for vector in vectors[1:6]:
        average = unit([0.9 * average + 0.1 * vector])[0]

    [change], _ = detect_ema(chunks_of(vectors), threshold=0.6)

    assert change.score == pytest.approx(1 - vectors[6] @ average, abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_the_published_method_equals_its_formulas_with_its_repeats(seed):
    chunks = chunks_of(scenes_of([9, 20, 11, 2, 30], seed=seed), per_chunk=16)

    found = detect_scenes("published", chunks).changes

    expected = published_in_numpy(chunks)
    assert len(expected) > 4  # it repeats each of the four cuts
    assert [each.pts_ms for each in found] == [round(at * 1000) for at, _ in expected]
    np.testing.assert_allclose([each.score for each in found], [score for _, score in expected], atol=1e-5)


def test_the_published_method_starts_with_a_chunk_of_one_frame():
    chunks = chunks_of(scenes_of([1, 1]), per_chunk=1)

    assert [each.pts_ms for each in detect_scenes("published", chunks).changes] == [625]


@pytest.mark.parametrize("method", ["ema", "published"])
def test_empty_chunks_and_single_frames_have_no_change(method):
    empty = EmbeddedChunk(
        chunk=Chunk(index=0, start_s=0, duration_s=10),
        vectors=np.zeros((0, 32), np.float32),
        pts_ms=np.zeros(0, np.int64),
    )

    assert detect_scenes(method, (empty,)).changes == ()
    assert detect_scenes(method, (empty, *chunks_of(scenes_of([1])))).changes == ()


def test_opposite_vectors_do_not_divide_by_zero():
    row = np.zeros((1, 4), np.float32)
    row[0, 0] = 1

    changes, average = detect_ema(chunks_of(np.concatenate([row, -row, row])), threshold=3.0)

    assert changes == []
    assert np.isfinite(average.vector).all()


def test_an_unknown_method_is_reported_with_those_that_there_are():
    with pytest.raises(ConfigurationError, match="method em; choose one of auto, ema, published"):
        detect_scenes("em", ())


@pytest.mark.parametrize("method", ["auto", "ema", "published"])
def test_a_video_without_embeddings_has_no_change_that_they_show(method):
    assert detect_scenes(method, ()).changes == ()


def changes_at(*times_ms):
    return [SceneChange(pts_ms=at, score=1.0, since_ms=at - 40) for at in times_ms]


def test_shots_that_show_the_same_are_one_scene():
    first, second = scenes_of([1, 1], noise=0)
    vectors = unit([first] * 8 + [first] * 8 + [second] * 8)
    at = [8 * 625 + 7, 16 * 625 + 7]

    found = merge_shots(changes_at(*at), chunks_of(vectors), start_ms=0, end_ms=15_000)

    assert found == (Scene(0, at[1] / 1000, 2), Scene(at[1] / 1000, 15, 1, "sampled"))


@pytest.mark.parametrize(
    ("degrees", "shots"),
    [
        pytest.param([0, 30], [2], id="alike"),
        pytest.param([0, 33], [1, 1], id="not alike"),
        pytest.param([0, 30, 44, 60], [3, 1], id="alike to the shot before and not to the scene so far"),
        pytest.param([0, 30, -14], [3], id="alike to the scene so far and not to the shot before"),
    ],
)
def test_a_shot_is_compared_with_the_scene_so_far(degrees, shots):
    angles = np.radians(np.repeat(degrees, 2))
    chunks = chunks_of(unit(np.stack([np.cos(angles), np.sin(angles)], axis=1)), gap_ms=100)
    at = [7 + 200 * number for number in range(1, len(degrees))]

    found = merge_shots(changes_at(*at), chunks, start_ms=0, end_ms=200 * len(degrees))

    assert [scene.shots for scene in found] == shots


def test_a_shot_whose_embeddings_cancel_out_is_like_no_other():
    first, second = scenes_of([1, 1], noise=0)
    vectors = np.stack([first, first, second, -second, first])

    found = merge_shots(changes_at(207, 407), chunks_of(vectors, gap_ms=100), start_ms=0, end_ms=500)

    assert found == (Scene(0, 0.207, 1), Scene(0.207, 0.407, 1, "sampled"), Scene(0.407, 0.5, 1, "sampled"))


def test_shots_without_an_embedding_join_the_scene_before():
    found = merge_shots(changes_at(100, 200, 99_000, -5), chunks_of(scenes_of([4])), start_ms=0, end_ms=3_000)

    assert found == (Scene(0, 3, 3),)
    assert merge_shots(changes_at(0, 100, 200, 3_000), chunks_of(scenes_of([4])), start_ms=0, end_ms=3_000) == found
    assert merge_shots(changes_at(10), (), start_ms=0, end_ms=0) == ()
