"""Postgres over TLS, with the test's own certificate authority."""

import os
import select
import socket
import socketserver
import ssl
import struct
import threading
from contextlib import suppress

import pytest
from pydantic import SecretStr
from sqlalchemy.engine import make_url

from infra.database.connect import check_database, connected
from infra.doctor import check_database as checks_of_database
from infra.settings import DatabaseSettings, Settings
from reelabel.errors import ConfigurationError
from tests.certificates import Authority

_SSL_REQUEST = struct.pack("!ii", 8, 80877103)  # what libpq asks before anything else


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def encrypt(services, authority):
    """Put TLS before the Postgres of the tests, whose build has none; gives a URL through it."""
    url = make_url(services.database.url.get_secret_value())
    ports = {asks: _serve(_context(authority, asks_for_certificate=asks), url.port) for asks in (False, True)}
    return lambda *, asks_for_certificate=False: url.set(port=ports[asks_for_certificate])


@pytest.fixture
def server(encrypt):
    return encrypt()


def _context(authority, *, asks_for_certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.sign("server", "127.0.0.1"))
    if asks_for_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.certificate)
    return context


def _serve(context, postgres_port):
    """Speak TLS as Postgres does, in threads that end with the tests; gives its port."""

    class Connection(socketserver.BaseRequestHandler):
        def handle(self):
            if self.request.recv(len(_SSL_REQUEST)) != _SSL_REQUEST:
                return
            self.request.sendall(b"S")
            client = context.wrap_socket(self.request, server_side=True, do_handshake_on_connect=False)
            try:
                client.do_handshake()
            except ssl.SSLError:
                with suppress(OSError):
                    os.read(client.fileno(), 65536)  # what is left unread would take the alert with it
                return
            with client, socket.create_connection(("127.0.0.1", postgres_port)) as postgres, suppress(OSError):
                _pass_on(client, postgres)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connection)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def _pass_on(client, postgres):
    while True:
        for source in [client] if client.pending() else select.select([client, postgres], [], [])[0]:
            data = source.recv(65536)
            if not data:
                return
            (postgres if source is client else client).sendall(data)


def look(url, **options):
    """Connect with options of libpq, and say whether the connection is encrypted."""
    target = url.update_query_dict({name: str(value) for name, value in options.items()})
    settings = DatabaseSettings(url=SecretStr(target.render_as_string(hide_password=False)))
    with connected(settings) as engine:
        check_database(engine)
        with engine.connect() as connection:
            return connection.connection.driver_connection.pgconn.ssl_in_use


def verified(authority):
    return {"sslmode": "verify-full", "sslrootcert": authority.certificate}


def test_a_connection_is_encrypted_and_the_server_verified(server, authority):
    assert look(server, **verified(authority))


def test_a_certificate_signed_by_another_ca_is_refused(server, tmp_path):
    with pytest.raises(ConfigurationError, match=r"refuses the login: .*certificate verify failed"):
        look(server, **verified(Authority(tmp_path, "Stranger")))


def test_a_certificate_for_another_name_is_refused(server, authority):
    with pytest.raises(ConfigurationError, match=r"does not match host name"):
        look(server.set(host="localhost"), **verified(authority))


def test_a_server_without_tls_is_refused(services, authority):
    url = make_url(services.database.url.get_secret_value())
    for options in (verified(authority), {"sslmode": "require"}):
        with pytest.raises(ConfigurationError, match=r"server does not support SSL"):
            look(url, **options)


def test_a_server_that_requires_a_client_certificate_gets_one(encrypt, authority, tmp_path):
    strict, options = encrypt(asks_for_certificate=True), verified(authority)
    certificate, key = authority.sign("us")
    stranger, stranger_key = Authority(tmp_path, "Stranger").sign("us")

    assert look(strict, **options, sslcert=certificate, sslkey=key)
    with pytest.raises(ConfigurationError, match=r"certificate required"):
        look(strict, **options)
    with pytest.raises(ConfigurationError, match=r"alert unknown ca"):
        look(strict, **options, sslcert=stranger, sslkey=stranger_key)


def test_a_missing_file_is_named(server, tmp_path):
    with pytest.raises(ConfigurationError, match=r"nowhere\.crt.* does not exist"):
        look(server, sslmode="verify-full", sslrootcert=tmp_path / "nowhere.crt")


@pytest.mark.parametrize(("query", "is_advised"), [({"sslmode": "require"}, True), ({}, False)])
def test_doctor_tells_of_encryption_that_verifies_nobody(server, query, is_advised):
    url = server.set(query=query).render_as_string(hide_password=False)

    checks = list(checks_of_database(Settings(database=DatabaseSettings(url=SecretStr(url)))))

    assert all(check.ok for check in checks), checks
    assert any("sslmode=verify-full" in check.advice for check in checks) == is_advised
