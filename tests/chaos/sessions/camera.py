"""A client that shows frames to one live session after another, and asks about them."""

import threading
from dataclasses import dataclass, field

from reelabel.errors import ConfigurationError
from tests.chaos.gate import Gate
from tests.live.client import picture
from tests.live.sync_client import LiveClient

_STEP_S = 0.1
_RETRY_S = 0.3
_SESSION_S = (3.0, 10.0)
_ANSWERS_S = 45.0
_CHOICES = ("red", "green", "blue", "yellow")
_SHADES = range(0, 256, 50)  # which are not similar
_ENDS = ("done", "done", "left", "vanished")


@dataclass(kw_only=True)
class Told:
    """A session as its client knows it.

    Attributes:
        asked: Text and choices of each question, by its id.
        shown: Shade of each frame, by its id.
        events: What the server has said.
        end: How the client has ended it: `done`, `left`, `vanished`, or `lost` if it could not be taken up again.
    """

    session_id: str = ""
    asked: dict = field(default_factory=dict)
    shown: dict = field(default_factory=dict)
    events: list = field(default_factory=list)
    end: str = ""
    resumed: int = 0

    def of(self, *kinds):
        """Return the events of some kinds."""
        return [event for event in self.events if event.type in kinds]

    @property
    def kept(self):
        """The acknowledgements of kept frames."""
        return [event for event in self.of("video.frame.ack") if event.status == "kept"]

    @property
    def is_closed(self):
        """Whether the server has said that the session is closed."""
        return bool(self.of("session.closed"))


class Camera(threading.Thread):
    """A client behind a gate of its own.

    Attributes:
        gate: What it reaches the service through.
        told: Its sessions.
        is_live: Whether it shows frames to one.
    """

    def __init__(self, service, *, name, rng):
        super().__init__(name=name, daemon=True)
        self.gate = Gate(lambda: service.port)
        self.told, self.is_live = [], False
        self._rng = rng
        self._ending, self._vanishing = threading.Event(), threading.Event()

    def vanish(self):
        """Have it break its connection without a word; it begins another session."""
        self._vanishing.set()

    def end(self):
        """Have it end its session in order, and begin no other one."""
        self._ending.set()

    def run(self):
        while not self._ending.wait(_RETRY_S):
            told = Told()
            self._vanishing.clear()
            url = f"http://127.0.0.1:{self.gate.port}"
            config = {"window": 64, "sampling": {"max_tokens": 8}}
            try:
                client = LiveClient(url, token=None, config=config, on_event=told.events.append)
            except ConfigurationError:  # the service is not there
                continue
            told.session_id = client.session.session_id
            self.told.append(told)
            self.is_live = True
            self._show(client, told)
            self.is_live = False
            told.end = self._leave(client)
            told.resumed = client.resumed
        self.gate.close()

    def _show(self, client, told):
        steps = round(self._rng.uniform(*_SESSION_S) / _STEP_S)
        for step in range(steps):
            if client.has_ended or self._vanishing.is_set() or self._ending.wait(_STEP_S):
                return
            shade = self._rng.choice(_SHADES)
            told.shown[str(step)] = shade
            client.send_frame(picture(shade), frame_id=str(step), time_s=step / 2)
            if self._rng.random() < 0.3:
                self._ask(client, told)

    def _ask(self, client, told):
        query_id = str(len(told.asked))
        text = f"What does {self.name} see, {told.session_id} {query_id}?"
        told.asked[query_id] = text, self._rng.choice([None, _CHOICES])
        client.ask(text, query_id=query_id, choices=told.asked[query_id][1])

    def _leave(self, client):
        end = "done" if self._ending.is_set() else self._rng.choice(_ENDS)
        if self._vanishing.is_set() or end == "vanished":
            with self.gate.shut():
                client.close()
            return "vanished"
        if end == "done":
            client.finish(_ANSWERS_S)
        is_lost = client.is_lost
        client.close()
        return "lost" if is_lost else end
