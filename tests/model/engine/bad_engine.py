"""An engine that lies: `EngineConfig.model` ends with the name of what it does, once it is loaded or instead."""

import struct
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from reelabel_engine import protocol
from reelabel_engine.protocol import (
    EncoderInfo,
    EncoderLoaded,
    EngineInfo,
    EngineLoaded,
    EngineTimes,
    Kept,
    LiveDone,
    LiveText,
    QuestionAnswer,
    RequestRef,
    StepReplies,
    encode,
)

COMMAND = (sys.executable, "-P", __file__)
INFO = EngineInfo(device="cpu", gpus=0, max_model_len=8, start_ms=1.0, versions={})
OTHER_INFO = EncoderInfo(
    device="cpu",
    gpus=0,
    dtype="float32",
    dimensions=3,
    size_px=2,
    max_tokens=4,
    scale=None,
    bias=None,
    start_ms=1.0,
    versions={},
)
ARRAY = {"dtype": "float32", "shape": [1, 1], "data": b"1234"}


def answer(*probabilities, **others):
    numbers = {"choice_mass": None, "prompt_tokens": 1, "cached_tokens": 0, "preprocess_ms": 0.0, "inference_ms": 0.0}
    return QuestionAnswer(probabilities=probabilities or (0.25, 0.75), **numbers | others)


WORDS = msgspec.structs.replace(answer(), probabilities=(), text="red")


def step(number, *replies):
    """Return replies to a request, each with its slot."""
    return encode(
        StepReplies(replies=tuple((RequestRef(number, slot), reply) for slot, reply in replies), times=EngineTimes())
    )


def framed(data):
    return struct.pack("!i", len(data)) + data


def vectors(number, **array):
    fields = {name: value for name, value in (ARRAY | array).items() if value is not None}
    return msgspec.msgpack.encode({"type": "Vectors", "number": number, "vectors": fields})


# What it sends in place of a message that it is loaded.
LOADING = {
    "loading: an encoder": encode(EncoderLoaded(info=OTHER_INFO)),
    "loading: a request": encode(protocol.Cancel(number=1)),
    "loading: nothing": b"",
    "loading: a pickle": b"\x80\x04N.",
    "loading: deep nesting": b"\x91" * 100_000 + b"\x90",
    "loading: deep nesting in a field of no message": b"\x83\xa4type\xa4Kept\xa6number\x01\xa1x" + b"\x91" * 100_000,
}
# What it sends in reply to two questions of two choices, given the number of the request.
ANSWERING = {
    "a slot beyond": lambda number: framed(step(number, (0, answer()), (2, answer()))),
    "a negative slot": lambda number: framed(step(number, (0, answer()), (-1, answer()))),
    "a slot twice": lambda number: framed(step(number, (0, answer()), (0, answer()))),
    "a live answer": lambda number: framed(step(number, (0, LiveDone(prompt_tokens=1, cached_tokens=0)))),
    "live text": lambda number: framed(step(number, (0, LiveText(text="red")))),
    "kept": lambda number: framed(encode(Kept(number=number))),
    "vectors": lambda number: framed(vectors(number)),
    "vectors without a type": lambda number: framed(vectors(number, dtype=None)),
    "vectors without sides": lambda number: framed(vectors(number, shape=[[]])),
    "vectors of endless sides": lambda number: framed(vectors(number, shape=[2**62, 4], data=b"")),
    "loaded again": lambda _number: framed(encode(EngineLoaded(info=INFO))),
    "too many probabilities": lambda number: framed(step(number, (0, answer(0.2, 0.2, 0.6)), (1, answer()))),
    "no probabilities": lambda number: framed(step(number, (0, WORDS), (1, answer()))),
    "no number": lambda number: framed(step(number, (0, answer(float("nan"), 0.5)), (1, answer()))),
    "below nothing": lambda number: framed(step(number, (0, answer(-1.0, 2.0)), (1, answer()))),
    "fewer tokens than none": lambda number: framed(step(number, (0, answer(prompt_tokens=-1)), (1, answer()))),
    "tokens beyond any column": lambda number: framed(step(number, (0, answer(cached_tokens=2**40)), (1, answer()))),
    "no mass": lambda number: framed(step(number, (0, answer(choice_mass=float("nan"))), (1, answer()))),
    "endless time": lambda number: framed(step(number, (0, answer(inference_ms=float("inf"))), (1, answer()))),
    "time before the start": lambda _number: framed(encode(StepReplies(replies=(), times=EngineTimes(busy_ms=-1)))),
    "deep nesting": lambda _number: framed(b"\x91" * 100_000),
    "a negative length": lambda _number: struct.pack("!i", -5),
    "a huge length": lambda _number: struct.pack("!iQ", -1, 2**62) + bytes(100),
    "half a message": lambda number: framed(step(number, (0, answer())))[:-3],
}
# To which it adds the right answers.
IGNORED = {
    "replies to nobody": lambda number: framed(step(number + 7, (0, answer()), (99, LiveText(text="red")))),
    "replies to no number": lambda _number: framed(step(-1, (0, answer()))),
    "vectors to nobody": lambda number: framed(vectors(number + 7)),
}


def main():
    connection = Connection(int(sys.argv[1]))
    does = Path(protocol.receive(connection).config.model).name
    connection.send_bytes(LOADING.get(does, encode(EngineLoaded(info=INFO))))
    while True:
        request = protocol.receive(connection)
        if not isinstance(request, protocol.AskBatch):
            continue
        if does in ANSWERING:
            connection._send(ANSWERING[does](request.number))
            if does == "half a message":
                time.sleep(60)
            continue
        connection._send(IGNORED[does](request.number))
        connection._send(framed(step(request.number, (1, answer(0.75, 0.25)), (0, answer()))))
        connection._send(framed(step(request.number, (0, answer(1.0, 0.0)))))  # once more, after the end


if __name__ == "__main__":
    main()
