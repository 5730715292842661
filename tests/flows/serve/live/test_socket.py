"""The WebSocket of live sessions, with a scripted model behind the real server: who may ask, and odd clients."""

import base64
import logging
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress

import httpx
import pytest
from pydantic import SecretStr
from websockets.exceptions import ConnectionClosed, InvalidStatus

from flows.serve.app import make_app
from flows.serve.live.socket import live_router, make_sessions
from flows.serve.requests.handle import open_service
from flows.serve.server import _Server
from infra.settings import LiveSettings, ServerSettings, ServeSettings, Settings
from reelabel.pool.decode_pool import DecodePool
from tasks.live.media import FrameReader
from tasks.model.identity import TINY_MODEL, read_model_info
from tasks.model.server.live import ServerLiveModel
from tests.flows.serve.live.client import TOKEN, Client, send_frames
from tests.live.client import picture
from tests.live.scripted_model import INFO, ScriptedModel
from tests.stub_server import encoder, serve_stub, speech_of
from tests.vllm_server import KEY

ORIGIN = "https://example.com"
CHOICES = ["red", "green"]


class _InThread(_Server):
    @contextmanager
    def capture_signals(self):
        yield


@pytest.fixture(scope="module")
def url():
    with served(ScriptedModel(), INFO) as url:
        yield url


@pytest.fixture(scope="module")
def speaking_url():
    model_info = read_model_info(str(TINY_MODEL))
    with ExitStack() as stack:
        server = stack.enter_context(serve_stub())
        settings = ServerSettings(url=server, api_key=SecretStr(KEY), audio_input=True, voice="alloy")
        model = stack.enter_context(closing(ServerLiveModel(settings, model_info, max_frame_px=5000, encode=encoder())))
        yield stack.enter_context(served(model, model.wait_ready()))


@contextmanager
def served(model, info, *, stop_timeout_s=30, **options):
    settings = Settings(
        serve=ServeSettings(
            port=0, token=SecretStr(TOKEN), origins=(ORIGIN,), idle_timeout_s=2, stop_timeout_s=stop_timeout_s
        ),
        live=LiveSettings(max_sessions=6, resume_s=30),
    )
    with ExitStack() as stack:
        pool = stack.enter_context(DecodePool(processes=1, threads=1, timeout_s=20, memory_mib=2048))
        sessions = make_sessions(settings, model=model, info=info, pool=pool, **options)
        service = stack.enter_context(open_service(settings))
        app = make_app(service, [live_router(sessions, config_timeout_s=2)])
        opened = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=2048))
        ready = threading.Event()
        server = _InThread(app, settings.serve, ready=ready.set, end_sessions=sessions.close)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
        thread.start()
        assert ready.wait(20)
        host, port = opened.getsockname()
        yield f"http://{host}:{port}"
        server.should_exit = True
        thread.join(20)


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"token": None}, 401),
        ({"token": "another-token-of-the-length"}, 401),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": ORIGIN}, None),
    ],
)
def test_who_may_not_ask_is_refused_in_the_handshake(url, options, status):
    if status is None:
        Client(url, {}, **options).socket.close()
        return
    with pytest.raises(InvalidStatus) as raised:
        Client(url, {}, **options)
    assert raised.value.response.status_code == status


def test_the_model_is_listed_as_openais_api_does(url):
    answer = httpx.get(f"{url}/v1/models", headers={"Authorization": f"Bearer {TOKEN}"}).json()
    assert (answer["object"], [each["id"] for each in answer["data"]]) == ("list", [INFO.model])


def test_a_token_in_the_address_is_in_no_log(url, caplog):
    caplog.set_level(logging.DEBUG)
    of_browsers = _HANDSHAKE.replace(f"Authorization: Bearer {TOKEN}\r\n".encode(), b"")
    for token, status in ((TOKEN, b" 101 "), (f"{TOKEN}-of-another", b" 401 ")):
        with socket.create_connection(_address(url), timeout=60) as browser:
            browser.sendall(of_browsers.replace(b"/stream", f"/stream?token={token}".encode()))
            assert status in browser.recv(4096)
    assert TOKEN not in caplog.text


