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
_CHOICES = ("red", "green", "blue", "yellow")
_SHADES = range(0, 256, 50)  # which are not similar
_ENDS = ("done", "done", "left", "vanished")


@dataclass(kw_only=True)
class SessionLog:
    """A session as its client knows it.

    Attributes:
        questions: Text and choices of each question, by its id.
        shown: Shade of each frame, by its id.
        events: All events of the server.
        end: How the client has ended it: `done`, `left`, `vanished`, or `lost` if it could not be resumed.
    """

    session_id: str = ""
    questions: dict = field(default_factory=dict)
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
        """Whether the server has closed the session."""
        return bool(self.of("session.closed"))


class Camera(threading.Thread):
    """A client behind a gate of its own.

    Attributes:
        gate: What it reaches the service through.
        logs: What it has sent and received, by session.
        is_live: Whether it shows frames to one.
    """

    def __init__(self, service, *, name, rng, answers_within_s=45.0):
        super().__init__(name=name, daemon=True)
        self.gate = Gate(lambda: service.port)
        self.logs, self.is_live = [], False
        self._rng, self._answers_within_s = rng, answers_within_s
        self._ending, self._vanishing = threading.Event(), threading.Event()

    def vanish(self):
        """Break its connection without closing the session; it begins another one."""
        self._vanishing.set()

    def end(self):
        """End its session properly, and begin no other one."""
        self._ending.set()

    def run(self):
        while not self._ending.wait(_RETRY_S):
            log = SessionLog()
            self._vanishing.clear()
            url = f"http://127.0.0.1:{self.gate.port}"
            config = {"window": 64, "sampling": {"max_tokens": 8}}
            try:
                client = LiveClient(url, token=None, config=config, on_event=log.events.append)
            except ConfigurationError:  # the service is not there
                continue
            log.session_id = client.session.session_id
            self.logs.append(log)
            self.is_live = True
            self._show(client, log)
            self.is_live = False
            log.end = self._leave(client)
            log.resumed = client.resumed
        self.gate.close()

    def _show(self, client, log):
        steps = round(self._rng.uniform(*_SESSION_S) / _STEP_S)
        for step in range(steps):
            if client.has_ended or self._vanishing.is_set() or self._ending.wait(_STEP_S):
                return
            shade = self._rng.choice(_SHADES)
            log.shown[str(step)] = shade
            client.send_frame(picture(shade), frame_id=str(step), time_s=step / 2)
            if self._rng.random() < 0.3:
                self._ask(client, log)

    def _ask(self, client, log):
        query_id = str(len(log.questions))
        text = f"What does {self.name} see, {log.session_id} {query_id}?"
        log.questions[query_id] = text, self._rng.choice([None, _CHOICES])
        client.ask(text, query_id=query_id, choices=log.questions[query_id][1])

    def _leave(self, client):
        end = "done" if self._ending.is_set() else self._rng.choice(_ENDS)
        if self._vanishing.is_set() or end == "vanished":
            with self.gate.shut():
                client.close()
            return "vanished"
        if end == "done":
            client.finish(self._answers_within_s)
        is_lost = client.is_lost
        client.close()
        return "lost" if is_lost else end
