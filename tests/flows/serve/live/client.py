"""A client of live sessions over a WebSocket, and one that sends nonsense."""

import json
import random
import socket
from itertools import islice

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect as connect_socket

from tasks.live.events import EVENTS
from tests.live.client import frame, picture

TOKEN = "a-token-of-some-length"
_WAIT_S = 400  # an engine that starts again beside other work takes minutes
_A_CONNECTION = 200  # mutated messages


class Client:
    """A connection.

    Attributes:
        created: The event `session.created`, if the connection began one.
        events: All events received.
    """

    def __init__(self, url, first=None, *, token=TOKEN, **options):
        url = url.replace("http", "ws") + "/v1/video/chat/stream"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.socket = connect_socket(url, additional_headers=headers, max_size=None, **{"max_queue": None} | options)
        self.events = []
        self.created = None
        if first is not None:
            self.send({"type": "session.config"} | first)
            self.created = self.last("session.created")

    def __enter__(self):
        return self

    def __exit__(self, *_raised):
        self.socket.close()

    def vanish(self):
        """Break the connection without a word."""
        self.socket.socket.shutdown(socket.SHUT_RDWR)

    def send(self, message):
        self.socket.send(message if isinstance(message, bytes | str) else json.dumps(message))

    def next(self):
        text = self.socket.recv(timeout=_WAIT_S)
        EVENTS.validate_json(text)
        self.events.append(json.loads(text))
        return self.events[-1]

    def last(self, *kinds, **fields):
        """Return the next event of some kinds."""
        while True:
            event = self.next()
            if event["type"] in kinds and all(event[name] == value for name, value in fields.items()):
                return event
            assert event["type"] != "error" or "error" in kinds, event

    def ask(self, text="What is its colour?", **fields):
        self.send({"type": "video.query", "text": text, **fields})
        return self.last("response.done")

    def end(self):
        self.send({"type": "video.done"})
        return self.last("session.closed")


def send_frames(client, shades, *, first_s=0.0):
    for at, shade in enumerate(shades):
        client.send(frame(shade, time_s=first_s + at))
        client.last("frame.ack")


_ODD = [None, True, -1, 0, 2**70, 1e308, "", "\0", "x" * 5000, "\u202e", [], {}, [[]], {"type": "ping"}, "NaN", "aGk="]


def _mutate(random_, message):
    """Return a message with something wrong: in its fields, or in its bytes."""
    fields = dict(message)
    for _ in range(random_.randrange(3)):
        name = random_.choice([*fields, "extra"])
        match random_.randrange(3):
            case 0:
                fields[name] = random_.choice(_ODD)
            case 1:
                fields.pop(name, None)
            case 2:
                fields[str(random_.choice(_ODD))] = random_.choice(_ODD)
    data = bytearray(json.dumps(fields).encode())
    for _ in range(random_.randrange(4)):
        at = random_.randrange(len(data) + 1)
        match random_.randrange(4):
            case 0:
                data[at : at + 1] = bytes([random_.randrange(256)])
            case 1:
                del data[at : at + random_.randrange(20)]
            case 2:
                data[at:at] = data[: random_.randrange(20)]
            case 3:
                data[at:at] = random_.randbytes(random_.randrange(8))
    return bytes(data) if random_.random() < 0.1 else data.decode(errors="replace")


def _messages(random_):
    """Yield mutations of what clients send, and of pictures."""
    shade = random_.randrange(256)
    kinds = [
        {"type": "session.config", "window": 4, "sampling": {"max_tokens": 4}},
        {"type": "session.resume", "session_id": "a", "resume_token": "b", "last_seq": 0},
        frame(shade),
        frame(shade, time_s=random_.uniform(-10, 100), frame_id="f"),
        {"type": "video.frame", "time_s": random_.uniform(0, 100)},
        {"type": "audio.chunk", "data": "AAAA", "time_s": 1.0},
        {"type": "video.query", "text": "?", "choices": ["a", "b"], "query_id": "q"},
        {"type": "video.query", "text": "?", "query_id": "i", "interrupt": True, "deadline_s": 0.5, "again": True},
        {"type": "video.query", "text": "?", "choices": ["a", "b"], "query_id": "s", "on_change": True, "every_s": 0.1},
        {"type": "response.cancel", "query_id": "s"},
        {"type": "response.cancel"},
        {"type": "video.done"},
        {"type": "session.stats"},
        {"type": "ping"},
    ]
    while True:
        if random_.random() < 0.15:
            data = bytearray(
                picture(random_.randrange(256), kind=random_.choice(["JPEG", "PNG", "GIF", "WEBP", "BMP"]))
            )
            for _ in range(random_.randrange(6)):
                data[random_.randrange(len(data))] = random_.randrange(256)
            yield bytes(data[: random_.choice([len(data), random_.randrange(1, len(data))])])
        else:
            yield _mutate(random_, random_.choice(kinds))


def send_nonsense(url, *, messages, seed):
    """Send mutated messages, the first of every other connection among them; return how many connections that took."""
    random_, connections, sent = random.Random(seed), 0, 0
    source = _messages(random_)
    while sent < messages:
        connections += 1
        try:
            with Client(url) as client:
                config = {"type": "session.config", "window": 4, "sampling": {"max_tokens": 4}}
                client.send(_mutate(random_, config) if connections % 2 else config)
                for message in islice(source, min(_A_CONNECTION, messages - sent)):
                    client.send(message)
                    sent += 1
                    while _has_event(client):
                        pass
                client.send({"type": "ping"})
                while client.last("pong", "error", "session.closed")["type"] == "error":
                    pass
        except ConnectionClosed:
            continue
    return connections


def _has_event(client):
    try:
        EVENTS.validate_json(client.socket.recv(timeout=0))
    except TimeoutError:
        return False
    return True
