"""A client of a live session: its messages and events."""

import base64
import io
import json
import time

import numpy as np
from PIL import Image

from tasks.live.messages import SessionConfig, parse_message

SHADES = [0, 60, 120, 180, 240] * 20  # of pictures that no filter drops
_WAIT_S = 60


def picture(shade, *, size=(56, 56), kind="JPEG"):
    """Return a picture of one shade of grey."""
    pixels = np.full((size[1], size[0], 3), shade, np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def frame(shade, **fields):
    """Return the message of a frame."""
    return {"type": "video.frame", "data": base64.b64encode(picture(shade)).decode(), **fields}


def config(**fields):
    """Return a configuration, without a sink by default."""
    if not fields.keys() & {"sink", "sink_frames"}:
        fields["sink"] = 0
    return SessionConfig(type="session.config", **fields)


class Client:
    """A client of one session, which reads its events in order."""

    def __init__(self, session):
        self.session, self.seq, self.events = session, 0, []

    def send(self, message):
        """Have the session take a message, as its connection does."""
        self.session.receive(parse_message(json.dumps(message)))

    def until(self, kind, count=1, **fields):
        """Return the events up to the count-th of a kind, of those not returned before."""
        got, deadline = [], time.monotonic() + _WAIT_S
        while time.monotonic() < deadline:
            for seq, text, _ in self.session.events.after(self.seq):
                self.seq = seq
                event = json.loads(text)
                got.append(event)
                count -= event["type"] == kind and all(event[name] == value for name, value in fields.items())
                if not count:
                    return got
            time.sleep(0.002)
        raise AssertionError(f"no {kind} {fields} among {got}")

    def everything(self):
        """Return all events that are still kept."""
        return [json.loads(each.text) for each in self.session.events.after(0)]

    def last(self, kind, count=1, **fields):
        """Return the count-th event of a kind."""
        return self.until(kind, count, **fields)[-1]

    def exchange(self, message, kind, **fields):
        """Send a message; return the next event of a kind."""
        self.send(message)
        return self.last(kind, **fields)


def start(begin, *args, **fields):
    client = Client(begin(*args).open(config(**fields)))
    client.until("session.created")
    return client


def send_frames(client, shades, *, first_s=0.0):
    """Send frames a second apart, each after the one before was answered; return their acknowledgements."""
    return [client.exchange(frame(shade, time_s=first_s + at), "frame.ack") for at, shade in enumerate(shades)]


def ask(client, text="What is there?", **fields):
    return client.exchange({"type": "video.query", "text": text, **fields}, "response.done")
