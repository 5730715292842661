"""Sessions of a scripted model."""

import pytest

from infra.errors import DatabaseUnavailableError
from infra.settings.live import LiveSettings
from reelabel.pool.decode_pool import DecodePool
from tasks.live.frames import FrameReader
from tasks.live.sessions import Sessions
from tasks.live.setup import LiveSetup
from tests.live.scripted_model import INFO, ScriptedModel


@pytest.fixture(scope="module")
def pool():
    with DecodePool(processes=1, threads=1, timeout_s=20, memory_mib=2048) as pool:
        yield pool


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """Wait as a test does, not as a service does."""
    monkeypatch.setattr("tasks.live.answering._PAUSE_S", 0.01)
    monkeypatch.setattr("tasks.live.answering._RECORD_AGAIN_S", (0.01, 0.01))
    monkeypatch.setattr("tasks.live.session._PAUSE_S", 0.01)
    monkeypatch.setattr("tasks.live.sessions._CHECK_S", 0.02)


@pytest.fixture
def begin(pool):
    """Return a function that opens sessions of a model."""
    opened = []

    def begin(model=None, settings=None, max_sessions=4, records=None, info=INFO):
        reader = FrameReader(pool, info, max_frame_px=200_704)
        setup = LiveSetup(
            model=model or ScriptedModel(),
            info=info,
            reader=reader,
            settings=settings or LiveSettings(),
            template="{prompt}\n{choices}",
        )
        open_record = (lambda session, _config: records.setdefault(session, Kept())) if records is not None else None
        more = {"open_record": open_record} if open_record else {}
        sessions = Sessions(setup, max_sessions=max_sessions, **more)
        opened.append((setup.model, sessions))
        return sessions

    yield begin
    for model, sessions in opened:
        model.may_answer.set()
        model.may_go_on.set()
        model.read_on()
        sessions.close()


class Kept:
    """A record in memory.

    Attributes:
        failures: How often the next answer cannot be written.
    """

    def __init__(self):
        self.frames, self.answers, self.seen, self.reason, self.failures = [], [], [], None, 0

    def keep(self, *, number, time_s, image):
        assert number == len(self.frames)
        self.frames.append((time_s, image.shape))

    def answer(self, asked, seen, outcome):
        if self.failures:
            self.failures -= 1
            raise DatabaseUnavailableError("Postgres is unavailable.")
        self.seen.append(seen)
        self.answers.append((asked.query.text, asked.number, outcome, seen.frames))

    def close(self, reason, stats):
        self.reason, self.stats = reason, stats
