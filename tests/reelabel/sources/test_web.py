"""Videos on web servers: how they are described, and read completely and in parts."""

import os
import pickle
import socket
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from reelabel.errors import (
    ConfigurationError,
    ObjectChangedError,
    ObjectTooLargeError,
    RangesIgnoredError,
)
from reelabel.sources import web
from tests.reelabel.sources.web_server import serving
from tests.reelabel.sources.web_store import BODY, server, store, store_with

__all__ = ["server", "store"]


def test_a_video_is_described_and_read_completely_and_in_parts(server, store, tmp_path):
    uri = server.add("/good", body=BODY)

    info = store.stat(uri)

    assert (info.uri, info.size_bytes, info.fingerprint) == (uri, len(BODY), f'http:{len(BODY)}:"one"')
    assert store.read(uri, fingerprint=info.fingerprint) == BODY
    assert store.read_range(uri, start=1000, size=77, fingerprint=info.fingerprint) == BODY[1000:1077]
    assert store.download(uri, tmp_path / "video", fingerprint=info.fingerprint) == len(BODY)
    assert (tmp_path / "video").read_bytes() == BODY


def test_consecutive_requests_share_one_connection(server, store):
    uri = server.add("/reused", body=BODY)

    fingerprint = store.stat(uri).fingerprint
    for start in range(5):
        store.read_range(uri, start=start, size=10, fingerprint=fingerprint)

    assert len(server.pages["/reused"].connections) == 1


@pytest.mark.parametrize(("size_bytes", "connections"), [(4000, 1), (100_000, 3)], ids=["short", "long"])
def test_a_short_rest_is_read_so_that_the_connection_can_be_used_again(server, size_bytes, connections):
    store = store_with(timeout_s=5.5)  # of its own, so that no connection stands open
    uri = server.add("/rest", body=bytes(size_bytes), ranges=False)

    for _ in range(3):
        assert store.stat(uri).size_bytes == size_bytes

    assert len(server.pages["/rest"].connections) == connections


