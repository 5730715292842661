import gc
import os
import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from infra.settings import StoreSettings
from reelabel.sources.object_store import ObjectStore
from tasks.frame_cache.eviction import cached_files, evict, kind_of

NOW = datetime(2026, 5, 4, 12, 30, tzinfo=UTC)


def name(number):
    return f"v1/{number:02x}/{number:032x}.arrow"


STORE = ObjectStore(StoreSettings())


@pytest.fixture
def root(tmp_path):
    """Create ten files of 100 bytes, written half an hour apart up to now, and a file that is not of the cache."""
    for number in range(10):
        path = tmp_path / name(number)
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * 100)
        written = (NOW - timedelta(minutes=30 * (9 - number))).timestamp()
        os.utime(path, (written, written))
    (tmp_path / "v1" / "readme.txt").write_text("not ours")
    os.utime(tmp_path / "v1" / "readme.txt", (0, 0))
    return tmp_path.as_uri()


def left(root, store=STORE):
    return [int(Path(info.uri).stem, 16) for info in cached_files(store, root)]


def test_the_files_are_listed_by_name(root):
    assert left(root) == list(range(10))
    assert {kind_of(info) for info in cached_files(STORE, root)} == {"frame file"}


def test_old_files_are_removed(root):
    result = evict(STORE, root, written_before=NOW - timedelta(hours=2))

    assert (result.kept, result.removed, result.removed_bytes) == (5, 5, 500)
    assert left(root) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize(("max_bytes", "stay"), [(1000, 10), (999, 9), (450, 4), (100, 1), (0, 0)])
def test_the_oldest_files_are_removed_until_the_rest_fits(root, max_bytes, stay):
    result = evict(STORE, root, max_bytes=max_bytes)

    assert (result.kept, result.kept_bytes) == (stay, 100 * stay)
    kept_hours = {number // 2 for number in left(root)}
    assert kept_hours <= set(range(5)[-((stay + 1) // 2) or 5 :])  # which file of an hour is removed does not matter


def test_both_limits_apply_together(root):
    result = evict(STORE, root, written_before=NOW - timedelta(hours=2), max_bytes=300)

    assert (result.kept, result.removed) == (3, 7)


def test_a_dry_run_removes_nothing(root):
    result = evict(STORE, root, max_bytes=0, dry_run=True)

    assert result.removed == 10
    assert len(left(root)) == 10


def test_other_files_stay(root, tmp_path):
    evict(STORE, root, written_before=NOW, max_bytes=0)

    assert (tmp_path / "v1" / "readme.txt").exists()


def test_eviction_works_on_s3(objects, store_settings):
    for number in range(3):
        objects.replace(f"{store_settings.uri}/{name(number)}", b"x" * 100)

    result = evict(objects, store_settings.uri, max_bytes=200)

    assert (result.kept, result.removed) == (2, 1)
    assert len(left(store_settings.uri, objects)) == 2


def peak_of(call, expected):
    gc.freeze()  # what other tests have left would make collections rare
    gc.collect()
    tracemalloc.start()  # of all threads: others may allocate meanwhile
    assert call() in expected
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    gc.unfreeze()
    return peak


def test_ten_times_as_many_files_take_little_more_memory_to_list_and_to_evict(tmp_path):
    peaks = [[], []]
    for count in (200, 2000):
        for number in range(count):
            path = tmp_path / f"v1/{number % 256:02x}/{number:032x}.arrow"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")
        for taken, call in zip(
            peaks,
            (
                lambda: sum(1 for _ in cached_files(STORE, tmp_path.as_uri())),
                lambda count=count: evict(STORE, tmp_path.as_uri(), max_bytes=count // 2, dry_run=True).kept,
            ),
            strict=True,
        ):
            taken.append(min(peak_of(call, {count, count // 2}) for _ in range(3)))

    for few, many in peaks:
        assert many - few < 200_000  # a list of 1,800 more would hold over 400 KB
