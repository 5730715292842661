"""Where the service listens."""

import socket

import pytest
from pydantic import SecretStr

from flows.serve.server import reserve, url_of
from infra.settings import ServeSettings
from reelabel.errors import ConfigurationError


def test_another_address_than_loopback_needs_a_token():
    with pytest.raises(ConfigurationError, match=r"serve\.token"):
        reserve(ServeSettings(host="0.0.0.0", port=0))


@pytest.mark.parametrize("more", [{"token": SecretStr("a-token-of-some-length")}, {"without_token": True}])
def test_with_a_token_or_by_an_explicit_option_it_listens_anywhere(more):
    with reserve(ServeSettings(host="0.0.0.0", port=0, **more)) as opened:
        assert url_of(opened).startswith("http://0.0.0.0:")


def test_a_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(
            ConfigurationError, match=rf"Cannot listen on 127\.0\.0\.1:{port} \(Address already in use\)"
        ):
            reserve(ServeSettings(port=port))


def test_the_body_of_an_answer_does_not_wait_until_its_head_is_acknowledged():
    with reserve(ServeSettings(port=0)) as opened:
        opened.listen()
        with socket.create_connection(opened.getsockname()), opened.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
