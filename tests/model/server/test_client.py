"""Servers that answer, but not with OpenAI's API."""

import json
import time
from contextlib import closing, suppress

import pytest

from infra.errors import ServerFailedError, ServerUnavailableError
from infra.settings import ServerSettings
from reelabel.errors import ConfigurationError
from tasks.model.server.client import ServerClient
from tests.http_server import Handler, serve
from tests.vllm_server import CUT, DROPPED, gate

NOBODY = "http://127.0.0.1:9/v1"
ANYWHERE = [b"<!doctype html>\n<html>", b"", b"[]", b"null", b'{"error": {"message": "Unexpected endpoint"}}']
ASKS = {
    "find_model": lambda client: client.find_model(),
    "complete": lambda client: client.complete({"messages": []}),
    "tokenize": lambda client: client.tokenize("A"),
}


@pytest.mark.parametrize(
    ("ask", "content"),
    [
        *((ask, content) for ask in ASKS for content in ANYWHERE),
        ("find_model", b'{"data": ["shapes"]}'),
        ("complete", b'{"choices": [null]}'),
        ("complete", b'{"choices": [{"logprobs": {"content": [{"top_logprobs": [["A", -0.1]]}]}}]}'),
        ("tokenize", b'{"tokens": "AB"}'),
        ("tokenize", b'{"tokens": [{"id": 1, "piece": "A"}]}'),
    ],
)
def test_a_server_that_is_not_an_api_is_named(ask, content):
    with gate(NOBODY, lambda _path, _body: (200, content)) as url, closing(_client(url)) as client:
        fault = (
            rf"The response of {url} is not that of an OpenAI API .* server.url \(REELABEL_SERVER_URL\) end in /v1\?"
        )
        with pytest.raises(ConfigurationError, match=fault):
            ASKS[ask](client)


@pytest.mark.parametrize("name", ["", "a\\u0000b", "a" * 1001])
def test_a_name_that_cannot_be_stored_is_no_model_and_no_version(name):
    models = f'{{"data": [{{"id": "{name}"}}], "version": "{name}"}}'.encode()
    with gate(NOBODY, lambda _path, _body: (200, models)) as url, closing(_client(url)) as client:
        assert client.find_version() is None
        with pytest.raises(ConfigurationError, match="is not that of an OpenAI API"):
            client.find_model()


class Charset(Handler):
    """Says that its answer is in an encoding that is none of texts."""

    def do_GET(self):
        models = json.dumps({"data": [{"id": "naïve"}]}, ensure_ascii=False)
        self.respond(200, models.encode(), Content_Type=f"application/json; charset={self.server.charset}")


@pytest.mark.parametrize("charset", ["hex", "utf-16", "idna", "rot13", "latin-1"])
def test_json_is_read_as_utf_8_whatever_a_server_says(charset):
    with serve(Charset, charset=charset) as server, closing(_client(f"{server.url}/v1")) as client:
        assert client.find_model().id == "naïve"


def test_the_version_of_a_server_is_reported_if_it_has_one():
    for content, expected in ((b'{"version": "0.25.1"}', "0.25.1"), (b"<html>", None), (b'["0.25.1"]', None)):
        with (
            gate(NOBODY, lambda _path, _body, reply=content: (200, reply)) as url,
            closing(_client(url)) as client,
        ):
            assert client.find_version() == expected


@pytest.mark.parametrize("answer", [(DROPPED, b""), (200, CUT)], ids=["before an answer", "within it"])
def test_a_connection_that_breaks_is_counted(answer):
    """As another server may have taken the place of this one."""
    with gate(NOBODY, lambda _path, _body: answer) as url, closing(_client(url)) as client:
        with pytest.raises(ServerUnavailableError, match="does not respond"):
            client.complete({"messages": []})

        assert client.connections_lost == 1


class Endless(Handler):
    """Sends a body without an end: slowly, or, with a redirect, as fast as it is read."""

    def do_POST(self):
        self.read_body()
        self.send_response(self.server.status)
        self.send_header("Location", self.path)
        self.end_headers()
        with suppress(OSError):
            while True:
                self.wfile.write(b" " * self.server.chunk)
                time.sleep(self.server.pause_s)


def test_an_answer_that_never_ends_is_given_up_however_often_a_piece_of_it_arrives():
    with (
        serve(Endless, status=200, chunk=1, pause_s=0.1) as server,
        closing(_client(server.url, timeout_s=1)) as client,
    ):
        started = time.monotonic()

        with pytest.raises(ServerUnavailableError, match=r"timed out; server\.timeout_s is 1"):
            client.complete({"messages": []})

    assert time.monotonic() - started < 10


def test_a_redirect_without_an_end_is_no_answer():
    with (
        serve(Endless, status=307, chunk=2**20, pause_s=0) as server,
        closing(_client(server.url)) as client,
        pytest.raises(ServerFailedError, match="more than 16 MiB"),
    ):
        client.complete({"messages": []})


class Elsewhere(Handler):
    """Answers only at its other address, only with the key, and only questions."""

    def do_POST(self):
        if self.path.startswith("/old"):
            self.read_body()
            self.respond(self.server.status, Location=f"{self.server.target}/new/v1/chat/completions")
        else:
            self.respond(200 if "Authorization" in self.headers else 401, b"{}")

    def do_GET(self):
        self.respond(405)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_that_loses_the_question_or_the_key_names_the_address_to_set(status):
    with serve(Elsewhere, status=200) as other, serve(Elsewhere, status=status, target=other.url) as server:
        place = rf"{server.url}/old/v1 redirects to {other.url}/new/v1/chat/completions,.*HTTP 40[15].*server\.url"
        with closing(_client(f"{server.url}/old/v1")) as client, pytest.raises(ConfigurationError, match=place):
            client.complete({"messages": []})


def _client(url, **settings):
    return ServerClient(ServerSettings(url=url, max_attempts=1, **settings))
