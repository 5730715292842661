"""Videos that show the same are found, whatever was done to them, and others are not."""

import tracemalloc

import numpy as np
import polars as pl
import pytest

from infra.settings import Settings
from reelabel.seal import NO_KEY
from tasks.embedding.vector_file import VectorCache
from tasks.search.duplicates import find_duplicates, group_duplicates, similarity
from tests.search.conftest import MODEL, SIZE


def unit(vectors):
    vectors = np.asarray(vectors, np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def scenes(rng, count=6):
    return unit(rng.normal(size=(count, SIZE)))


def encoded_again(rng, vectors):
    return unit(vectors + 0.02 * rng.normal(size=vectors.shape))


def grouped(found):
    return [[each.video for each in found if each.group == number] for number in range(1 + found[-1].group)]


def test_copies_are_found_among_other_videos(rng):
    one, two = scenes(rng), scenes(rng)
    videos = [scenes(rng), one, two, encoded_again(rng, one), scenes(rng), two[::-1], encoded_again(rng, two)]

    found = find_duplicates(videos, least=0.9)

    assert grouped(found) == [[1, 3], [2, 5, 6]]
    assert [each.similarity >= 0.9 for each in found] == [True] * 5
    assert found[0].similarity == pytest.approx(1)


def test_a_part_of_a_video_is_not_its_duplicate(rng):
    film = scenes(rng, 20)
    assert similarity(film, film[:10]) < 0.9
    assert similarity(film[:10], film) < 0.9
    assert find_duplicates([film, film[:4]], least=0.9) == []


def test_long_films_are_compared_a_part_at_a_time(rng):
    film = unit(rng.normal(size=(20_000, 4)))
    other = encoded_again(rng, film)[::-1]

    tracemalloc.start()
    found = similarity(film, other)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert found > 0.999
    assert most_bytes < 200e6


def test_groups_are_those_of_a_comparison_of_all_pairs(rng, monkeypatch):
    monkeypatch.setattr("tasks.search.duplicates._BLOCK_VIDEOS", 8)
    centres = scenes(rng, 12)
    videos = [unit(centres[number % 12] + 0.12 * rng.normal(size=(5, SIZE))) for number in range(60)]
    done = []

    found = find_duplicates(videos, least=0.8, progress=done.append)

    linked = {
        (one, other) for one in range(60) for other in range(one) if similarity(videos[one], videos[other]) >= 0.8
    }
    together = {(one, other) for group in grouped(found) for one in group for other in group if other < one}
    assert linked
    assert linked <= together
    assert all(one % 12 == other % 12 for one, other in together)
    assert done == [8, 16, 24, 32, 40, 48, 56, 60]


def turned(degrees):
    vector = np.zeros((1, SIZE), np.float32)
    vector[0, :2] = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return vector


def test_all_videos_of_a_clique_are_similar_to_each_other(rng):
    chain = [turned(degrees) for degrees in (40, 0, 10, 20, 30, 200)]  # at most 10 degrees are similar

    assert grouped(find_duplicates(chain, least=0.98)) == [[0, 1, 2, 3, 4]]
    assert grouped(find_duplicates(chain, least=0.98, cliques=True)) == [[0, 4], [1, 2]]

    centres = scenes(rng, 4)
    videos = [unit(centres[number % 4] + 0.2 * rng.normal(size=(3, SIZE))) for number in range(80)]
    found = grouped(find_duplicates(videos, least=0.6, cliques=True))
    pairs = [(one, other) for group in found for one in group for other in group if other < one]
    assert pairs
    assert min(similarity(videos[one], videos[other]) for one, other in pairs) >= 0.6 - 1e-4
    assert grouped(find_duplicates(videos, least=0.6)) != found


def test_identical_videos_have_a_similarity_of_one_to_within_rounding(world, rng):
    videos = [scenes(rng) for _ in range(50)]

    assert len(find_duplicates([*videos, *videos], least=1)) == 100

    keys = pl.Series([world.add(f"{number}.mp4", video) for number, video in enumerate([*videos, *videos])])
    index = world.index()
    index.add(index.missing(keys), world.cache)
    assert len(find_duplicates(index.videos(keys), least=1)) == 100
    assert find_duplicates([turned(0), turned(1)], least=1) == []


class Counted(list):
    taken = 0

    def __getitem__(self, number):
        self.taken += 1
        return super().__getitem__(number)


def test_each_of_many_copies_is_compared_with_one_other(rng):
    videos = Counted([scenes(rng)] * 3000)

    assert len(find_duplicates(videos, least=0.9)) == 3000
    assert videos.taken < 6 * 3000  # of its 4,498,500 pairs


def test_parts_and_other_descriptions_of_one_video_are_not_its_duplicates(rng):
    one = scenes(rng)
    videos = [one, encoded_again(rng, one), encoded_again(rng, one)]

    assert find_duplicates(videos, least=0.9, sources=np.array([7, 7, 7])) == []
    assert grouped(find_duplicates(videos, least=0.9, sources=np.array([7, 7, 8]))) == [[0, 1, 2]]


def test_nothing_is_found_among_none_one_or_empty_videos(rng):
    assert find_duplicates([], least=0.5) == []
    assert find_duplicates([scenes(rng)], least=0.5) == []
    assert find_duplicates([np.zeros((0, SIZE), np.float32)] * 2, least=0.5) == []


def test_vectors_come_from_the_index_of_this_machine_video_by_video(world, rng):
    one = scenes(rng)
    keys = pl.Series([world.add("a.mp4", one), world.add("b.mp4", scenes(rng)), world.add("c.mp4", one), "f" * 64])
    index = world.index()
    index.add(index.missing(keys), world.cache)

    videos = index.videos(keys)

    assert [len(videos[number]) for number in range(len(videos))] == [6, 6, 6, 0]
    assert np.abs(videos[0] - one).max() < 1e-3  # stored as 16-bit floats
    assert grouped(find_duplicates(videos, least=0.9)) == [[0, 2]]


def test_files_are_grouped_by_their_keys_and_one_that_cannot_be_read_is_reported(world, rng, tmp_path):
    world.cache = VectorCache(objects=world.objects, root_uri=world.root, seal=NO_KEY)
    one = scenes(rng)
    first, _, copy, broken = (
        world.add(f"{name}.mp4", vectors) for name, vectors in zip("abcd", (one, scenes(rng), one, one), strict=True)
    )
    [info] = (info for info in world.objects.list(world.root) if broken in info.uri)
    world.objects.replace(info.uri, b"no vectors")
    settings, notes, warned = Settings(home=tmp_path, store=world.settings), [], []

    for _ in range(2):
        found = group_duplicates(settings, MODEL, world.table(), least=0.9, note=notes.append, warn=warned.append)
        assert found.select("group", "key").rows() == [(0, first), (0, copy)]

    assert found["similarity"].to_list() == pytest.approx([1, 1], abs=1e-3)
    assert all(each.startswith(f"1 embedding file cannot be read, such as {broken}: ") for each in warned)
    assert len(warned) == 2
    assert notes[:3] == ["Opening the index", "Indexing 4 new videos", "Comparing videos: 4 of 4"]
