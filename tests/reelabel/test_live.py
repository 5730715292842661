"""The library's client of live sessions, before a server that follows a script."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.server import serve

from reelabel import live
from reelabel.errors import ConfigurationError
from reelabel.live import LiveClient

CREATED = {"type": "session.created", "seq": 1, "session_id": "a", "resume_token": "b", "resume_s": 60}
CLOSED = {"type": "session.closed", "seq": 9}
RESUME = {"type": "session.resume", "session_id": "a", "resume_token": "b"}
EVERYTHING = "video.done"
PATH = "/v1/video/chat/stream"


class Server:
    """A server that plays one script per connection: sends events and bytes, and receives messages.

    A number receives so many messages, and `EVERYTHING` all up to that one; the connection ends with its script.
    """

    def __init__(self, *scripts, handshakes=()):
        self.received, self.requests = [[] for _ in scripts], []
        self._scripts, self._handshakes = iter(enumerate(scripts)), iter(handshakes)
        self.url = ""

    async def open(self, connection, request):
        self.requests.append(request)
        refusal = next(self._handshakes, None)
        return refusal and await refusal(connection)

    async def play(self, socket):
        number, script = next(self._scripts)
        for step in script:
            match step:
                case bytes():
                    await socket.send(step)
                case dict():
                    await socket.send(json.dumps(step))
                case int():
                    for _ in range(step):
                        await self._receive(socket, number)
                case str():
                    while await self._receive(socket, number) != {"type": step}:
                        pass

    async def _receive(self, socket, number):
        message = await socket.recv()
        self.received[number].append(message if isinstance(message, bytes) else json.loads(message))
        return self.received[number][-1]


@asynccontextmanager
async def serving(*scripts, **options):
    server = Server(*scripts, **options)
    async with serve(server.play, "127.0.0.1", 0, process_request=server.open) as opened:
        server.url = f"http://127.0.0.1:{opened.sockets[0].getsockname()[1]}"
        yield server


def refusing(status, body=""):
    """Return what refuses a handshake."""

    async def refuse(connection):
        return connection.respond(status, body)

    return refuse


async def begin(url, **options):
    async with LiveClient(url, **options):
        pass


@pytest.fixture(autouse=True)
def retries_at_once(monkeypatch):
    monkeypatch.setattr(live, "_RETRY_S", 0.001)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:1", f"ws://127.0.0.1:1{PATH}"),
        ("https://127.0.0.1:1", f"wss://127.0.0.1:1{PATH}"),
        ("127.0.0.1:1", f"ws://127.0.0.1:1{PATH}"),
        ("wss://127.0.0.1:1/", f"wss://127.0.0.1:1{PATH}"),
        ("ws://127.0.0.1:1/behind/a/proxy/?a=b#c", "ws://127.0.0.1:1/behind/a/proxy"),
    ],
)
def test_an_address_without_a_server_is_named_as_a_websocket(url, address):
    with pytest.raises(ConfigurationError, match=r"No live sessions are served at (\S+) \(") as raised:
        asyncio.run(begin(url))
    assert f" {address} (" in raised.value.message


@pytest.mark.parametrize("url", ["ftp://somewhere", "http://", "http://[::1", "/a/path", ""])
def test_an_invalid_server_address_is_refused_at_once(url):
    with pytest.raises(ConfigurationError, match="is not the address of a server"):
        LiveClient(url)


@pytest.mark.parametrize(("options", "sent"), [({"token": "secret"}, "Bearer secret"), ({}, None)])
def test_a_session_begins_with_its_token_and_configuration(options, sent):
    async def talk():
        async with serving([1, CREATED, 1]) as server, LiveClient(server.url, window=8, **options) as client:
            return server, client.session

    server, session = asyncio.run(talk())
    assert (server.requests[0].path, server.requests[0].headers.get("Authorization")) == (PATH, sent)
    assert server.received[0][0] == {"type": "session.config", "window": 8}
    assert session == CREATED


@pytest.mark.parametrize(
    "use",
    [
        lambda client: client.ask("Is it open?"),
        lambda client: client.send_frame(b"jpeg"),
        lambda client: anext(aiter(client)),
    ],
    ids=["a question", "a frame", "events"],
)
def test_a_client_outside_of_its_block_says_so(use):
    async def talk():
        await use(LiveClient("http://127.0.0.1:1"))

    with pytest.raises(ConfigurationError, match="has not begun"):
        asyncio.run(talk())


def test_messages_have_what_was_given_and_pictures_and_sound_follow_theirs():
    async def talk():
        async with serving([1, CREATED, EVERYTHING, CLOSED]) as server, LiveClient(server.url) as client:
            sent = [
                await client.send_frame(b"jpeg", time_s=0.0, frame_id="f"),
                await client.send_frame(b"more"),
                await client.send_audio(b"pcm", time_s=1.5),
            ]
            ids = await client.ask("What?"), await client.ask("Which?", query_id="mine", choices=["a"])
            ids += (await client.ask("And?"),)
            sent.append(await client.cancel("mine"))
            await client.finish()
            assert [event async for event in client] == [CLOSED]
            return server.received[0][1:], sent, ids

    received, sent, ids = asyncio.run(talk())
    assert (sent, ids) == ([True] * 4, ("query-0", "mine", "query-2"))
    assert received == [
        {"type": "video.frame", "time_s": 0.0, "frame_id": "f"},
        b"jpeg",
        {"type": "video.frame"},
        b"more",
        {"type": "audio.chunk", "time_s": 1.5},
        b"pcm",
        {"type": "video.query", "text": "What?", "query_id": "query-0"},
        {"type": "video.query", "text": "Which?", "query_id": "mine", "choices": ["a"]},
        {"type": "video.query", "text": "And?", "query_id": "query-2"},
        {"type": "response.cancel", "query_id": "mine"},
        {"type": "video.done"},
    ]


def test_events_are_yielded_up_to_the_last_one_with_speech_as_bytes():
    speech, large = {"type": "response.audio", "seq": 2}, {"type": "a", "seq": 3, "text": "x" * 2**20}

    async def talk():
        async with (
            serving([1, CREATED, speech, b"wav", large, CLOSED, {"type": "late"}, 1]) as server,
            LiveClient(server.url) as client,
        ):
            return [event async for event in client], client.is_lost

    events, is_lost = asyncio.run(talk())
    assert (events, is_lost) == ([speech | {"data": b"wav"}, large, CLOSED], False)


STANDING = {"every_s": 1}


@pytest.mark.parametrize(
    ("fields", "event", "is_open"),
    [
        pytest.param({}, {"type": "response.done", "query": 0}, False, id="answered"),
        pytest.param({}, {"type": "error", "query": 0}, False, id="failed"),
        pytest.param({}, {"type": "error"}, False, id="refused"),
        pytest.param({}, {"type": "response.text.delta", "query": 0}, True, id="being answered"),
        pytest.param({}, {"type": "response.done", "query": 0, "query_id": "other"}, True, id="another one's answer"),
        pytest.param({}, {"type": "error", "query_id": None}, True, id="an error of something else"),
        pytest.param(STANDING, {"type": "response.done", "query": 0}, True, id="standing"),
        pytest.param({"on_change": True}, {"type": "response.done", "query": 0}, True, id="standing for changes"),
        pytest.param(STANDING, {"type": "error", "query": 0}, True, id="standing, failed once"),
        pytest.param(STANDING, {"type": "error"}, False, id="standing, refused"),
        pytest.param(STANDING, {"type": "session.notice", "code": "other"}, True, id="standing, another notice"),
        pytest.param(STANDING, {"type": "session.notice", "code": "standing_ended"}, False, id="standing, ended"),
    ],
)
def test_questions_without_an_answer_are_sent_again_after_a_lost_connection(fields, event, is_open):
    event = {"seq": 5, "query_id": "q"} | event
    unnumbered = {"type": "pong", "seq": 0}

    async def talk():
        async with (
            serving([1, CREATED, EVERYTHING, event, unnumbered], [1, CREATED, EVERYTHING, CLOSED]) as server,
            LiveClient(server.url) as client,
        ):
            await client.ask("?", query_id="q", **fields)
            await client.finish()
            events = [event async for event in client]
            assert (client.resumed, client.is_lost) == (1, False)
            return server.received[1], events

    received, events = asyncio.run(talk())
    query = {"type": "video.query", "text": "?", "query_id": "q", "again": True} | fields
    assert received == [RESUME | {"last_seq": 5}, *[query] * is_open, {"type": "video.done"}]
    assert events == [event, unnumbered, CREATED, CLOSED]


def test_what_is_asked_while_the_connection_is_lost_is_sent_later_and_frames_are_not():
    async def lose(_connection):
        results.append((await client.send_frame(b"jpeg"), await client.cancel(), await client.ask("Meanwhile?")))

    async def accept(_connection):
        pass

    async def talk():
        nonlocal client
        scripts = [1, CREATED], [2, CREATED, 2, CLOSED]
        async with serving(*scripts, handshakes=(accept, lose)) as server:
            async with LiveClient(server.url) as client:
                assert await anext(aiter(client)) == CREATED
                results.append(await client.send_frame(b"jpeg"))
            return server.received[1]

    client, results = None, []
    received = asyncio.run(talk())
    assert results == [(False, False, "query-0"), True]
    query = {"type": "video.query", "text": "Meanwhile?", "query_id": "query-0", "again": True}
    assert received == [RESUME | {"last_seq": 1}, query, {"type": "video.frame"}, b"jpeg"]


def test_a_question_that_is_replaced_while_questions_are_sent_again_is_sent_as_well(monkeypatch):
    async def talk():
        async with (
            serving([1, CREATED, 2], [4, CREATED, CLOSED]) as server,
            LiveClient(server.url) as client,
        ):
            send_now = client._send_now

            async def replace_meanwhile(message, data=None):
                sent = await send_now(message, data)
                if message.get("text") == "old" and message.get("again"):
                    await client.ask("new", query_id="q", every_s=1)
                return sent

            await client.ask("old", query_id="q", every_s=1)
            await client.ask("other", query_id="r")
            monkeypatch.setattr(client, "_send_now", replace_meanwhile)
            assert [event async for event in client][-1] == CLOSED
            return [message.get("text") for message in server.received[1]]

    assert asyncio.run(talk()) == [None, "old", "new", "other"]


def test_a_session_is_resumed_although_a_proxy_fails_meanwhile():
    async def accept(_connection):
        pass

    async def talk():
        handshakes = (accept, refusing(502), refusing(503))
        async with (
            serving([1, CREATED], [1, CREATED, CLOSED], handshakes=handshakes) as server,
            LiveClient(server.url) as client,
        ):
            events = [event async for event in client]
            return events, client.resumed, client.is_lost, len(server.requests)

    assert asyncio.run(talk()) == ([CREATED, CLOSED], 1, False, 4)


@pytest.mark.parametrize(
    ("resume_s", "refusal"),
    [pytest.param(0.05, refusing(503), id="out of time"), pytest.param(600, refusing(404), id="not served any more")],
)
def test_a_session_that_cannot_be_resumed_is_lost(resume_s, refusal):
    async def accept(_connection):
        pass

    async def talk():
        handshakes = (accept, *[refusal] * 1000)
        created = CREATED | {"resume_s": resume_s}
        async with (
            serving([1, created], handshakes=handshakes) as server,
            LiveClient(server.url) as client,
        ):
            events = [event async for event in client]
            return events, client.resumed, client.is_lost

    assert asyncio.run(talk()) == ([], 0, True)


@pytest.mark.parametrize(("seq", "is_lost"), [(0, True), (4, False)])
def test_a_fatal_error_ends_a_session_that_has_no_events_any_more(seq, is_lost):
    fatal = {"type": "error", "seq": seq, "is_fatal": True}

    async def talk():
        async with serving([1, CREATED, fatal, CLOSED, 1]) as server, LiveClient(server.url) as client:
            return [event async for event in client], client.is_lost

    assert asyncio.run(talk()) == ([] if is_lost else [fatal, CLOSED], is_lost)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        pytest.param(b"\xff", "is no event", id="bytes"),
        pytest.param([1], "is no event", id="a list"),
        pytest.param({"seq": 1}, "is no event", id="without a type"),
        pytest.param({"type": [], "seq": 2}, "is no event", id="a list as its type"),
        pytest.param({"type": "pong", "seq": "2"}, "is no event", id="a text as its number"),
        pytest.param({"type": "pong", "seq": 2, "query_id": [1]}, "is no event", id="a list as an id"),
        pytest.param(CREATED | {"resume_s": None}, "is no event", id="created without a time"),
        pytest.param({"type": "pong", "seq": 2, "text": "x" * 2**24}, "is too long", id="too long"),
    ],
)
def test_a_message_that_cannot_be_read_ends_a_session_in_one_sentence(message, reason):
    async def talk():
        scripts = [[1, CREATED, message if isinstance(message, bytes) else json.dumps(message).encode(), 1]] * 2
        async with serving(*scripts) as server, LiveClient(server.url) as client:
            with pytest.raises(ConfigurationError, match=reason):
                _ = [event async for event in client]
            assert client.resumed == 0

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("handshake", "script", "message"),
    [
        pytest.param(refusing(401), [], "refuses the connection: its token is missing or wrong", id="token"),
        pytest.param(refusing(403), [], r"it serves no live sessions \(403\)", id="no route"),
        pytest.param(refusing(404, "[]"), [], r"it serves no live sessions \(404\)", id="not found"),
        pytest.param(refusing(404, '{"message": "gone\\u001b"}'), [], "gone␛", id="reason"),
        pytest.param(refusing(418), [], r"refuses the connection: it answers with 418\.", id="status"),
        pytest.param(refusing(502), [], r"refuses the connection: it answers with 502\.", id="proxy"),
        pytest.param(None, [1, {"type": "error", "seq": 0, "message": "full\x1b"}], "session: full␛$", id="session"),
        pytest.param(None, [1, {"type": "error", "seq": 0}], "refuses the session: error$", id="no reason"),
        pytest.param(None, [1, b"not an event", 1], "does not serve live sessions", id="not an event"),
        pytest.param(None, [1], "does not serve live sessions", id="hangs up"),
        pytest.param(None, [9], "does not serve live sessions", id="says nothing"),
    ],
)
def test_a_session_that_cannot_begin_is_one_sentence_and_its_connection_is_closed(
    monkeypatch, handshake, script, message
):
    monkeypatch.setattr(live, "_OPEN_S", 0.3)

    async def talk():
        async with serving(script, handshakes=[handshake] if handshake else ()) as server:
            with pytest.raises(ConfigurationError, match=message):
                await begin(server.url)

    asyncio.run(talk())


def test_a_session_that_is_cancelled_while_it_begins_leaves_no_connection():
    async def talk():
        has_begun, is_closed = asyncio.Event(), asyncio.Event()

        async def play(socket):
            await socket.recv()
            has_begun.set()
            await socket.wait_closed()
            is_closed.set()

        async with serve(play, "127.0.0.1", 0) as opened, asyncio.timeout(20):
            beginning = asyncio.create_task(begin(f"http://127.0.0.1:{opened.sockets[0].getsockname()[1]}"))
            await has_begun.wait()
            beginning.cancel()
            with pytest.raises(asyncio.CancelledError):
                await beginning
            await is_closed.wait()

    asyncio.run(talk())
