"""Sessions of a scripted model."""

import pytest

from infra.errors import DatabaseUnavailableError
from infra.settings import LiveSettings
from reelabel.pool.decode_pool import DecodePool
from tasks.live.media import FrameReader
from tasks.live.sessions import Sessions
from tasks.live.setup import LiveSetup
from tests.live.event_loop import EventLoop
from tests.live.scripted_model import INFO, ScriptedModel


@pytest.fixture(scope="module")
def pool():
    with DecodePool(processes=1, threads=1, timeout_s=20, memory_mib=2048) as pool:
        yield pool


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """Wait as a test does, not as a service does."""
    monkeypatch.setattr("tasks.live.queries._PAUSE_S", 0.01)
    monkeypatch.setattr("tasks.live.queries._RECORD_AGAIN_S", (0.01, 0.01))
    monkeypatch.setattr("tasks.live.frame_intake._PAUSE_S", 0.01)
    monkeypatch.setattr("tasks.live.session._CHECK_S", 0.02)


@pytest.fixture
def begin(pool):
    """Return a function that opens sessions of a model."""
    opened = []

    def begin(model=None, settings=None, max_sessions=4, records=None, info=INFO, system_prompt=None):
        setup = LiveSetup(
            model=model or ScriptedModel(),
            info=info,
            reader=FrameReader(pool, info, max_frame_px=200_704),
            settings=(settings or LiveSettings()).model_copy(update={"max_sessions": max_sessions}),
            template="{prompt}\n{choices}",
            system_prompt=system_prompt,
        )
        open_record = (lambda session, _config: records.setdefault(session, Kept())) if records is not None else None
        more = {"open_record": open_record} if open_record else {}
        loop = EventLoop()
        sessions = loop.of(Sessions(setup, **more))
        opened.append((setup.model, sessions, loop))
        return sessions

    yield begin
    for model, sessions, loop in opened:
        model.may_answer.set()
        model.may_go_on.set()
        model.may_read.set()
        sessions.close()
        loop.close()


class Kept:
    """A record in memory.

    Attributes:
        failures: How often the next answer cannot be written.
    """

    def __init__(self):
        self.frames, self.rows, self.reason, self.failures = [], [], None, 0

    def keep(self, *, number, time_s, image):
        assert number == len(self.frames)
        self.frames.append((time_s, image.shape))

    def answer(self, row):
        if self.failures:
            self.failures -= 1
            raise DatabaseUnavailableError("Postgres is unavailable.")
        self.rows.append(row)

    def close(self, *, reason, **counts):
        self.reason, self.counts = reason, counts
