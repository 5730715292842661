"""A search finds what a comparison of all vectors finds, whatever has become of this machine's index."""

import os
import time

import numpy as np
import pytest

from reelabel.errors import DiskFullError
from tasks.embedding.vector_file import VectorCache
from tasks.search import local_index
from tests.search.conftest import SIZE, World


def queries(count=4, seed=9):
    return np.random.default_rng(seed).normal(size=(count, SIZE))


def is_right(world, result, query, top=5):
    """Whether the moments are those of a comparison of all vectors, with the same scores but for the last digits."""
    expected = world.compare_all(query, top=top)
    positions = [(each.file, each.time_ms) for each in expected]
    is_same = [(each.file, each.time_ms) for each in result.moments] == positions
    return is_same and [each.score for each in result.moments] == pytest.approx([e.score for e in expected], abs=2e-5)


@pytest.fixture
def read(monkeypatch):
    """The keys of the embedding files that are read from now on."""
    keys, read_stored = [], VectorCache.read_stored
    monkeypatch.setattr(VectorCache, "read_stored", lambda cache, key: keys.append(key) or read_stored(cache, key))
    return keys


@pytest.fixture
def small_files(monkeypatch):
    """Files of 100 vectors, compared in blocks of 30."""
    monkeypatch.setattr(local_index, "_FILE_BYTES", 2 * 100 * SIZE)
    monkeypatch.setattr(local_index, "_BLOCK_ROWS", 30)


@pytest.mark.parametrize("is_small", [True, False])
def test_a_search_finds_what_a_comparison_of_all_vectors_finds(world, request, is_small):
    if is_small:
        request.getfixturevalue("small_files")
    world.add_random(12)

    for query in queries():
        found = world.search(query, top=3)
        assert is_right(world, found, query, top=3)
        assert (found.rows, found.notes) == (240, ())
    assert len(world.paths()) == (3 if is_small else 1)


def test_of_frames_that_are_all_alike_the_best_is_found(world):
    rng = np.random.default_rng(2)
    scene = rng.normal(size=SIZE)
    world.add("a.mp4", scene + 0.05 * rng.normal(size=(300, SIZE)), step_ms=10_000)

    for query in scene + 0.05 * rng.normal(size=(20, SIZE)):
        [best] = world.search(query, top=1).moments
        [expected] = world.compare_all(query, top=1)
        assert best.score == pytest.approx(expected.score, abs=2e-5)


@pytest.mark.usefixtures("small_files")
def test_a_selection_of_videos_is_searched_alone(world):
    world.add_random(12)
    world.search(queries()[0])
    world.jobs = world.jobs[1::3]

    for query in queries():
        found = world.search(query, is_whole=False)
        assert is_right(world, found, query)
        assert found.rows == 80


@pytest.mark.usefixtures("small_files")
def test_new_videos_are_added_and_none_is_read_twice(world, read):
    world.add_random(7)
    world.search(queries()[0])
    assert len(read) == 7
    for seed in range(1, 6):
        world.add_random(1, seed=seed)
        world.search(queries()[0])

    assert len(read) == len(set(read)) == 12
    assert len(world.paths()) <= 4, "files that are not full are joined"
    assert is_right(world, world.search(queries()[0]), queries()[0])


@pytest.mark.usefixtures("small_files")
def test_videos_that_are_no_longer_described_are_not_found_and_take_no_room(world):
    world.add_random(10)
    world.search(queries()[0])
    del world.jobs[1:]

    assert {each.file for each in world.search(queries()[0], top=20).moments} == {0}
    assert sum(path.stat().st_size for path in world.paths()) < 100 * 2 * SIZE
    world.jobs.clear()
    assert world.search(queries()[0]).moments == ()
    assert world.paths() == []


@pytest.mark.usefixtures("small_files")
def test_a_search_of_some_videos_keeps_the_vectors_of_all(world, read):
    world.add_random(10)
    world.search(queries()[0])
    jobs, world.jobs = world.jobs, world.jobs[:1]
    world.search(queries()[0], is_whole=False)
    world.jobs = jobs

    world.search(queries()[0])

    assert len(read) == 10


def test_an_empty_store_has_nothing_to_find(world):
    assert world.search(queries()[0]).moments == ()
    assert world.paths() == []


def test_a_video_without_frames_is_no_fault_and_no_reason_to_write_the_index_again(world):
    world.add("empty.mp4", np.empty((0, SIZE)))
    world.add_random(1)

    found = world.search(queries()[0])
    written = world.paths()
    again = world.search(queries()[0])

    assert (found.rows, found.notes) == (again.rows, again.notes) == (20, ())
    assert world.paths() == written


