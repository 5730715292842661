"""Requests to the web and to S3 end at once when their store cancels them, wherever they wait."""

import pickle
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.settings import StoreSettings, WebSettings
from reelabel.errors import ReadingEndedError, StoreUnavailableError
from reelabel.sources import cancel
from reelabel.sources.cancel import Cancellation, Deadline, current_watchdog
from reelabel.sources.object_store import ObjectStore
from reelabel.waiting import AbandonedError, working_until
from tests.reelabel.sources.web_server import serving
from tests.wait import until

# Longer than any test waits for a read that has been ended.
_LONG_S = 600
_PATIENCE_S = 60
_HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nETag: e\r\n\r\nclip"


@pytest.fixture
def store():
    return ObjectStore(StoreSettings(), WebSettings(allow_private=True, timeout_s=_LONG_S, total_timeout_s=_LONG_S))


def store_at(endpoint):
    return ObjectStore(
        StoreSettings(
            endpoint_url=endpoint,
            access_key_id="key",
            secret_access_key="secret",
            read_timeout_s=_LONG_S,
        )
    )


@contextmanager
def silent(scheme, greeting=b""):
    """A server that accepts and says no more: a request, or a TLS handshake, waits for its next byte."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepted = []

        def wait():
            accepted.append(server.accept()[0])
            accepted[-1].sendall(greeting)

        yield f"{scheme}://127.0.0.1:{server.getsockname()[1]}/clip.mp4", wait


@contextmanager
def full():
    """A server whose queue is full: Linux drops the requests for more connections."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, socket.create_connection(server.getsockname()):
        port = server.getsockname()[1]
        connecting = f"0100007F:{port:04X} 02 "  # state 2: SYN_SENT

        def wait():
            until(lambda: connecting in Path("/proc/net/tcp").read_text())

        yield f"http://127.0.0.1:{port}/clip.mp4", wait


@contextmanager
def page(**behaviour):
    with serving() as server:
        uri = server.add("/clip.mp4", **behaviour)

        def wait():
            until(lambda: server.requests("/clip.mp4"))

        yield uri, wait


@pytest.mark.parametrize(
    "stalled",
    [
        pytest.param(lambda: silent("http"), id="an answer"),
        pytest.param(lambda: silent("https"), id="a handshake"),
        pytest.param(full, id="a connection"),
        pytest.param(lambda: page(body=bytes(10), sized=False, pause_s=1, step_bytes=1), id="a body"),
        pytest.param(lambda: page(statuses=(503,), headers={"Retry-After": "30"}), id="another attempt"),
    ],
)
def test_a_read_that_waits_ends_with_its_store(store, stalled):
    with stalled() as (uri, wait_for_request), ThreadPoolExecutor(1) as threads:
        read = threads.submit(store.read, uri)
        wait_for_request()

        store.cancel()

        with pytest.raises(ReadingEndedError):
            read.result(_PATIENCE_S)


@pytest.mark.parametrize(
    "stalled",
    [
        pytest.param(lambda: silent("http"), id="an answer"),
        pytest.param(lambda: silent("https"), id="a handshake"),
        pytest.param(full, id="a connection"),
        pytest.param(lambda: silent("http", _HALF), id="a body"),
    ],
)
def test_a_read_from_s3_that_waits_ends_with_its_store(stalled):
    with stalled() as (uri, wait_for_request), ThreadPoolExecutor(1) as threads:
        store = store_at(uri.removesuffix("/clip.mp4"))
        read = threads.submit(store.read, "s3://bucket/clip.mp4")
        wait_for_request()

        store.cancel()

        with pytest.raises(ReadingEndedError):
            read.result(_PATIENCE_S)


def test_a_read_over_a_connection_of_an_earlier_one_ends_with_its_store(store):
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(2) as threads:
        uri = f"http://127.0.0.1:{server.getsockname()[1]}/clip.mp4"

        def answer_once():
            connection = server.accept()[0]
            connection.recv(10_000)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nETag: e\r\n\r\nclip")
            connection.recv(10_000)
            return connection

        answered = threads.submit(answer_once)
        assert store.read(uri) == b"clip"
        read = threads.submit(store.read, uri)
        with answered.result(_PATIENCE_S):
            store.cancel()

            with pytest.raises(ReadingEndedError):
                read.result(_PATIENCE_S)


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(_PATIENCE_S)
        yield ours


def test_sockets_are_shut_down_at_the_deadline_and_left_alone_afterwards(pair):
    deadline = Deadline(time.monotonic() + 0.05, "too late")

    def read_to_the_deadline():
        with Cancellation().watching(deadline) as watchdog:
            watchdog.watch(pair)
            assert pair.recv(1) == b""

    with pytest.raises(StoreUnavailableError, match="too late"):
        read_to_the_deadline()
    with pytest.raises(StoreUnavailableError, match="too late"), Cancellation().watching(deadline):
        pytest.fail("a request began after its deadline")
    assert current_watchdog() is None


def test_a_request_may_be_hastened_without_being_late(pair):
    with Cancellation().watching(Deadline(time.monotonic() + _LONG_S, "too late")) as watchdog:
        watchdog.watch(pair)
        watchdog.hasten(0.01)
        assert pair.recv(1) == b""
        assert current_watchdog() is watchdog


def test_a_socket_that_is_watched_after_the_end_is_shut_down_no_more(pair):
    cancellation = Cancellation()
    with cancellation.watching() as watchdog:
        watchdog.watch(pair)

    cancellation.cancel()

    pair.settimeout(0.05)
    with pytest.raises(TimeoutError):
        pair.recv(1)
    with pytest.raises(ReadingEndedError):
        cancellation.pause(_LONG_S)


def test_a_pause_ends_soon_after_nobody_waits_for_the_request(monkeypatch):
    monkeypatch.setattr(cancel, "LOOK_S", 0.001)
    is_over = iter([False, False, True])

    with pytest.raises(AbandonedError), working_until(lambda: next(is_over)):
        Cancellation().pause(_LONG_S)


def test_a_write_to_s3_that_nobody_takes_ends_with_its_store():
    with silent("http") as (uri, wait_for_request), ThreadPoolExecutor(1) as threads:
        store = store_at(uri.removesuffix("/clip.mp4"))
        write = threads.submit(store.replace, "s3://bucket/clip.mp4", bytes(1 << 25))
        wait_for_request()

        store.cancel()

        with pytest.raises(ReadingEndedError):
            write.result(_PATIENCE_S)


def test_other_stores_of_the_same_server_go_on(store_settings):
    ended, going_on = ObjectStore(store_settings), ObjectStore(store_settings)
    going_on.replace(f"{store_settings.uri}/clip.mp4", b"clip")

    ended.cancel()

    assert going_on.read(f"{store_settings.uri}/clip.mp4") == b"clip"
    with pytest.raises(ReadingEndedError):
        ended.read(f"{store_settings.uri}/clip.mp4")


def test_nothing_is_read_afterwards(store, tmp_path):
    (tmp_path / "clip.mp4").write_bytes(b"clip")
    assert store.read(str(tmp_path / "clip.mp4")) == b"clip"

    store.cancel()

    for uri in ("https://example.com/clip.mp4", "s3://bucket/clip.mp4", str(tmp_path / "clip.mp4")):
        with pytest.raises(ReadingEndedError):
            store.read(uri)
        with pytest.raises(ReadingEndedError), store.open(uri):
            pass


def test_a_copy_elsewhere_is_not_ended(store):
    store.cancel()

    with page(body=b"clip") as (uri, _):
        assert pickle.loads(pickle.dumps(store)).read(uri) == b"clip"
