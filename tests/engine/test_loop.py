"""The loop of the engine's process, with the stub engine in this one."""

import tempfile
import threading
from concurrent.futures import Future
from multiprocessing import Pipe

from reelabel_engine.loop import serve
from reelabel_engine.protocol import (
    AskBatch,
    Cancel,
    EngineConfig,
    EngineLoaded,
    StepReplies,
    decode_reply,
    encode,
)
from tests.model.asked import batch_about, question
from tests.stub_engine import StubEngine, StubWorker, Trigger
from tests.wait import until


def test_a_batch_that_is_cancelled_while_it_is_rendered_is_not_worked_on(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ours, theirs = Pipe()
    rendered = []

    def render(_method, videos):
        rendered.append((videos, Future()))
        return rendered[-1][1]

    engine = StubEngine(EngineConfig(model=str(tmp_path / "model")), started=0.0)
    thread = threading.Thread(target=serve, args=(theirs, engine, render), daemon=True)
    thread.start()
    assert isinstance(decode_reply(ours.recv_bytes()), EngineLoaded)

    for message in (
        AskBatch(number=1, batch=batch_about(question(f"Is it {Trigger.ENDLESS}?"))),
        Cancel(number=1),
        AskBatch(number=2, batch=batch_about(question())),
    ):
        ours.send_bytes(encode(message))
    until(lambda: len(rendered) == 2)
    for videos, rendering in rendered:
        rendering.set_result(StubWorker().render(videos))
    numbers = []
    while 2 not in numbers:
        reply = decode_reply(ours.recv_bytes())
        assert isinstance(reply, StepReplies)
        numbers += [ref.number for ref, _ in reply.replies]
    ours.close()
    thread.join(20)

    assert numbers == [2]
    assert not thread.is_alive()