def sockets_to(port):
    """Return how many descriptors of this process are of connections to a port."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # it is closed meanwhile, or not connected
            if stat.S_ISSOCK(os.fstat(int(each.name)).st_mode):
                with socket.socket(fileno=os.dup(int(each.name))) as connection:
                    found += connection.family == socket.AF_INET and connection.getpeername()[1] == port
    return found


def test_a_request_leaves_neither_a_timer_nor_a_socket_but_its_connection():
    with serving() as server:
        store, uri, threads = store_with(), server.add("/often", body=BODY), {*threading.enumerate()}

        for _ in range(3):
            assert store.read(uri) == BODY

        assert sockets_to(server.port) == 1
        timers = [each for each in threading.enumerate() if isinstance(each, threading.Timer) and each not in threads]
        assert all(each.finished.is_set() for each in timers)


def test_a_part_ends_where_the_object_ends(server, store):
    uri = server.add("/short", body=b"0123456789")
    fingerprint = store.stat(uri).fingerprint

    assert store.read_range(uri, start=8, size=100, fingerprint=fingerprint) == b"89"
    assert store.read_range(uri, start=10, size=5, fingerprint=fingerprint) == b""


def test_an_empty_object_has_no_bytes(server, store):
    uri = server.add("/empty")

    assert store.stat(uri).size_bytes == 0
    assert store.read(uri, fingerprint=store.stat(uri).fingerprint) == b""


def test_a_server_without_ranges_serves_only_whole_objects(server, store):
    uri = server.add("/whole", body=BODY, ranges=False)
    fingerprint = store.stat(uri).fingerprint

    assert store.read(uri, fingerprint=fingerprint) == BODY
    with pytest.raises(RangesIgnoredError, match="download the whole object"):
        store.read_range(uri, start=10, size=10, fingerprint=fingerprint)


@pytest.mark.parametrize(
    "behaviour",
    [
        pytest.param({"etags": ()}, id="no version"),
        pytest.param({"sized": False, "ranges": False}, id="no length"),
        pytest.param({"sized": False, "ranges": False, "etags": ()}, id="neither"),
    ],
)
def test_details_that_a_server_omits_are_derived_from_the_content(server, store, behaviour):
    uri = server.add("/untold", body=BODY, **behaviour)

    info = store.stat(uri)

    assert info.size_bytes == len(BODY)
    assert ":sha256:" in info.fingerprint
    assert store.read(uri, fingerprint=info.fingerprint) == BODY
    with pytest.raises(RangesIgnoredError):
        store.read_range(uri, start=0, size=10, fingerprint=info.fingerprint)
    server.pages["/untold"].body = BODY[::-1]
    with pytest.raises(ObjectChangedError):
        store.read(uri, fingerprint=info.fingerprint)


def test_determining_a_length_stops_at_the_limit(server, monkeypatch):
    monkeypatch.setattr(web, "_MAX_UNSIZED_BYTES", 1_000_000)
    uri = server.add("/endless", body=BODY, sized=False, ranges=False, endless=True)

    with pytest.raises(ObjectTooLargeError, match="1,000,000 bytes"):
        store_with().stat(uri)


def test_parts_without_a_version_are_not_joined_but_read_whole(server, store):
    uri = server.add("/little-untold", body=BODY, most_bytes=10_000, etags=())

    assert store.read(uri) == BODY
    assert server.requests("/little-untold") == ["bytes=0-", ""]


@pytest.mark.parametrize("second", [pytest.param('"two"', id="another version"), pytest.param(None, id="unnamed")])
def test_an_object_replaced_between_two_attempts_is_never_mixed(server, store, tmp_path, second):
    uri = server.add("/mixed", body=BODY, cut_at=100_000, etags=('"one"', second))

    with pytest.raises(ObjectChangedError, match="was replaced"):
        store.download(uri, tmp_path / "video")
    assert not (tmp_path / "video").exists()


def test_a_replaced_object_is_not_the_one_that_was_looked_at(server, store):
    uri = server.add("/replaced", body=BODY, etags=('"one"', '"two"'))
    seen = store.stat(uri).fingerprint

    for read in (
        lambda: store.read(uri, fingerprint=seen),
        lambda: store.read_range(uri, start=0, size=10, fingerprint=seen),
    ):
        with pytest.raises(ObjectChangedError, match="was replaced"):
            read()


@pytest.mark.parametrize("header", [pytest.param("ETag", id="etag"), pytest.param("Last-Modified", id="time")])
def test_a_version_with_control_characters_can_be_stored_and_stays_distinct(server, store, header):
    versions = ["a\0", "a\x01", "a\x1f", "a\x7f", "a%00", "a\\0", "a", "a b"]
    uris = [server.add(f"/version-{i}", body=BODY, etags=(), headers={header: v}) for i, v in enumerate(versions)]

    infos = [store.stat(uri) for uri in uris]

    assert all(info.fingerprint.isprintable() for info in infos)
    assert len({info.fingerprint for info in infos}) == len(versions)
    ends = [info.fingerprint.removeprefix(f"http:{len(BODY)}:") for info in infos]
    assert ends == ["a␀", "a␁", "a␟", "a␡", "a%00", "a\\0", "a", "a b"]
    assert all(store.read(info.uri, fingerprint=info.fingerprint) == BODY for info in infos)


def test_a_size_limit_holds_whatever_the_header_claims(server, store, tmp_path):
    honest = server.add("/honest", body=BODY)
    silent = server.add("/silent", body=BODY, sized=False, ranges=False, endless=True)

    for uri in (honest, silent):
        with pytest.raises(ObjectTooLargeError, match="1,000 bytes"):
            store.download(uri, tmp_path / "video", max_bytes=1000)
        assert not (tmp_path / "video").exists()


def test_a_condition_that_fails_means_another_version(server, store):
    with pytest.raises(ObjectChangedError, match="was replaced"):
        store.stat(server.add("/condition", statuses=(412,)))


def test_no_more_requests_run_at_once_than_allowed(server):
    uri = server.add("/busy", body=bytes(1024), pause_s=0.1)
    store = store_with(max_concurrency=2)
    started = time.monotonic()

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(store.read, [uri] * 6))

    assert time.monotonic() - started >= 0.3


def test_writing_to_the_web_is_refused(store):
    for write in (lambda: store.replace("https://example.com/a", b""), lambda: list(store.list("https://example.com"))):
        with pytest.raises(ConfigurationError, match="is read-only"):
            write()


def test_an_unpickled_store_reads_the_web(server, store):
    uri = server.add("/pickled", body=BODY)

    assert pickle.loads(pickle.dumps(store)).read(uri) == BODY
