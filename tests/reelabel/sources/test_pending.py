"""Reads of the web end at once when their store is told to end them, wherever they wait."""

import pickle
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.settings import StoreSettings, WebSettings
from reelabel.errors import ReadingEndedError
from reelabel.sources.object_store import ObjectStore
from tests.reelabel.sources.web_server import serving

# Longer than any test waits for a read that has been ended.
_LONG_S = 600
_PATIENCE_S = 60


@pytest.fixture
def store():
    return ObjectStore(StoreSettings(), WebSettings(allow_private=True, timeout_s=_LONG_S, total_timeout_s=_LONG_S))


@contextmanager
def silent(scheme):
    """A server that accepts and says nothing: a request, or a TLS handshake, waits for its first byte."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepted = []
        yield f"{scheme}://127.0.0.1:{server.getsockname()[1]}/clip.mp4", lambda: accepted.append(server.accept())


@contextmanager
def full():
    """A server whose queue is full: Linux drops the requests for more connections."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, socket.create_connection(server.getsockname()):
        port = server.getsockname()[1]
        connecting = f"0100007F:{port:04X} 02 "  # state 2: SYN_SENT

        def wait():
            while connecting not in Path("/proc/net/tcp").read_text():
                time.sleep(0.01)

        yield f"http://127.0.0.1:{port}/clip.mp4", wait


@contextmanager
def page(**behaviour):
    with serving() as server:
        uri = server.add("/clip.mp4", **behaviour)

        def wait():
            while not server.requests("/clip.mp4"):
                time.sleep(0.01)

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

        store.end_reads()

        with pytest.raises(ReadingEndedError):
            read.result(_PATIENCE_S)


def test_nothing_is_read_afterwards(store, tmp_path):
    (tmp_path / "clip.mp4").write_bytes(b"clip")
    assert store.read(str(tmp_path / "clip.mp4")) == b"clip"

    store.end_reads()

    for uri in ("https://example.com/clip.mp4", "s3://bucket/clip.mp4", str(tmp_path / "clip.mp4")):
        with pytest.raises(ReadingEndedError):
            store.read(uri)


def test_a_copy_elsewhere_is_not_ended(store):
    store.end_reads()

    with page(body=b"clip") as (uri, _):
        assert pickle.loads(pickle.dumps(store)).read(uri) == b"clip"
