"""The server as a process, without engines: slots, silent and vanishing clients, signals."""

import json
import os
import select
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.flows.serve.served import serving_slowly
from tests.wait import until

pytestmark = pytest.mark.system
SLOTS, IDLE_S = 4, 1


@pytest.fixture(scope="module")
def served():
    with serving_slowly(max_requests=SLOTS, idle_timeout_s=IDLE_S, max_upload_mib=1) as running:
        yield running


@pytest.fixture
def client(served):
    with httpx.Client(base_url=served.url, timeout=20) as client:
        yield client
        await_count(client, 0)


def await_count(client, count):
    """Wait until so many requests are in progress: a busy machine reads for minutes what was sent in seconds."""
    until(lambda: client.get("/health").json()["requests"] == count, 240)


def connect(served):
    host, _, port = served.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def answer_of(connection):
    """All that the server says until it closes; what was sent after that resets the connection."""
    received = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(4096):
            received += part
    return received


def head_of(length, kind="application/json"):
    lines = ("POST /sleep HTTP/1.1", "Host: 127.0.0.1", "Connection: close", f"Content-Type: {kind}")
    return "\r\n".join((*lines, f"Content-Length: {length}", "", "")).encode()


def ask_to_sleep(served, seconds):
    """Return a connection whose request is in progress for so long."""
    body = json.dumps({"seconds": seconds}).encode()
    asking = connect(served)
    asking.sendall(head_of(len(body)) + body)
    return asking


def test_beyond_its_slots_requests_are_refused_while_those_in_work_go_on(client, served):
    holding = [ask_to_sleep(served, 60) for _ in range(SLOTS)]
    await_count(client, SLOTS)

    with ThreadPoolExecutor(2 * SLOTS) as threads:
        refused = [*threads.map(lambda _: client.post("/sleep", json={}), range(2 * SLOTS))]

    assert {(each.status_code, each.json()["code"]) for each in refused} == {(429, "busy")}
    assert all(int(each.headers["retry-after"]) >= 1 for each in refused)
    assert client.get("/health").json()["requests"] == SLOTS
    assert 'outcome="busy"' in client.get("/metrics").text
    for each in holding:
        each.close()
    await_count(client, 0)
    assert client.post("/sleep", json={}).status_code == 200


def test_half_requests_take_slots_only_as_long_as_their_bytes_come(client, served):
    halves = [connect(served) for _ in range(SLOTS)]
    for half in halves:
        half.sendall(head_of(99) + b'{"sec')
    await_count(client, SLOTS)
    assert client.post("/sleep", json={}).status_code == 429

    halves[0].close()
    await_count(client, 0)
    answers = [answer_of(half) for half in halves[1:]]

    assert all(b" 408 " in each and b"request_timeout" in each for each in answers)
    for half in halves[1:]:
        half.close()


def test_a_client_that_vanishes_frees_its_slot_long_before_its_work_would_have_ended(client, served):
    gone = ask_to_sleep(served, 60)
    await_count(client, 1)

    gone.close()

    await_count(client, 0)
    assert 'outcome="cancelled"' in client.get("/metrics").text


def test_a_thousand_connections_that_say_nothing_are_closed_and_disturb_nobody(client, served):
    silent = [connect(served) for _ in range(1000)]
    slow, slow_again, refused = (connect(served) for _ in range(3))
    slow.sendall(b"GET /health HT")
    slow_again.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /health HT")
    refused.sendall(b"POST /health HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\nhalf a body")

    assert client.get("/health").status_code == 200
    assert client.post("/sleep", json={}).status_code == 200
    assert [each.recv(1) for each in (silent[0], silent[-1], slow)] == [b"", b"", b""]
    assert answer_of(slow_again).startswith(b"HTTP/1.1 200 ")
    assert answer_of(refused).startswith(b"HTTP/1.1 405 ")
    for each in (*silent, slow, slow_again, refused):
        each.close()


def test_a_head_without_end_is_refused(client, served):
    with connect(served) as sender:
        sender.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
        with pytest.raises(OSError, match=r"reset|pipe"):
            sender.sendall(b"x" * 64 * 1024**2)

    assert client.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        pytest.param([b"X: " + b"x" * 20_000], b" 400 ", id="a head that is too long, at once"),
        pytest.param([b"Content-Length: 4", b"Transfer-Encoding: chunked"], b" 400 ", id="two lengths"),
        pytest.param([b"Host: evil@127.0.0.1"], b" 421 ", id="a user in the host"),
        pytest.param([b"Host: 127.0.0.1/evil"], b" 421 ", id="a path in the host"),
    ],
)
def test_an_odd_head_is_refused_and_what_follows_is_no_request(served, lines, status):
    heads = [b"POST /sleep HTTP/1.1", *([] if b"Host" in lines[0] else [b"Host: 127.0.0.1"]), *lines]
    with connect(served) as sender:
        sender.sendall(b"\r\n".join([*heads, b"Connection: close", b"", b"0\r\n\r\nGET /health HTTP/1.1\r\n\r\n"]))
        answer = answer_of(sender)

    assert answer.startswith(b"HTTP/1.1" + status), answer
    assert answer.count(b"HTTP/1.1") == 1


