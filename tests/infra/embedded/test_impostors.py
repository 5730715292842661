"""Whoever takes the port of an embedded server that has died is found out, and is told nothing."""

import socket
import struct
import threading

import pytest
from sqlalchemy.engine import make_url

from infra.database.connect import check_database, connect
from infra.errors import DatabaseUnavailableError
from infra.settings import DatabaseSettings

# What a server may ask for, by the code of its request: no password at all, or the password itself.
_TRUST, _PASSWORD = 0, 3


@pytest.fixture
def impostor():
    """A server of another user on a port of 127.0.0.1, and what it was told after the name of the user."""
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
    engine = connect(DatabaseSettings(url=url))

    with pytest.raises(DatabaseUnavailableError, match='requirement "scram-sha-256" failed'):
        check_database(engine)

    engine.dispose()
    assert own.password
    assert not any(own.password.encode() in each for each in told)
    assert b"Q" not in {each[:1] for each in told}
