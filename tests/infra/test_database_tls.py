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
from pydantic import SecretStr, ValidationError
from sqlalchemy.engine import make_url

from infra.checks import check_database as checks_of_database
from infra.database.connect import check_database, connected
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


def look(url, **files):
    """Connect, and say whether the connection is encrypted."""
    settings = DatabaseSettings(url=SecretStr(url.render_as_string(hide_password=False)), **files)
    with connected(settings) as engine:
        check_database(engine)
        with engine.connect() as connection:
            return connection.connection.driver_connection.pgconn.ssl_in_use


@pytest.mark.parametrize("mode", [None, "disable", "allow"])
def test_with_a_ca_a_connection_is_encrypted_whatever_the_url_says(server, authority, mode):
    asked = server.update_query_dict({"sslmode": mode}) if mode else server
    assert look(asked, ca_file=authority.certificate)


def test_a_certificate_signed_by_another_ca_is_refused(server, tmp_path):
    stranger = Authority(tmp_path, "Stranger")
    with pytest.raises(ConfigurationError, match=r"a certificate that database\.ca_file did not sign"):
        look(server, ca_file=stranger.certificate)


def test_a_certificate_for_another_name_is_refused(server, authority):
    with pytest.raises(ConfigurationError, match=r"a certificate for a host name other than the one in database\.url"):
        look(server.set(host="localhost"), ca_file=authority.certificate)


def test_a_server_without_tls_is_refused(services, authority):
    url = make_url(services.database.url.get_secret_value())
    for asked, files in ((url, {"ca_file": authority.certificate}), (url.set(query={"sslmode": "require"}), {})):
        with pytest.raises(ConfigurationError, match=r"encryption, which database\.ca_file or the URL"):
            look(asked, **files)


def test_a_url_that_verifies_without_a_ca_is_told_to_name_it(server):
    with pytest.raises(ConfigurationError, match=r"needs the file of its CA \(database\.ca_file\)"):
        look(server.update_query_dict({"sslmode": "verify-full", "sslrootcert": "/no/ca.crt"}))


def test_a_server_that_requires_a_client_certificate_gets_one(encrypt, authority, tmp_path):
    strict = encrypt(asks_for_certificate=True)
    certificate, key = authority.sign("us")
    stranger, stranger_key = Authority(tmp_path, "Stranger").sign("us")
    files = {"ca_file": authority.certificate}

    assert look(strict, **files, certificate_file=certificate, key_file=key)
    with pytest.raises(ConfigurationError, match=r"requires a client certificate \(database\.certificate_file\)"):
        look(strict, **files)
    with pytest.raises(ConfigurationError, match=r"rejects the certificate in database\.certificate_file"):
        look(strict, **files, certificate_file=stranger, key_file=stranger_key)


def test_a_missing_file_is_named(server, tmp_path):
    with pytest.raises(ConfigurationError, match=r"its CA \(database\.ca_file\): .*nowhere\.crt.* does not exist"):
        look(server, ca_file=tmp_path / "nowhere.crt")


def test_a_client_certificate_needs_its_key_and_a_ca(tmp_path):
    with pytest.raises(ValidationError, match="certificate_file and key_file must be set together"):
        DatabaseSettings(ca_file=tmp_path, certificate_file=tmp_path)
    with pytest.raises(ValidationError, match="certificate_file requires ca_file"):
        DatabaseSettings(certificate_file=tmp_path, key_file=tmp_path)


@pytest.mark.parametrize(("query", "is_told"), [({"sslmode": "require"}, True), ({}, False)])
def test_doctor_tells_of_encryption_that_verifies_nobody(server, query, is_told):
    url = server.set(query=query).render_as_string(hide_password=False)

    checks = list(checks_of_database(Settings(database=DatabaseSettings(url=SecretStr(url)))))

    assert all(check.ok for check in checks), checks
    assert any("set database.ca_file" in check.advice for check in checks) == is_told
