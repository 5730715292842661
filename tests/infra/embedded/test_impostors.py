"""A process that takes the port of a dead embedded server is detected, and is sent nothing."""

import os
import signal
import socket
import ssl
import stat
import struct
import threading
from urllib.parse import urlsplit

import pytest
from sqlalchemy.engine import make_url

from infra.database.connect import check_database, connected
from infra.embedded import ServiceName, start, status, stop
from infra.errors import DatabaseUnavailableError
from infra.settings import DatabaseSettings, Settings
from reelabel.errors import ConfigurationError
from reelabel.sources.object_store import ObjectStore
from tests.certificates import Authority
from tests.supervisor import halted_supervisor, taken_port

# What a server may ask for, by the code of its request: no password at all, or the password itself.
_TRUST, _PASSWORD = 0, 3


@pytest.fixture
def impostor():
    """A server of another user on a port of 127.0.0.1, and what it was sent after the name of the user."""
    told = []

    def answer(asked):
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.recv(4096)
                connection.sendall(b"R" + struct.pack("!II", 8, asked))
                told.append(connection.recv(4096))

    def begin(asked):
        threading.Thread(target=answer, args=(asked,), daemon=True).start()
        return listening.getsockname()[1], told

    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield begin


@pytest.mark.parametrize("asked", [_TRUST, _PASSWORD])
def test_a_server_that_cannot_prove_that_it_is_postgres_is_told_nothing(services, impostor, asked):
    port, told = impostor(asked)
    own = make_url(services.database.url.get_secret_value())
    url = own.set(port=port).render_as_string(hide_password=False)
    refused = pytest.raises(DatabaseUnavailableError, match='requirement "scram-sha-256" failed')
    with connected(DatabaseSettings(url=url)) as engine, refused:
        check_database(engine)
    assert own.password
    assert not any(own.password.encode() in each for each in told)
    assert b"Q" not in {each[:1] for each in told}


@pytest.fixture
def own_store(tmp_path):
    """Starts an S3 server of one's own, and gives its settings."""
    wanted = frozenset({ServiceName.S3})
    home = tmp_path / "home"
    yield lambda: start(Settings(home=home, store={"max_attempts": 1}), wanted=wanted)
    stop(home)


def _answer_as_s3(listening, certificate, key, told):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    while True:
        try:
            connection, _ = listening.accept()
            with tls.wrap_socket(connection, server_side=True) as encrypted:
                told.append(encrypted.recv(4096))
                encrypted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nlabel")
        except ssl.SSLError:
            continue
        except OSError:
            return


def _meet_impostor(store, uri, port, tmp_path, told):
    with taken_port(port) as listening:
        forged = Authority(tmp_path, "127.0.0.1").sign("s3", "127.0.0.1")
        threading.Thread(target=_answer_as_s3, args=(listening, *forged, told), daemon=True).start()
        with pytest.raises(ConfigurationError, match=rf"{port} failed TLS verification.*which server listens there"):
            ObjectStore(store).read(uri)
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.system
def test_whoever_takes_the_port_of_the_s3_server_is_refused_and_told_nothing(own_store, tmp_path):
    store, told = own_store().store, []
    uri, port = f"{store.uri}/label", urlsplit(store.endpoint_url).port
    ObjectStore(store).replace(uri, b"frame")
    certificate = store.ca_file.read_bytes()
    server = next(each for each in status(tmp_path / "home") if each.name == ServiceName.S3)
    with halted_supervisor(tmp_path / "home"):
        os.kill(server.pid, signal.SIGKILL)
        _meet_impostor(store, uri, port, tmp_path, told)

    assert told == []
    assert ObjectStore(own_store().store).read(uri) == b"frame"
    assert store.ca_file.read_bytes() == certificate
    assert {stat.S_IMODE(path.stat().st_mode) for path in store.ca_file.parent.glob("*.pem")} == {0o600}


@pytest.mark.system
def test_a_certificate_whose_key_is_lost_is_replaced_with_its_server(own_store):
    before = own_store().store
    ObjectStore(before).replace(f"{before.uri}/label", b"frame")
    before.ca_file.unlink()

    after = own_store().store

    assert ObjectStore(after).read(f"{after.uri}/label") == b"frame"
