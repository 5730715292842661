"""A process that takes the port of a dead embedded server is detected, and is sent nothing."""

import os
import signal
import socket
import ssl
import stat
import struct
import threading
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from sqlalchemy.engine import make_url

from infra.database.connect import check_database, connected
from infra.embedded import ServiceName, start, status, stop
from infra.embedded.home import Home
from infra.embedded.prefect import PrefectServer
from infra.errors import DatabaseUnavailableError
from infra.settings import DatabaseSettings, Settings
from reelabel.errors import ConfigurationError
from reelabel.sources.object_store import ObjectStore
from tests.certificates import Authority
from tests.http_server import Handler, serve
from tests.other_user import STRANGER
from tests.supervisor import halted_supervisor, taken_port

# What a server may ask for, by the code of its request: no password at all, or the password itself.
_TRUST, _PASSWORD = 0, 3


@pytest.fixture
def impostor():
    """A server of another user on a port of 127.0.0.1, and what it was sent after the name of the user."""
    received = []

    def answer(authentication):
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.recv(4096)
                connection.sendall(b"R" + struct.pack("!II", 8, authentication))
                received.append(connection.recv(4096))

    def begin(authentication):
        threading.Thread(target=answer, args=(authentication,), daemon=True).start()
        return listening.getsockname()[1], received

    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield begin


@pytest.mark.parametrize("authentication", [_TRUST, _PASSWORD])
def test_a_server_that_cannot_prove_that_it_is_postgres_is_told_nothing(services, impostor, authentication):
    port, received = impostor(authentication)
    own = make_url(services.database.url.get_secret_value())
    url = own.set(port=port).render_as_string(hide_password=False)
    refused = pytest.raises(DatabaseUnavailableError, match='requirement "scram-sha-256" failed')
    with connected(DatabaseSettings(url=url)) as engine, refused:
        check_database(engine)
    assert own.password
    assert not any(own.password.encode() in each for each in received)
    assert b"Q" not in {each[:1] for each in received}


class Healthy(Handler):
    def do_GET(self):
        self.respond(200, b"true")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_whoever_takes_the_port_of_prefect_while_it_starts_is_not_taken_for_it(tmp_path):
    """It would get the login of every command, and the worker's, and have that run anything."""
    prefect = PrefectServer(Home(tmp_path / "home"))
    receiving, sending = os.pipe()
    stranger = os.fork()
    if not stranger:
        try:
            os.setgid(STRANGER)
            os.setuid(STRANGER)
            _seem_healthy(sending)
        finally:
            os._exit(1)
    os.close(sending)
    try:
        theirs = int(os.read(receiving, 10))
        with urlopen(f"{prefect.api_url(theirs)}/health") as answer:
            assert answer.status == 200

        assert not prefect.is_ready(theirs)
        with serve(Healthy) as server:
            assert prefect.is_ready(server.server_port)
    finally:
        os.kill(stranger, signal.SIGKILL)
        os.waitpid(stranger, 0)
        os.close(receiving)


def _seem_healthy(port_to):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        os.write(port_to, str(listening.getsockname()[1]).encode())
        while True:
            with listening.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntrue")


@pytest.fixture
def own_store(tmp_path):
    """Starts an S3 server of one's own, and gives its settings."""
    wanted = frozenset({ServiceName.S3})
    home = tmp_path / "home"
    yield lambda: start(Settings(home=home, store={"max_attempts": 1}), wanted=wanted)
    stop(home)


def _answer_as_s3(listening, certificate, key, received):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    while True:
        try:
            connection, _ = listening.accept()
            with tls.wrap_socket(connection, server_side=True) as encrypted:
                received.append(encrypted.recv(4096))
                encrypted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nlabel")
        except ssl.SSLError:
            continue
        except OSError:
            return


def _write_through_impostor(store, uri, port, tmp_path, received):
    with taken_port(port) as listening:
        forged = Authority(tmp_path, "127.0.0.1").sign("s3", "127.0.0.1")
        threading.Thread(target=_answer_as_s3, args=(listening, *forged, received), daemon=True).start()
        with pytest.raises(ConfigurationError, match=rf"{port} failed TLS verification.*which server listens there"):
            ObjectStore(store).read(uri)
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.system
def test_whoever_takes_the_port_of_the_s3_server_is_refused_and_told_nothing(own_store, tmp_path):
    store, received = own_store().store, []
    uri, port = f"{store.uri}/label", urlsplit(store.endpoint_url).port
    ObjectStore(store).replace(uri, b"frame")
    certificate = store.ca_file.read_bytes()
    server = next(each for each in status(tmp_path / "home") if each.name == ServiceName.S3)
    with halted_supervisor(tmp_path / "home"):
        os.kill(server.pid, signal.SIGKILL)
        _write_through_impostor(store, uri, port, tmp_path, received)

    assert received == []
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
