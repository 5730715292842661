"""The index finds what the exact search finds, is kept up, and is never used half-written, damaged or forged."""

import json

import numpy as np
import pytest

from reelabel.seal import Seal
from tasks.description.embeddings import normalize
from tasks.embedding.embedding_file import EmbeddingCache
from tasks.search import index_store
from tasks.search.build import update_index
from tasks.search.index_store import IndexStore
from tasks.search.opened_index import OpenedIndex
from tests.search.conftest import SEAL, SIZE, World


def queries(count=4, seed=9):
    return np.random.default_rng(seed).normal(size=(count, SIZE))


def same(found, expected):
    """Whether the same moments were found, with the same scores but for the last digits."""
    scores = [each.score for each in expected.moments]
    places = [(each.file, each.time_ms) for each in expected.moments]
    is_same = [(each.file, each.time_ms) for each in found.moments] == places
    return is_same and [each.score for each in found.moments] == pytest.approx(scores, abs=2e-5)


def test_a_search_by_the_index_finds_what_the_exact_search_finds(world):
    world.add_random(10)
    report = world.update()
    assert (report.added, report.rows, report.fragments, report.faults) == (10, 200, 1, [])

    for query in queries():
        found = world.search(query, top=3)
        assert same(found, world.search(query, top=3, exact=True))
        assert (found.rows, found.notes) == (200, ())


