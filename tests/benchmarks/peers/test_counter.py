"""The relay that counts what comes from the S3 server, and can stop in the middle of an object."""

import http.client
import multiprocessing
import ssl
import threading
from urllib.parse import urlsplit

import pytest

from benchmarks.peers import counter
from benchmarks.peers.counter import Traffic
from tests.certificates import Authority
from tests.reelabel.sources.web_server import serving

BODY = bytes(range(256)) * 2000


@pytest.fixture
def relay(tmp_path):
    """Serve three objects by TLS; return a connection to a relay before that server, and its counts."""
    authority = Authority(tmp_path)
    certificate, key = authority.sign("server", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serving(context) as server:
        for path in ("/whole", "/stalls.mp4", "/after"):
            server.add(path, body=BODY)
        address = ("127.0.0.1", urlsplit(server.url).port)
        counts = multiprocessing.Array("Q", 2)
        ours, theirs = multiprocessing.Pipe()
        arguments = (address, str(authority.certificate), counts, theirs)
        threading.Thread(target=counter._serve, args=arguments, daemon=True).start()
        connection = http.client.HTTPConnection("127.0.0.1", ours.recv(), timeout=0.5)
        yield connection, counts
        connection.close()


def test_bytes_pass_as_they_are_and_are_counted(relay):
    connection, counts = relay

    for _ in range(2):
        connection.request("GET", "/whole")
        assert connection.getresponse().read() == BODY

    received = Traffic(*counts).since(Traffic(0, 0))
    assert received.requests == 2
    assert 2 * len(BODY) < received.received_bytes < 2 * len(BODY) + 1000


def test_an_object_whose_name_says_so_stops_in_the_middle_and_others_do_not(relay):
    connection, counts = relay

    connection.request("GET", "/stalls.mp4")
    response = connection.getresponse()
    with pytest.raises(TimeoutError):
        response.read()
    connection.close()
    connection.request("HEAD", "/stalls.mp4")
    connection.getresponse().read()
    connection.request("GET", "/after")

    assert connection.getresponse().read() == BODY
    assert counts[0] < 2 * len(BODY)