@pytest.mark.parametrize(
    ("first", "code"),
    [
        ("{", "invalid_message"),
        ({"type": "session.config", "window": 1}, "invalid_message"),
        ({"type": "video.query", "text": "?"}, "unexpected_message"),
        (b"\xff\xd8\xff", "unexpected_message"),
        ({"type": "session.config", "window": 5000}, "limit_reached"),
        ({"type": "session.resume", "session_id": "a", "resume_token": "b", "last_seq": 0}, "resume_refused"),
    ],
)
def test_a_first_message_that_begins_no_session_ends_the_connection(url, first, code):
    with Client(url) as client:
        client.send(first)
        error = client.next()
        assert (error["type"], error["code"], error["is_fatal"]) == ("error", code, True)
        with pytest.raises(ConnectionClosed) as closed:
            client.next()
        assert closed.value.rcvd.code == 1008


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("nonsense", "invalid_message"),
        ({"type": "video.frame", "data": "not base64!"}, "invalid_message"),
        ({"type": "video.frame", "data": base64.b64encode(b"no picture").decode()}, "frame_unreadable"),
        ({"type": "video.query", "text": "?"}, "no_frames"),
        ({"type": "audio.chunk", "data": "AAAA"}, "audio_unsupported"),
        ({"type": "session.config"}, "unexpected_message"),
    ],
)
def test_a_bad_message_is_reported_and_the_session_goes_on(url, message, code):
    with Client(url, {}) as client:
        client.send(message)
        assert client.last("error")["code"] == code
        send_frames(client, [0])


def test_a_message_that_is_too_large_ends_the_connection_and_not_the_session(url):
    with Client(url, {}) as client:
        created = client.created
        client.socket.socket.sendall(struct.pack("!BBQ4s", 0x81, 0x80 | 127, 17 * 1024**2, b"\0" * 4) + b"begins")
        with pytest.raises(ConnectionClosed) as closed:
            client.next()
        assert closed.value.rcvd.code == 1009
    with Client(url) as again:
        resume = {name: created[name] for name in ("session_id", "resume_token")}
        again.send({"type": "session.resume", "last_seq": 1, **resume})
        assert again.last("session.created")["is_resumed"]
        again.end()


def test_a_connection_that_resumes_a_session_replaces_the_one_before(url):
    with Client(url, {}) as client, Client(url) as again:
        resume = {name: client.created[name] for name in ("session_id", "resume_token")}
        again.send({"type": "session.resume", "last_seq": client.created["seq"], **resume})
        assert again.last("session.created")["is_resumed"]
        with pytest.raises(ConnectionClosed) as closed:
            client.next()
        assert closed.value.rcvd.code == 4001
        send_frames(again, [0])
        assert again.ask(choices=CHOICES)["frames_used"] == 1
        again.end()


def test_a_session_that_is_full_takes_no_more_from_new_connections(url, monkeypatch):
    may_decode, decode = threading.Event(), FrameReader.read
    monkeypatch.setattr(FrameReader, "read", lambda reader, data: may_decode.wait(60) and decode(reader, data))
    large = picture(0, kind="BMP").ljust(8 * 1024**2, b"\0")
    with ExitStack() as stack:
        client = stack.enter_context(Client(url, {}))
        resume = {name: client.created[name] for name in ("session_id", "resume_token")}
        for _ in range(6):
            client.send(large)
        for _ in range(4):
            client.socket.ping().wait(0.5)  # it has arrived
            client = stack.enter_context(Client(url))
            client.send({"type": "session.resume", "last_seq": 1, **resume})
            assert client.last("session.created")["is_resumed"]
            client.send(large)
        may_decode.set()
        client.send({"type": "session.stats"})
        assert client.last("session.stats")["frames"] <= 7
        client.end()


@pytest.mark.system
def test_a_client_that_does_not_read_delays_no_other(url):
    deaf = Client(url, {}, max_queue=4)
    stop = threading.Event()

    def shout():
        with suppress(OSError, ConnectionClosed):
            while not stop.is_set():
                deaf.send({"type": "session.stats"})

    for _ in range(2000):  # more answers than the client takes
        deaf.send({"type": "session.stats"})
    thread = threading.Thread(target=shout, daemon=True)
    thread.start()
    with Client(url, {}) as client:
        send_frames(client, [0, 100])
        assert client.ask(choices=CHOICES)["frames_used"] == 2
        client.end()
    assert thread.is_alive()
    stop.set()
    deaf.vanish()
    thread.join(10)


