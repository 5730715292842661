"""The loops of the engine's process, with the stub engine in this one."""

import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import Pipe

import numpy as np
import pytest

from reelabel_engine.live_items import FramePair
from reelabel_engine.loop import _Receiver, serve, serve_encoder
from reelabel_engine.protocol import (
    AskBatch,
    Batch,
    Cancel,
    EmbedImages,
    EmbedTexts,
    EncoderLoaded,
    EngineConfig,
    EngineLoaded,
    Keep,
    LiveDrop,
    LiveQuery,
    LiveRequest,
    LiveText,
    RequestRef,
    StepReplies,
    decode_reply,
    encode,
)
from tests.embedding.stub_encoder import StubEncoder
from tests.model.factories import batch_about, question
from tests.stub_engine import StubEngine, StubWorker, Trigger
from tests.wait import until

KEEP = Keep(number=9, seconds=1.0, facts_path="facts.json")


def render_at_once(method, *arguments):
    rendering = Future()
    rendering.set_result(getattr(StubWorker(), method)(*arguments))
    return rendering


class Client:
    """The other end of a loop, which runs in a thread."""

    def __init__(self, loop, *arguments):
        self._connection, theirs = Pipe()
        self._threads = ThreadPoolExecutor(1)
        self._loop = self._threads.submit(loop, theirs, *arguments)

    def send(self, *messages):
        for message in messages:
            self._connection.send_bytes(encode(message))

    def receive(self):
        assert self._connection.poll(20)
        return decode_reply(self._connection.recv_bytes())

    def replies(self, count=1):
        """Receive so many replies to requests."""
        found = []
        while len(found) < count:
            found += self.receive().replies
        return found

    def result(self):
        """Return what the loop returns, or raise what it raises."""
        return self._loop.result(20)

    def close(self):
        self._connection.close()


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start a loop of the stub engine."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    clients = []

    def start(render=render_at_once, **config):
        engine = StubEngine(EngineConfig(model=str(tmp_path / "model"), **config), started=0.0)
        clients.append(Client(serve, engine, render))
        assert isinstance(clients[-1].receive(), EngineLoaded)
        return clients[-1]

    yield start
    for client in clients:
        client.close()


@pytest.fixture
def held():
    """What was to be rendered; each with the future that the loop waits for."""
    return []


@pytest.fixture
def hold(held):
    def render(_method, videos):
        held.append((videos, Future()))
        return held[-1][1]

    return render


def test_a_batch_that_is_cancelled_while_it_is_rendered_is_not_worked_on(start, hold, held):
    client = start(hold)

    client.send(
        AskBatch(number=1, batch=batch_about(question(f"Is it {Trigger.ENDLESS}?"))),
        Cancel(number=1),
        AskBatch(number=2, batch=batch_about(question())),
    )
    until(lambda: len(held) == 2)
    for videos, rendering in held:
        rendering.set_result(StubWorker().render(videos))

    assert [ref.number for ref, _ in client.replies()] == [2]
    client.close()
    assert client.result() is None


def test_small_videos_are_rendered_together_and_a_large_one_by_itself(start, hold, held):
    sizes = {"a": 200_000, "b": 300_000, "c": 100_000, "d": 600_000, "e": 10}
    files = {name: bytes(size) for name, size in sizes.items()}
    questions = tuple(question(f"Number {n}?", video_id=name) for name in files for n in range(2))

    start(hold).send(AskBatch(number=1, batch=Batch(frame_files=files, questions=questions)))

    until(lambda: len(held) == 4)
    assert [[len(file) for (file,), _ in videos] for videos, _ in held] == [
        [200_000, 300_000],
        [100_000],
        [600_000],
        [10],
    ]
    assert all(
        [each.text for each in rendered] == [each.text for each in questions[:2]]
        for videos, _ in held
        for _, rendered in videos
    )


def test_replies_name_the_slot_of_their_question(start):
    client = start()
    questions = [
        question("Before?"),
        question(f"Is it {Trigger.TOO_LONG}?"),
        question(f"Is it {Trigger.REFUSED}?"),
        question(),
    ]

    client.send(AskBatch(number=7, batch=batch_about(*questions)))

    replies = dict(client.replies(4))
    assert replies.keys() == {RequestRef(7, slot) for slot in range(4)}
    assert [getattr(replies[RequestRef(7, slot)], "code", None) for slot in range(4)] == [
        None,
        "prompt_too_long",
        "inference_failed",
        None,
    ]


