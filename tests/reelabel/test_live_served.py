"""The library's client of live sessions, with a scripted model behind the real server."""

import asyncio

import pytest

from reelabel.errors import ConfigurationError
from reelabel.live import LiveClient
from tests.flows.serve.live.server import live_server
from tests.live.client import picture
from tests.wait import until

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
            query_ids = await client.ask("What is there?"), await client.ask("Dark?", choices=["yes", "no"])
            await client.finish()
            return query_ids, await events_of(client, "session.closed")

    query_ids, events = asyncio.run(talk())
    done = [event for event in events if event["type"] == "response.done"]
    assert [(event["query_id"], event["text"]) for event in done] == [(query_ids[0], "0 1 2 3"), (query_ids[1], "yes")]


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


def test_a_client_that_is_lost_after_its_last_question_gets_the_answer(server):
    async def talk():
        server.model.may_answer.clear()
        async with LiveClient(server.url) as client:
            await client.send_frame(picture(0), time_s=0)
            query_id = await client.ask("What is there?")
            await client.finish()
            events = await events_of(client, "response.start")
            server.drop()
            await asyncio.to_thread(until, lambda: not server.has_connections)
            server.model.may_answer.set()
            events += await events_of(client, "session.closed")
            assert (client.resumed, client.is_lost) == (1, False)
            return query_id, events

    try:
        query_id, events = asyncio.run(talk())
    finally:
        server.model.may_answer.set()
    [done] = [event for event in events if event["type"] == "response.done"]
    assert (done["query_id"], events[-1]["reason"]) == (query_id, "done")
    assert not [event for event in events if event["type"] == "error"]


def test_a_session_that_the_server_refuses_is_one_sentence(server):
    async def talk():
        async with LiveClient(server.url, window=1):
            pass

    with pytest.raises(
        ConfigurationError, match=r"The server refuses the session: session\.config: window must be at least 2"
    ):
        asyncio.run(talk())