def test_events_that_are_no_longer_kept_are_told_as_lost(url, monkeypatch):
    monkeypatch.setattr("tasks.live.event_log._MAX_EVENTS", 5)
    client = Client(url, {})
    for _ in range(20):
        client.send({"type": "ping"})
        client.last("pong")
    client.vanish()
    with Client(url) as again:
        resume = {name: client.created[name] for name in ("session_id", "resume_token")}
        again.send({"type": "session.resume", "last_seq": client.created["seq"], **resume})
        notice = again.last("session.notice")
        assert notice["message"] == "16 events before these are no longer kept."
        assert [event["seq"] for event in again.events][:2] == [18, 19]
        again.end()


@pytest.mark.system
def test_a_client_that_pings_and_does_not_read_is_left(url, monkeypatch):
    monkeypatch.setattr("flows.serve.server._MAX_UNREAD_BYTES", 65_536)
    config, pings = _masked(0x81, b'{"type": "session.config"}'), 1000 * _masked(0x89, b"p" * 125)

    def shout():
        with socket.create_connection(_address(url), timeout=60) as deaf:
            deaf.sendall(_HANDSHAKE)
            assert b" 101 " in deaf.recv(4096)
            deaf.sendall(config)
            for _ in range(500):  # 65 MB
                deaf.sendall(pings)

    with pytest.raises(OSError, match=r"reset|pipe"):
        shout()


def _masked(kind, data):
    return struct.pack("!BB4s", kind, 0x80 | len(data), b"\0" * 4) + data


@pytest.mark.system
def test_a_handshake_that_its_parser_does_not_take_holds_no_connection(url):
    mores = ["X: " + "x" * 9000, "\r\n".join(f"X-{number}: x" for number in range(200))]
    with ExitStack() as stack:
        asking = [stack.enter_context(socket.create_connection(_address(url), timeout=60)) for _ in mores]
        for one, more in zip(asking, mores, strict=True):
            one.sendall(_HANDSHAKE.removesuffix(b"\r\n") + more.encode() + b"\r\n\r\n")
        assert [one.recv(4096) for one in asking] == [b"", b""]


@pytest.mark.system
def test_half_a_message_does_not_hold_a_connection(url):
    client = Client(url)
    client.socket.socket.sendall(struct.pack("!BBH4s", 0x01, 0x80 | 126, 1000, b"\0\0\0\0") + b"half")
    assert client.next()["code"] == "config_timeout"


def test_more_sessions_than_allowed_are_refused_until_one_ends(url):
    with ExitStack() as stack:
        clients = []
        while (event := _begin(stack, url, clients))["type"] == "session.created":
            assert len(clients) <= 6
        assert event["code"] == "too_many_sessions"
        clients[0].end()
        while _begin(stack, url, clients)["type"] != "session.created":
            pass
        for client in clients[1:]:
            client.socket.close()


def _begin(stack, url, clients):
    client = stack.enter_context(Client(url))
    client.send({"type": "session.config"})
    event = client.next()
    if event["type"] == "session.created":
        clients.append(client)
    return event


@pytest.mark.system
def test_a_thousand_silent_connections_delay_nobody(url):
    with Client(url, {}) as client, ExitStack() as stack:
        send_frames(client, [0, 100])
        silent = [stack.enter_context(socket.create_connection(_address(url), timeout=60)) for _ in range(1000)]
        for one in silent[::2]:  # the others do not even ask for a WebSocket
            one.sendall(_HANDSHAKE)
        send_frames(client, [200], first_s=2)
        assert client.ask(choices=CHOICES)["frames_used"] == 3
        for one in silent[::2]:
            received = b""
            while b"config_timeout" not in received:
                received += (part := one.recv(4096))
                assert part, received
        client.end()


_HANDSHAKE = (
    "GET /v1/video/chat/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    f"Sec-WebSocket-Key: {'A' * 22}==\r\nSec-WebSocket-Version: 13\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
).encode()


def _address(url):
    host, port = url.removeprefix("http://").split(":")
    return host, int(port)


def test_every_client_is_told_that_the_service_ends_before_its_connection_is_closed():
    with served(ScriptedModel(), INFO) as own:
        clients = [Client(own, {}) for _ in range(3)]
        send_frames(clients[0], [0, 100])
        clients[1].vanish()

    for client in (clients[0], clients[2]):
        assert client.last("session.closed")["reason"] == "server_stopping"
        with pytest.raises(ConnectionClosed) as closed:
            client.next()
        assert closed.value.rcvd.code == 1012
    with pytest.raises(OSError, match="refused"):
        Client(own, {})


