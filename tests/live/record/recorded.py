"""A recorded session: six frames of growing brightness in two files, and four queries."""

from uuid import uuid4

import numpy as np

from reelabel.seal import Seal
from tasks.frame_cache.sealed_files import SealedFiles
from tasks.live.messages import SessionConfig
from tasks.live.model import LiveInfo
from tasks.live.record.recorder import Recorder

SEAL = Seal(b"k" * 32)
TIMES_S = (0.04, 0.5, 1.371, 2.0, 2.5, 9.0)
SIZE_PX = (28, 56)
INFO = LiveInfo(model="tiny", size_multiple_px=28, max_frame_px=200_704, versions={"av": "18"})


def image(value, size=SIZE_PX):
    return np.full((*size, 3), value, np.uint8)


def answered(**changed):
    """Return the row of a query."""
    values = {
        "query": 0,
        "question": "Is it dark?",
        "choices": ("yes", "no"),
        "answer": "no",
        "probabilities": (0.25, 0.75),
        "asked_s": 1.5,
        "frames": (0, 1, 2),
        "last_frame_s": 1.371,
        "prompt_tokens": 40,
        "cached_tokens": 32,
        "output_tokens": 1,
        "first_token_ms": 20.0,
        "total_ms": 21.0,
        "model": "tiny",
    }
    values |= changed
    answer, choices, probabilities = (values[name] for name in ("answer", "choices", "probabilities"))
    if answer is not None and choices is not None:
        first, second = sorted(probabilities, reverse=True)[:2]
        values |= {"choice_index": choices.index(answer), "margin": first - second}
    return values


def start(engine, objects, root_uri, **options):
    """Return a recorder whose thread writes nothing by itself."""
    files = SealedFiles(objects=objects, root_uri=root_uri, seal=SEAL)
    return Recorder(engine, files, **{"write_every_s": 3600} | options)


def open_session(recorder, session_id=None, **config):
    """Return the record of a new session."""
    config = SessionConfig(type="session.config", **config)
    return recorder.open_session(str(session_id or uuid4()), config, info=INFO)


def record_session(recorder):
    """Record a session; return its id."""
    session_id = uuid4()
    record = open_session(recorder, session_id, window_s=5.0, sink=1)
    for number, time_s in enumerate(TIMES_S):
        record.keep(number=number, time_s=time_s, image=image(number * 40))
        if number == 2:
            record.write()
    record.answer(answered())
    record.answer(
        answered(query=1, question="What is it?", choices=None, answer="A wall.", probabilities=None, audio_s=4.5)
    )
    # The window had moved on: the sink's frame, and those from the fifth on.
    moved = {
        "frames": (0, 4, 5),
        "last_frame_s": 9.0,
        "asked_s": 9.1,
    }
    record.answer(answered(query=2, question="Is it bright?", answer="yes", probabilities=(0.9, 0.1), **moved))
    failed = {"answer": None, "probabilities": None, "first_token_ms": None}
    record.answer(answered(query=3, code="engine_lost", message="The engine was lost.", **moved | failed))
    counts = {"frames_received": 9, "frames_similar": 2, "frames_evicted": 1, "audio_s": 9.0}
    record.close(reason="The client was done.", **counts)
    return session_id