def test_of_frames_that_are_all_alike_the_best_is_found(world):
    rng = np.random.default_rng(2)
    scene = rng.normal(size=SIZE)
    key = world.add("a.mp4", scene + 0.05 * rng.normal(size=(300, SIZE)))
    world.update()
    vectors = world.cache.read_stored(key).embeddings.vectors

    with OpenedIndex(world.store(), world.table()["key"]) as index:
        for query in normalize((scene + 0.05 * rng.normal(size=(20, SIZE))).astype(np.float32)):
            [at_ms] = index.search(query, limit=1).pts_ms

            scores = vectors @ query
            assert scores[at_ms // 1000] >= scores.max() - 2e-5


def test_the_index_alone_is_read_once_it_covers_all(world, monkeypatch):
    world.add_random(5)
    world.update()
    monkeypatch.setattr(EmbeddingCache, "read_stored", lambda *_: pytest.fail("an embedding file was read"))

    assert len(world.search(queries()[0]).moments) == 5


@pytest.mark.usefixtures("small_index")
def test_many_vectors_are_grouped_and_few_lists_are_enough(world):
    rng = np.random.default_rng(1)
    scenes = rng.normal(size=(8, SIZE))
    for number in range(24):
        world.add(f"{number}.mp4", scenes[number % 8] + 0.2 * rng.normal(size=(20, SIZE)))
    report = world.update()
    assert (report.rows, report.lists, report.fragments) == (480, 64, 5)

    for scene in scenes:
        assert same(world.search(scene, top=3), world.search(scene, top=3, exact=True))
    with OpenedIndex(world.store(), world.table()["key"]) as index:
        assert len(index.search(normalize(scenes[0].astype(np.float32)), limit=1, rows_compared=1).scores), "one list"


def test_new_videos_are_added_and_nothing_is_read_twice(world, monkeypatch):
    world.add_random(5)
    world.update()
    read = []
    read_stored = EmbeddingCache.read_stored
    monkeypatch.setattr(EmbeddingCache, "read_stored", lambda cache, key: read.append(key) or read_stored(cache, key))
    added = world.add_random(3, seed=1)

    report = world.update()

    assert (read, report.added, report.rows, report.fragments) == (added, 3, 160, 1)
    assert same(world.search(queries()[0]), world.search(queries()[0], exact=True))


@pytest.mark.usefixtures("small_index")
def test_an_update_without_news_changes_nothing(world):
    world.add_random(7)
    world.update()
    before = world.paths()

    report = world.update()

    assert world.paths() == before
    assert (report.added, report.rows) == (0, 140)


@pytest.mark.usefixtures("small_index")
def test_full_fragments_stay_as_they_are_while_videos_are_added(world):
    world.add_random(5)
    world.update()
    (full,) = world.store().read_newest()[0].fragments

    world.add_random(1, seed=1)
    world.update()

    assert world.store().read_newest()[0].fragments[0] == full
    assert [each.rows for each in world.store().read_newest()[0].fragments] == [100, 20]


@pytest.mark.usefixtures("small_index")
def test_lists_are_found_anew_when_there_are_many_more_vectors(world):
    reports = []
    for seed, count in enumerate((6, 2, 25)):
        world.add_random(count, seed=seed)
        reports.append(world.update())

    assert [(report.rows, report.lists) for report in reports] == [(120, 1), (160, 32), (660, 64)]
    assert same(world.search(queries()[0], top=1), world.search(queries()[0], top=1, exact=True))


@pytest.mark.usefixtures("small_index")
def test_files_of_which_hardly_any_can_be_used_are_no_reason_to_fail(world):
    for number in range(300):
        world.list(f"gone-{number}.mp4", f"v1/00/{number:032x}.arrow")
    assert (world.update().rows, world.update().refused) == (0, 300)

    world.add_random(1)
    assert world.update().rows == 20
    world.add_random(1, seed=1)
    report = world.update()  # of 301 files, as many vectors as of the one known are expected

    assert (report.rows, report.added, report.lists) == (40, 1, 40)
    assert same(world.search(queries()[0]), world.search(queries()[0], exact=True))


def test_videos_that_are_not_yet_indexed_are_searched_and_told(world):
    world.add_random(5)
    world.update()
    scene = queries()[0]
    world.add("new.mp4", [scene])

    found = world.search(scene, top=1)

    assert found.moments[0].score == pytest.approx(1, abs=1e-3)
    assert found.rows == 101
    assert found.notes == ("1 video not yet in the search index: read one by one.",)


@pytest.mark.usefixtures("small_index")
def test_videos_that_are_no_longer_in_use_are_not_found_and_later_left_out(world):
    world.add_random(10)
    world.update()
    del world.jobs[1:]

    assert {each.file for each in world.search(queries()[0], top=20).moments} == {0}
    report = world.update()
    assert (report.rows, report.fragments) == (20, 1)
    world.jobs.clear()
    assert world.update().rows == 0
    assert world.search(queries()[0]).moments == ()


def test_an_empty_store_has_nothing_to_find(world):
    assert world.update().rows == 0
    assert world.search(queries()[0]).moments == ()
    assert world.paths() == []


def test_a_video_without_frames_is_no_fault(world):
    world.add("empty.mp4", np.empty((0, SIZE)))
    world.add_random(1)

    report = world.update()

    assert (report.rows, report.faults) == (20, [])


def test_an_index_on_s3_is_read_by_another_machine(store_settings, tmp_path):
    world = World(tmp_path, settings=store_settings)
    world.add_random(4)
    assert world.update().rows == 80

    found = world.search(queries()[0], machine="elsewhere")

    assert same(found, world.search(queries()[0], exact=True))
    assert found.notes == ()
    assert world.update(machine="elsewhere").added == 0


class Killed(BaseException):
    pass


@pytest.mark.usefixtures("small_index")
@pytest.mark.parametrize("writes", range(8))
def test_a_killed_builder_leaves_the_old_index(world, monkeypatch, writes):
    world.add_random(5)
    world.update()
    expected = world.search(queries()[0], exact=True)
    world.add_random(9, seed=1)
    left = iter(range(writes))
    write_new = world.objects.write_new

    def write_or_die(uri, data):
        if next(left, None) is None:
            raise Killed
        return write_new(uri, data)

    monkeypatch.setattr(world.objects, "write_new", write_or_die)
    with pytest.raises(Killed):
        world.update()
    monkeypatch.undo()

    jobs, world.jobs = world.jobs, world.jobs[:5]
    found = world.search(queries()[0])
    assert same(found, expected)
    assert found.notes == ()
    world.jobs = jobs
    assert world.update().rows == 280
    assert same(world.search(queries()[0]), world.search(queries()[0], exact=True))


def test_of_two_builders_at_once_one_wins_and_the_other_takes_nothing_away(world, monkeypatch):
    world.add_random(3)
    world.update()
    slow = world.store()
    newest_number = slow.newest_number
    world.add_random(2, seed=1)
    keys = world.table()["key"]

    def overtaken():
        number = newest_number()
        world.add_random(2, seed=2)
        assert world.update().rows == 140
        return number

    monkeypatch.setattr(slow, "newest_number", overtaken)
    report = update_index(slow, world.cache, keys)

    assert report.was_overtaken
    assert world.store().read_newest()[0].rows == 140
    assert len(world.paths("fragment-*.arrow")) == 2  # of the last two generations
    assert world.update().added == 0


def test_a_generation_whose_write_was_repeated_as_its_answer_was_lost_is_published(world, monkeypatch):
    world.add_random(3)
    store = world.store()
    monkeypatch.setattr(store, "_write", lambda name, data: IndexStore._write(store, name, data) and "gen" not in name)

    report = update_index(store, world.cache, world.table()["key"])

    assert (report.was_overtaken, report.rows) == (False, 60)
    assert world.search(queries()[0], machine="elsewhere").notes == ()


def damage(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(data)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def remove(path):
    path.unlink()


def forge(path):
    """Seal the content with another key, as someone who may write to the store but does not have ours."""
    folder = path.parent.name
    path.write_bytes(Seal(b"x" * 32).wrap(f"search/{folder}/{path.name}", path.read_bytes()[80:]))


@pytest.mark.parametrize("fault", [damage, truncate, remove, forge])
@pytest.mark.parametrize("pattern", ["fragment-*.arrow", "fragment-*.json", "generation-00000001.json"])
def test_a_damaged_index_is_told_the_search_is_exact_and_the_index_is_made_again(world, fault, pattern):
    world.add_random(4)
    world.update()
    fault(world.path(pattern))

    found = world.search(queries()[0], machine="elsewhere")

    assert same(found, world.search(queries()[0], exact=True))
    if not (fault is remove and pattern.startswith("generation")):  # then there is none
        assert any("search index" in note and "is not used" in note for note in found.notes)
    assert world.update(machine="elsewhere").rows == 80
    assert world.search(queries()[0], machine="elsewhere").notes == ()


@pytest.mark.usefixtures("small_index")
def test_without_its_centroids_the_index_is_not_used_and_is_built_anew(world):
    world.add_random(8)
    world.update()
    damage(world.path("lists-*.f32"))

    found = world.search(queries()[0])
    assert same(found, world.search(queries()[0], exact=True))
    assert "The search index is not used" in found.notes[0]
    report = world.update()
    assert (report.rows, report.added) == (160, 160 // 20)
    assert world.search(queries()[0]).notes == ()


def test_a_damaged_copy_on_this_machine_is_made_again(world):
    world.add_random(4)
    world.update()
    world.search(queries()[0])
    (copy,) = (world.folder / "here" / world.space.key).glob("*.arrow")
    truncate(copy)

    assert world.search(queries()[0]).notes == ()


def test_a_generation_of_another_space_is_not_used(world):
    world.add_random(2)
    world.update()
    other = World(world.folder, model=world.model.model_copy(update={"name": "other"}))
    other.add_random(2, seed=1)
    other.update()
    world.path("generation-00000001.json").write_bytes(other.path("generation-00000001.json").read_bytes())

    assert "is not used" in world.search(queries()[0]).notes[0]


def test_an_index_whose_generation_says_more_as_earlier_versions_did_is_used(world):
    world.add_random(2)
    world.update()
    name = f"search/{world.space.key}/generation-00000001.json"
    path = world.path("generation-00000001.json")
    said = json.loads(bytes(SEAL.unwrap(name, path.read_bytes())))
    path.write_bytes(SEAL.wrap(name, json.dumps(said | {"trained_rows": 40}).encode()))

    found = world.search(queries()[0])

    assert (found.rows, found.notes) == (40, ())


def test_without_a_key_a_damaged_index_is_still_recognised(tmp_path):
    world = World(tmp_path, seal=Seal())
    world.add_random(4)
    world.update()
    damage(world.path("fragment-*.arrow"))

    assert "altered or damaged" in world.search(queries()[0], machine="elsewhere").notes[0]


def test_embeddings_of_another_model_are_named_and_never_mixed(world):
    other = World(world.folder, model=world.model.model_copy(update={"fingerprint": "fedcba9876"}))
    key = other.add("other.mp4", queries(3))
    world.add_random(2)
    world.list("other.mp4", key)  # as a catalogue that lies

    report = world.update()
    found = world.search(queries()[0])

    assert (report.added, report.refused) == (2, 1)
    assert (
        "siglip (fedcba98), 32 dimensions, and cannot be compared with those of siglip (abcdef01)" in report.faults[0]
    )
    assert found.rows == 40
    assert "cannot be compared" in found.notes[0]


def test_vectors_of_another_size_are_named(world):
    other = World(world.folder, size=16)
    world.list("other.mp4", other.add("other.mp4", np.ones((2, 16))))

    assert "16 dimensions" in world.update().faults[0]
    assert "16 dimensions" in world.search(queries()[0]).notes[0]


@pytest.mark.parametrize("fault", [damage, truncate, remove])
def test_an_embedding_file_that_must_not_be_used_is_left_out_and_told(world, fault):
    keys = world.add_random(3)
    fault(world.folder / "store" / keys[1])

    report = world.update()

    assert (report.added, report.refused, report.rows) == (2, 1, 40)
    assert keys[1] in report.faults[0]
    assert "1 embedding file cannot be searched" in world.search(queries()[0]).notes[0]


@pytest.mark.usefixtures("small_index")
def test_what_no_generation_needs_is_removed_after_a_day(world, monkeypatch):
    for seed in range(3):
        world.add_random(1, seed=seed)
        world.update()
    assert len(world.paths("fragment-*.arrow")) == 3

    monkeypatch.setattr(index_store, "_LEFT_AFTER", -index_store._LEFT_AFTER)
    world.store().sweep()

    assert [path.name for path in world.paths("generation-*")] == [
        "generation-00000002.json",
        "generation-00000003.json",
    ]
    assert len(world.paths("fragment-*.arrow")) == 2
    assert world.search(queries()[0], machine="elsewhere").notes == ()
