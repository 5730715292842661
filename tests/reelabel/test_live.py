"""The library's client of live sessions, with a scripted model behind the real server."""

import asyncio
import json

import pytest
from websockets.asyncio.server import serve

from reelabel.errors import ConfigurationError
from reelabel.live import LiveClient
from tests.flows.serve.live.server import live_server
from tests.live.client import picture

pytestmark = pytest.mark.system
SHADES = (0, 60, 120, 180)


@pytest.fixture(scope="module")
def server():
    with live_server() as server:
        yield server


async def events_of(client, until):
    """Return the next events up to one of a type."""
    events = []
    async for event in client:
        events.append(event)
        if event["type"] == until:
            break
    return events


def test_a_session_from_its_first_frame_to_its_end(server):
    async def talk():
        async with LiveClient(server.url, window=8) as client:
            assert client.session["window"] == 8
            for at, shade in enumerate(SHADES):
                assert await client.send_frame(picture(shade), time_s=at)
            asked = await client.ask("What is there?"), await client.ask("Dark?", choices=["yes", "no"])
            await client.finish()
            return asked, await events_of(client, "session.closed")

    asked, events = asyncio.run(talk())
    done = [event for event in events if event["type"] == "response.done"]
    assert [(event["query_id"], event["text"]) for event in done] == [(asked[0], "0 1 2 3"), (asked[1], "yes")]


def test_an_answer_is_cancelled(server):
    async def talk():
        server.model.may_go_on.clear()
        async with LiveClient(server.url) as client:
            await client.send_frame(picture(0), time_s=0)
            query_id = await client.ask("What is there?")
            await events_of(client, "response.text.delta")
            await client.cancel(query_id)
            return (await events_of(client, "response.done"))[-1]

    try:
        assert asyncio.run(talk())["finish_reason"] == "cancelled"
    finally:
        server.model.may_go_on.set()


def test_a_standing_question_goes_on_after_a_lost_connection(server):
    async def talk():
        async with LiveClient(server.url, enable_frame_filter=False) as client:
            await client.ask("Dark?", query_id="s", choices=["yes", "no"], every_s=1)
            await client.send_frame(picture(0), time_s=0)
            events = await events_of(client, "response.done")
            server.drop()
            events += await events_of(client, "session.created")
            await client.send_frame(picture(60), time_s=1)
            events += await events_of(client, "response.done")
            await client.cancel("s")
            events += await events_of(client, "session.notice")
            assert client.resumed == 1
            return events

    events = asyncio.run(talk())
    assert [event["query"] for event in events if event["type"] == "response.done"] == [0, 1]
    assert events[-1]["code"] == "standing_ended"
    numbers = [event["seq"] for event in events]
    assert numbers == sorted(set(numbers))


def test_the_connection_to_another_server_is_closed(monkeypatch):
    monkeypatch.setattr("reelabel.live._OPEN_S", 2)

    async def talk():
        is_closed = asyncio.Event()

        async def say_nothing(connection):
            await connection.wait_closed()
            is_closed.set()

        async with serve(say_nothing, "127.0.0.1", 0) as other:
            port = other.sockets[0].getsockname()[1]
            with pytest.raises(ConfigurationError, match="does not serve live sessions"):
                async with LiveClient(f"http://127.0.0.1:{port}"):
                    pass
            await asyncio.wait_for(is_closed.wait(), 20)

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("url", "config", "says"),
    [
        ("http://127.0.0.1:1", {}, "No live sessions are served at ws://127.0.0.1:1"),
        ("ftp://somewhere", {}, "is not the address of a server"),
        (None, {"window": 1}, "The server refuses the session: session.config: window must be at least 2"),
    ],
)
def test_a_session_that_cannot_begin_is_one_sentence(server, url, config, says):
    async def talk():
        async with LiveClient(url or server.url, **config):
            pass

    with pytest.raises(ConfigurationError, match=says):
        asyncio.run(talk())


def test_a_server_of_something_else_is_left():
    left = asyncio.Event()

    async def answer(socket):
        await socket.send("not an event")
        await socket.wait_closed()
        left.set()

    async def talk():
        async with serve(answer, "127.0.0.1", 0) as other:
            client = LiveClient(f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}")
            with pytest.raises(ConfigurationError, match="does not serve live sessions"):
                async with client:
                    pass
            await asyncio.wait_for(left.wait(), 5)

    asyncio.run(talk())


def test_a_session_is_resumed_though_a_proxy_fails_meanwhile():
    firsts, statuses = [], iter([None, 502, None])

    def refuse(connection, _):
        status = next(statuses)
        return status and connection.respond(status, "Bad Gateway")

    async def answer(socket):
        firsts.append(json.loads(await socket.recv())["type"])
        created = {"type": "session.created", "seq": 1, "session_id": "a", "resume_token": "b", "resume_s": 30}
        await socket.send(json.dumps(created))
        if len(firsts) > 1:
            await socket.send(json.dumps({"type": "session.closed", "seq": 2}))
        await socket.close()

    async def talk():
        async with serve(answer, "127.0.0.1", 0, process_request=refuse) as server:
            async with LiveClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
                events = await events_of(client, "session.closed")
            return events, client

    events, client = asyncio.run(talk())
    assert [event["type"] for event in events] == ["session.created", "session.closed"]
    assert firsts == ["session.config", "session.resume"]
    assert (client.resumed, client.is_lost) == (1, False)
