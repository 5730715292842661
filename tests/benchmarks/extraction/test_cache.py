import pytest

from benchmarks.extraction.cache import measure_cache
from infra.settings import StoreSettings
from reelabel.sources.object_store import ObjectStore

pytestmark = pytest.mark.xdist_group("benchmark-cache")

STORE = ObjectStore(StoreSettings())


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    root = tmp_path_factory.mktemp("cache")
    found = list(measure_cache(STORE, root.as_uri(), [200, 2000]))
    assert list(STORE.list(root.as_uri())) == []  # it is emptied again
    return found


def test_every_file_is_found(rows):
    assert [row.files for row in rows] == [200, 2000]


def test_listing_ten_times_as_many_files_takes_little_more_memory(rows):
    few, many = rows

    # A list of 1,800 more would hold over 400 KB.
    assert many.list_peak_bytes - few.list_peak_bytes < 200_000
    assert many.plan_peak_bytes - few.plan_peak_bytes < 200_000