@pytest.mark.parametrize(
    ("message", "error", "fault"),
    [
        (EmbedTexts(number=1, texts=("a",)), TypeError, "an engine takes no EmbedTexts"),
        (LiveDrop(session="s", hashes=None), RuntimeError, "not loaded for live sessions"),
    ],
)
def test_a_message_that_the_engine_does_not_take_ends_it(start, message, error, fault):
    client = start()

    client.send(message)

    with pytest.raises(error, match=fault):
        client.result()


def test_a_renderer_that_breaks_ends_the_engine(start, hold, held):
    client = start(hold)
    client.send(AskBatch(number=1, batch=batch_about(question())))
    until(lambda: held)

    held[0][1].set_exception(MemoryError("no memory for a video"))

    with pytest.raises(MemoryError, match="no memory for a video"):
        client.result()


def test_a_client_that_leaves_an_idle_engine_ends_its_loop(start):
    client = start()
    client.send(AskBatch(number=1, batch=batch_about(question())))
    client.replies()

    client.send(KEEP)

    assert client.result() == KEEP


def test_an_engine_that_still_answers_is_not_left_to_the_next_client(start):
    client = start()

    client.send(AskBatch(number=1, batch=batch_about(question(f"Is it {Trigger.ENDLESS}?"))))
    client.receive()  # it works on it
    client.send(KEEP)

    with pytest.raises(RuntimeError, match="still had questions to answer"):
        client.result()


def test_only_waiting_for_what_is_being_rendered_counts_as_waiting_for_input():
    receiver = _Receiver(None, render_at_once, takes_live=False)

    receiver._receive_batch(AskBatch(number=1, batch=batch_about(question())))
    assert receiver.wait() > 0
    assert len(receiver.take()) == 1
    receiver._inbox.put(Cancel(number=2))
    assert receiver.wait() == 0
    assert receiver.take() == [Cancel(number=2)]


def test_a_live_request_waits_for_items_of_others_until_they_are_dropped(start):
    client = start(live_sessions=1)
    pair = FramePair(images=np.zeros((2, 4, 4, 3), np.uint8), times_s=(0.0, 0.5))

    def asking(number, **items):
        facts = {"session": "s", "salt": "x", "system_prompt": None, "fresh": 1, "query": LiveQuery(text="What?")}
        return LiveRequest(number=number, hashes=(pair.hash,), items=items, **facts)

    client.send(asking(1, **{pair.hash: pair}), asking(2))
    replies = client.replies(8)
    assert [ref.number for ref, reply in replies if reply == LiveText(text="2 ")] == [1, 2]

    client.send(LiveDrop(session="s", hashes=(pair.hash,)), asking(3))
    [(ref, reply)] = client.replies()
    assert (ref.number, reply.code) == (3, "inference_failed")
    assert "frames were dropped" in reply.message


def test_every_step_tells_how_long_it_took(start):
    client = start()

    client.send(AskBatch(number=1, batch=batch_about(question())))

    step = client.receive()
    assert isinstance(step, StepReplies)
    assert step.times.busy_ms > 0


def test_an_encoder_embeds_in_order_and_counts_the_tokens_of_texts(tmp_path):
    client = Client(serve_encoder, StubEncoder(EngineConfig(model=str(tmp_path / "model")), started=0.0))
    assert isinstance(client.receive(), EncoderLoaded)

    client.send(
        EmbedImages(number=1, videos=(np.full((2, 2, 2, 3), 5, np.uint8),)),
        Cancel(number=1),
        EmbedTexts(number=2, texts=("a red cat", "no")),
    )

    images, texts = client.receive(), client.receive()
    assert (images.number, images.vectors.tolist(), images.tokens) == (1, [[5, 5, 5]] * 2, ())
    assert (texts.number, texts.vectors.shape, texts.tokens) == (2, (2, 3), (3, 1))
    client.send(KEEP)
    with pytest.raises(TypeError, match="an encoder takes no Keep"):
        client.result()


def test_an_encoder_ends_with_its_client(tmp_path):
    client = Client(serve_encoder, StubEncoder(EngineConfig(model=str(tmp_path / "model")), started=0.0))
    client.receive()

    client.close()

    assert client.result() is None