def test_a_body_of_single_bytes_leaves_others_their_turns(client, served):
    head = head_of(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    took_s = []
    with connect(served) as sender:
        sender.sendall(head + b"1\r\n[\r\n")
        sender.setblocking(False)
        chunk, sent, ends_s = b"1\r\n \r\n", 0, time.monotonic() + 2
        while time.monotonic() < ends_s:
            with suppress(OSError):  # the server does not read as fast, and has soon refused it
                sent += sender.send((chunk * 40_000)[sent % len(chunk) :])
            began_s = time.monotonic()
            assert client.get("/health").status_code == 200
            took_s.append(time.monotonic() - began_s)

    assert sorted(took_s)[len(took_s) // 2] < 1


def test_an_upload_is_read_and_removed(client, served):
    answer = client.post("/sleep", data={"request": "{}"}, files={"video": b"x" * 1024**2})

    assert answer.json() == {"size_bytes": 1024**2}
    assert list(Path(served.lines[0].partition(" at ")[0]).iterdir()) == []


def test_an_upload_that_is_too_large_is_refused_before_it_is_sent(served):
    sender = connect(served)

    sender.sendall(head_of(1024**3, "multipart/form-data; boundary=b"))

    answer = answer_of(sender)
    assert b" 413 " in answer
    assert b"upload_too_large" in answer
    sender.close()


def test_an_upload_of_unknown_length_is_refused_once_it_is_too_large(client, served):
    def endless():
        yield b'--b\r\nContent-Disposition: form-data; name="video"; filename="v"\r\n\r\n'
        for _ in range(512):
            yield b"x" * 65_536

    try:
        answer = client.post("/sleep", content=endless(), headers={"content-type": "multipart/form-data; boundary=b"})
    except httpx.WriteError:  # the server has answered and closed, while this was being sent
        pass
    else:
        assert (answer.status_code, answer.json()["code"]) == (413, "upload_too_large")
    assert list(Path(served.lines[0].partition(" at ")[0]).iterdir()) == []


FIELD = b"--b\r\nContent-Disposition: form-data; name=%s\r\n\r\n"
VIDEO = b'"video"; filename="v"'
WHOLE = FIELD % b'"request"' + b"{}\r\n" + FIELD % VIDEO + b"x\r\n--b--\r\n"


@pytest.mark.parametrize(
    ("beginning", "repeated", "pause_s", "code"),
    [
        pytest.param(b"", b"\r\n" * 4096, 0, "upload_too_large", id="before its first field, fast"),
        pytest.param(b"", b"\r\n", 0.05, "request_timeout", id="before its first field, slowly"),
        pytest.param(WHOLE, b"\r\n" * 4096, 0, "upload_too_large", id="after its last field, fast"),
        pytest.param(WHOLE, b"\r\n", 0.05, "request_timeout", id="after its last field, slowly"),
        pytest.param(FIELD % VIDEO, b"x", 0.05, "request_timeout", id="within a field, byte by byte"),
        pytest.param(FIELD % VIDEO + b"x" * 500_000, b"x", 0.05, "request_timeout", id="byte by byte after a burst"),
    ],
)
def test_a_form_of_unknown_length_that_does_not_end_loses_its_slot(client, served, beginning, repeated, pause_s, code):
    with connect(served) as sender:
        head = head_of(0, "multipart/form-data; boundary=b").replace(
            b"Content-Length: 0", b"Transfer-Encoding: chunked"
        )
        sender.sendall(head)
        with suppress(OSError):  # the server has answered and closed, while this was being sent
            while not select.select([sender], [], [], pause_s)[0]:
                part, beginning = beginning + repeated, b""
                sender.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        received = answer_of(sender)

    if received or pause_s:
        assert f'"{code}"'.encode() in received
    await_count(client, 0)
    assert client.post("/sleep", json={}).status_code == 200


@pytest.mark.parametrize("sent", [b"\r\n" * 50_000, b"\x16\x03\x01 hello", b"GET / HTTP/9.9\r\n\r\n", os.urandom(4096)])
def test_an_invalid_request_is_refused_and_disturbs_nobody(client, served, sent):
    with connect(served) as sender, suppress(OSError):
        sender.sendall(sent)
        sender.recv(4096)

    assert client.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("number", "seconds", "status"),
    [
        pytest.param(signal.SIGTERM, 1.0, [200], id="SIGTERM waits for what is in progress"),
        pytest.param(signal.SIGTERM, 600, [503], id="SIGTERM waits no longer than it is told"),
        pytest.param(signal.SIGINT, 1.0, [200], id="Ctrl-C waits seconds"),
    ],
)
def test_a_signal_ends_the_service(number, seconds, status):
    with serving_slowly(stop_timeout_s=2 if status == [503] else 30) as ours:
        answers = []

        def ask():
            with suppress(httpx.HTTPError):
                answers.append(httpx.post(f"{ours.url}/sleep", json={"seconds": seconds}, timeout=60).status_code)

        asking = threading.Thread(target=ask)
        asking.start()
        with httpx.Client(base_url=ours.url) as client:
            await_count(client, 1)
        code = ours.end(number)
        asking.join(5)

    assert (code, answers) == (0, status), ours.lines
    assert ours.lines[-1] == "Stopped."
    assert not Path(ours.lines[0].partition(" at ")[0]).exists()
    assert not any("Traceback" in line for line in ours.lines)