def test_embeddings_on_s3_are_searched_by_every_machine(store_settings, tmp_path):
    world = World(tmp_path, settings=store_settings)
    world.add_random(4)

    for machine in ("here", "elsewhere"):
        assert is_right(world, world.search(queries()[0], machine=machine), queries()[0])


def test_the_index_is_for_this_user_alone(world):
    world.add_random(1)
    world.search(queries()[0])

    assert world.paths()[0].parent.stat().st_mode & 0o777 == 0o700


class Killed(BaseException):
    pass


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("writes", range(2))
def test_a_killed_search_leaves_what_it_has_added_and_the_next_one_adds_the_rest(world, monkeypatch, read, writes):
    world.add_random(3)
    world.search(queries()[0])
    world.add_random(9, seed=1)
    left = iter(range(writes))
    write = local_index.LocalIndex._write

    def write_or_die(index, rows):
        if next(left, None) is None:
            raise Killed
        return write(index, rows)

    monkeypatch.setattr(local_index.LocalIndex, "_write", write_or_die)
    with pytest.raises(Killed):
        world.search(queries()[0])
    monkeypatch.setattr(local_index.LocalIndex, "_write", write)
    before = len(read)

    found = world.search(queries()[0])

    assert len(read) - before == (9, 4)[writes]
    assert found.rows == 240
    assert is_right(world, found, queries()[0])


def test_two_searches_at_once_add_the_same_videos_and_each_is_found_once(world):
    world.add_random(4)
    first, second = world.index(), world.index()
    keys = world.table()["key"]
    for index in (first, second):
        index.add(index.missing(keys), world.cache)
    assert len(world.paths()) == 2

    found = world.search(queries()[0])
    world.add_random(1, seed=1)
    joined = world.search(queries()[0])

    assert (found.rows, joined.rows) == (80, 100)
    assert is_right(world, joined, queries()[0])
    assert len(world.paths()) == 1


def test_a_file_that_another_search_removes_is_still_searched(world):
    world.add_random(4)
    world.search(queries()[0])
    index = world.index()
    for path in world.paths():
        path.unlink()

    assert index.missing(world.table()["key"]) == []
    assert len(index.search(world.table()["key"]).find(queries()[0].astype(np.float32), limit=3)) == 3


def damage(path):
    data = bytearray(path.read_bytes())
    data[-200:] = bytes(200)
    path.write_bytes(data)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def empty(path):
    path.write_bytes(b"")


def remove(path):
    path.unlink()


@pytest.mark.parametrize("fault", [damage, truncate, empty, remove])
def test_a_damaged_index_is_built_again(world, fault):
    world.add_random(4)
    world.search(queries()[0])
    fault(world.paths()[0])

    found = world.search(queries()[0])

    assert is_right(world, found, queries()[0])
    assert found.notes == ()


def test_what_a_killed_search_was_writing_is_removed_after_a_day(world):
    world.add_random(1)
    world.search(queries()[0])
    folder = world.paths()[0].parent
    for name, age_s in (("old.part", 100_000), ("new.part", 0)):
        (folder / name).write_bytes(b"x")
        os.utime(folder / name, (time.time() - age_s,) * 2)
    world.add_random(1, seed=1)

    world.search(queries()[0])

    assert [path.name for path in folder.glob("*.part")] == ["new.part"]


def test_an_index_that_does_not_fit_the_disk_names_the_folder(world, monkeypatch):
    world.add_random(1)

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", refuse)
    with pytest.raises(DiskFullError, match="here"):
        world.search(queries()[0])


def test_embeddings_of_another_model_are_named_and_never_mixed(world):
    other = World(world.folder, model=world.model.model_copy(update={"fingerprint": "fedcba9876"}))
    key = other.add("other.mp4", queries(3))
    world.add_random(2)
    world.list("other.mp4", key)  # as a catalogue that lies

    found = world.search(queries()[0])

    assert found.rows == 40
    assert "of the model siglip (fedcba98)" in found.notes[0]


@pytest.mark.parametrize("fault", [damage, truncate, remove])
def test_an_embedding_file_that_must_not_be_used_is_left_out_and_reported(world, fault):
    keys = world.add_random(3)
    fault(world.folder / "store" / keys[1])

    for _ in range(2):
        found = world.search(queries()[0])
        assert is_right(world, found, queries()[0])
        assert "1 embedding file cannot be searched" in found.notes[0]
        assert keys[1] in found.notes[0]
