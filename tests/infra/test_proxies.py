"""Proxies in the environment do not come between this machine's processes."""

import os
from unittest.mock import patch
from urllib.request import proxy_bypass

import httpx
import pytest

from infra.proxies import bypass_proxies
from tests.http_server import Handler, serve

NOBODY = "http://127.0.0.1:1"


class Answers(Handler):
    def do_GET(self):
        self.respond(204)


@pytest.fixture(scope="module")
def here():
    with serve(Answers) as server:
        yield server.url


@pytest.mark.parametrize(
    ("variables", "around"),
    [
        pytest.param({"HTTP_PROXY": NOBODY, "HTTPS_PROXY": NOBODY}, "127.0.0.1,localhost,::1", id="for everything"),
        pytest.param({"http_proxy": NOBODY, "NO_PROXY": ".corp"}, ".corp,127.0.0.1,localhost,::1", id="except some"),
        pytest.param({"http_proxy": NOBODY, "no_proxy": "*"}, "*", id="except all"),
        pytest.param({"ALL_PROXY": "socks5h://127.0.0.1:1"}, None, id="SOCKS"),
        pytest.param({}, None, id="none"),
    ],
)
def test_servers_of_this_machine_are_reached_without_a_proxy(here, variables, around):
    with patch.dict(os.environ, variables, clear=True):
        forgotten = bypass_proxies()

        assert forgotten == [name for name in variables if name == "ALL_PROXY"]
        assert bypass_proxies() == []
        assert httpx.get(here).status_code == 204
        assert os.environ.get("no_proxy") == around
        assert proxy_bypass("example.com") == (around == "*")
