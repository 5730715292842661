"""Stores and proxies that do less than Amazon's."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from reelabel.errors import ObjectChangedError, RangesIgnoredError, StoreUnavailableError
from reelabel.options import S3Options
from reelabel.sources import s3_errors
from reelabel.sources.object_store import ObjectStore
from reelabel.sources.s3 import FEWEST
from tests.http_server import Handler, serve
from tests.reelabel.sources.s3_elsewhere import serving_elsewhere

DATA = bytes(range(256)) * 100
NAMES = [f"s3://bucket/{number}.mp4" for number in range(FEWEST)]


@pytest.fixture(scope="module")
def server():
    with serving_elsewhere() as server:
        yield server


@pytest.fixture
def open_store(server):
    """Sets how the server behaves, and returns a store on it with some objects."""

    def behave(**behaviour):
        store = ObjectStore(replace(server.settings, max_attempts=behaviour.pop("max_attempts", 4)))
        for name, value in behaviour.items():
            setattr(server, name, value)
        server.requests.clear()
        return store

    fresh = replace(server)
    server.objects.clear()
    for name in NAMES:
        ObjectStore(server.settings).replace(name, DATA)
    yield behave
    for name in ("etags", "versions", "ranges", "most_bytes", "refused"):
        setattr(server, name, getattr(fresh, name))


@pytest.mark.parametrize("versions", [False, True], ids=["by time", "by version id"])
def test_an_object_without_an_etag_is_identified_by_version_time_and_size(open_store, versions, tmp_path):
    store, uri = open_store(etags=False, versions=versions), NAMES[0]

    info = store.stat(uri)

    assert info.size_bytes == len(DATA)
    assert list(store.list("s3://bucket")) == [store.stat(name) for name in NAMES]
    near = store.stat_many(NAMES)
    assert near == {name: store.stat(name) for name in near}
    assert store.read(uri, fingerprint=info.fingerprint) == DATA
    assert store.read_range(uri, start=10, size=20, fingerprint=info.fingerprint) == DATA[10:30]
    assert store.download(uri, tmp_path / "copy", fingerprint=info.fingerprint) == len(DATA)

    store.replace(uri, DATA[::-1])
    for read in (
        lambda: store.read(uri, fingerprint=info.fingerprint),
        lambda: store.read_range(uri, start=10, size=20, fingerprint=info.fingerprint),
    ):
        with pytest.raises(ObjectChangedError, match="was replaced"):
            read()


@pytest.mark.parametrize("etags", [True, False])
def test_a_range_of_an_object_that_has_become_shorter_is_of_a_replaced_one(open_store, etags):
    store, uri = open_store(etags=etags), NAMES[0]
    fingerprint = store.stat(uri).fingerprint
    store.replace(uri, DATA[:10])

    with pytest.raises(ObjectChangedError, match="was replaced"):
        store.read_range(uri, start=100, size=10, fingerprint=fingerprint)


def test_a_range_in_several_parts_is_put_together(open_store):
    store, uri = open_store(most_bytes=1000), NAMES[0]
    fingerprint = store.stat(uri).fingerprint

    assert store.read_range(uri, start=5, size=12_345, fingerprint=fingerprint) == DATA[5:12_350]
    assert store.read_range(uri, start=20_000, size=1 << 20, fingerprint=fingerprint) == DATA[20_000:]


def test_a_part_is_cut_out_of_the_whole_where_ranges_are_ignored(open_store):
    store, uri = open_store(ranges=False), NAMES[0]
    fingerprint = store.stat(uri).fingerprint

    with pytest.raises(RangesIgnoredError):
        store.read_range(uri, start=5, size=10, fingerprint=fingerprint)
    assert store.read_part(uri, start=5, size=10, fingerprint=fingerprint) == DATA[5:15]


def test_a_store_that_refuses_three_of_four_requests_is_got_through_to(open_store, monkeypatch):
    monkeypatch.setattr(s3_errors, "_LONGEST_PAUSE_S", 0.05)
    store = open_store(refused=3)

    store.check_reachable(NAMES)
    with ThreadPoolExecutor(8) as threads:
        infos = list(threads.map(store.stat, NAMES))
        parts = threads.map(lambda it: store.read_range(it.uri, start=9, size=9, fingerprint=it.fingerprint), infos)
        assert [*parts] == [DATA[9:18]] * len(NAMES)
        assert all(threads.map(lambda number: store.write_new(f"s3://bucket/new/{number}", DATA), range(20)))
    assert len(list(store.list("s3://bucket/new"))) == 20


def test_a_store_that_refuses_everything_is_given_up_after_the_time_of_one_attempt(server, open_store):
    open_store(refused=4)
    store = ObjectStore(replace(server.settings, read_timeout_s=0.5))
    started = time.monotonic()

    with pytest.raises(StoreUnavailableError, match=r"HTTP 503\) after all attempts; try again later"):
        store.read(NAMES[0])
    assert time.monotonic() - started < 30  # by the default time-outs, over a minute


def test_one_attempt_is_one_request(server, open_store):
    store = open_store(refused=4, max_attempts=1)

    with pytest.raises(StoreUnavailableError):
        store.read(NAMES[0])
    assert len(server.requests) == 1


class RefusesFirst(Handler):
    """Refuses the first request, before its body if it is asked, and keeps the connection; as nginx's limits do."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        self.server.requests.append(self.requestline)
        self.respond(200 if len(self.server.requests) > 1 else 503)
        self.read_body()

    def handle_expect_100(self):
        self.do_PUT()
        return False


def test_the_connection_of_a_refused_write_is_usable_for_the_next():
    login = {"access_key_id": "key", "secret_access_key": "secret"}
    with serve(RefusesFirst, requests=[]) as server:
        store = ObjectStore(S3Options(endpoint_url=server.url, read_timeout_s=2, max_attempts=2, **login))

        store.replace("s3://bucket/new", DATA)
        assert len(server.requests) == 2