@pytest.mark.system
def test_a_session_whose_end_cannot_be_written_keeps_the_service_no_longer_than_it_may_take():
    stalled = threading.Event()

    class Stalled:
        def keep(self, **_frame):
            pass

        def close(self, **_counts):
            stalled.wait(60)

    def await_end(client):
        with pytest.raises(ConnectionClosed) as closed:
            client.next()
        stalled.set()
        return closed.value.rcvd.code

    with ThreadPoolExecutor(1) as threads:
        with served(ScriptedModel(), INFO, stop_timeout_s=1, open_record=lambda *_: Stalled()) as own:
            code = threads.submit(await_end, Client(own, {}))
        assert code.result() == 1012


def test_the_speech_of_a_server_follows_its_announcements_and_is_sent_again_to_who_missed_it(speaking_url):
    with Client(speaking_url, {"modalities": ["text", "audio"], "speaker": "sage"} | BINARY) as client:
        assert client.created["modalities"] == ["text", "audio"]
        send_frames(client, [0, 100])
        client.send({"type": "audio.chunk", "data": base64.b64encode(bytes(3200)).decode(), "time_s": 1.0})
        client.send({"type": "video.query", "text": "What is it?"})
        speech = speech_until_done(client)
        client.vanish()
    resumed = {"session_id": client.created["session_id"], "resume_token": client.created["resume_token"]}
    with Client(speaking_url) as again:
        again.send({"type": "session.resume", **resumed, "last_seq": client.created["seq"]})
        assert speech_until_done(again) == speech

    done = again.events[-1]
    assert done["text"] == "image image audio What is it? "
    assert speech == [speech_of(f"{word} ", "sage") for word in done["text"].split()]
    assert done["speech_s"] == pytest.approx(sum(map(len, speech)) / 48_000)
    assert 0 < done["first_speech_ms"] < done["total_ms"]
    kinds = [event["type"] for event in again.events]
    written = len(kinds) - kinds[::-1].index("response.text.delta")
    assert kinds.index("response.audio") < written, "it is spoken while it is being written"


BINARY = {"speech_event": "response.audio"}


def speech_until_done(client):
    """Return the binary messages until the answer is complete, each after the event that announces it."""
    speech = []
    while (event := client.next())["type"] != "response.done":
        if event["type"] == "response.audio":
            speech.append(client.socket.recv(timeout=20))
            assert len(speech[-1]) == event["bytes"]
    return speech


@pytest.mark.system
def test_a_burst_of_2000_frames_is_taken_whole_and_the_next_question_sees_the_last(url):
    picture_of = [picture(shade) for shade in (0, 120)]
    with Client(url, {"window": 64}) as client:
        sending = threading.Thread(target=lambda: [client.send(picture_of[at % 2]) for at in range(2000)])
        sending.start()
        acks = [client.last("frame.ack") for _ in range(2000)]
        sending.join()
        client.send({"type": "video.query", "text": "?"})
        done = client.last("response.done")

    assert [ack["frame"] for ack in acks] == list(range(2000))
    assert {ack["status"] for ack in acks} == {"kept"}
    assert done["last_frame_s"] == acks[-1]["time_s"]
    assert done["frames_used"] >= 64


def flood(connection, frame):
    with suppress(OSError):
        while True:
            connection.sendall(frame * 40_000)


@pytest.mark.system
@pytest.mark.parametrize("kind", [0x00, 0x89], ids=["continuations", "pings"])
def test_empty_frames_without_end_leave_others_their_turns(url, kind):
    took_s = []
    with Client(url, {}) as client, httpx.Client(base_url=url) as other:
        raw = client.socket.socket
        if kind == 0x00:
            raw.sendall(b"\x01\x80\0\0\0\0")
        flooding = threading.Thread(target=flood, args=(raw, bytes([kind, 0x80, 0, 0, 0, 0])))
        flooding.start()
        ends_s = time.monotonic() + 2
        while time.monotonic() < ends_s:
            began_s = time.monotonic()
            assert other.get("/health").status_code == 200
            took_s.append(time.monotonic() - began_s)
        client.vanish()
        flooding.join(10)

    assert sorted(took_s)[len(took_s) // 2] < 1  # without turns, seconds
