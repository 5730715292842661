"""The messages between the application and the engine's process."""

import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import msgspec
import numpy as np
import pytest

from reelabel_engine import PROTOCOL
from reelabel_engine.live_items import AudioSpan, FramePair
from reelabel_engine.protocol import (
    AskBatch,
    Batch,
    Cancel,
    EmbedImages,
    EmbedTexts,
    EncoderConfig,
    EncoderInfo,
    EncoderLoaded,
    EngineConfig,
    EngineFailure,
    EngineInfo,
    EngineLoaded,
    EngineTimes,
    Keep,
    Kept,
    LiveDone,
    LiveDrop,
    LiveQuery,
    LiveRequest,
    LiveText,
    LoadEncoder,
    LoadEngine,
    PreviewRequest,
    PromptSpan,
    Question,
    QuestionAnswer,
    QuestionMedium,
    Rejected,
    RenderedPrompt,
    Reply,
    Request,
    RequestRef,
    StepReplies,
    Vectors,
    check,
    decode_reply,
    decode_request,
    encode,
)

QUESTION = Question(
    video_id="v",
    text="Which?",
    system_prompt=None,
    choices=("red", "blue"),
    scoring="letter",
    media=(QuestionMedium("image", "i"),),
)
IN_WORDS = Question(
    video_id="v", text="What?", system_prompt=None, choices=(), max_tokens=64, schema='{"type":"string"}'
)
FAILURE = Rejected(code="prompt_too_long", stage="prompt", message="ä")
REQUESTS = [
    LoadEngine(config=EngineConfig(model="m", devices=("0", "1"), engine_args={"block_size": 32})),
    LoadEncoder(config=EncoderConfig(model="m", revision="r")),
    AskBatch(number=1, batch=Batch(frame_files={"v": b"\x00\xff"}, questions=(QUESTION, IN_WORDS))),
    LiveDrop(session="s", hashes=None),
    Cancel(number=2),
    Keep(number=3, seconds=60.0, facts_path="engines/one.json"),
    EmbedTexts(number=3, texts=("a cat",)),
]
REPLIES = [
    Kept(number=3),
    EngineLoaded(info=EngineInfo(device="cpu", gpus=0, max_model_len=8, start_ms=1.5, versions={"vllm": "1"})),
    EncoderLoaded(
        info=EncoderInfo(
            device="cpu",
            gpus=0,
            dtype="float32",
            dimensions=3,
            size_px=2,
            max_tokens=4,
            scale=None,
            bias=-1.0,
            start_ms=1.0,
            versions={},
        )
    ),
    EngineFailure(message="No weights."),
    StepReplies(
        replies=(
            (
                RequestRef(1),
                QuestionAnswer(
                    probabilities=(0.1, 0.9),
                    choice_mass=None,
                    prompt_tokens=2,
                    cached_tokens=1,
                    preprocess_ms=0.5,
                    inference_ms=0.25,
                ),
            ),
            (RequestRef(1, slot=1), FAILURE),
            (
                RequestRef(1, slot=2),
                QuestionAnswer(
                    probabilities=(),
                    choice_mass=None,
                    text="A cat.",
                    finish_reason="length",
                    output_tokens=3,
                    prompt_tokens=2,
                    cached_tokens=1,
                    preprocess_ms=0.5,
                    inference_ms=0.25,
                ),
            ),
            (RequestRef(2), LiveText(text="a")),
            (RequestRef(2), LiveDone(prompt_tokens=1, cached_tokens=0)),
        ),
        times=EngineTimes(busy_ms=1.0),
    ),
    RenderedPrompt(
        runs=(PromptSpan(text="a", repeats=2),),
        tokens=None,
        video_tokens=3,
        max_model_len=8,
        choices=({7: "A"}, {8: "B"}),
        refusals=(FAILURE,),
    ),
]


def kinds_of(messages):
    return [pytest.param(each, id=type(each).__name__) for each in messages]


@pytest.mark.parametrize("message", kinds_of(REQUESTS))
def test_a_request_arrives_as_it_was_sent(message):
    assert decode_request(encode(message)) == message


@pytest.mark.parametrize("message", kinds_of(REPLIES))
def test_a_reply_arrives_as_it_was_sent(message):
    assert decode_reply(encode(message)) == message


VIDEOS = (np.arange(12, dtype=np.uint8).reshape(1, 2, 2, 3), np.empty((0, 2, 2, 3), np.uint8))
PAIR = FramePair(images=np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3)[:, ::-1], times_s=(0.5, 1.0), frames=1)
SOUND = AudioSpan(samples=np.array([-1, 2], np.int16), time_s=2.0)
LIVE = LiveRequest(
    number=1,
    session="s",
    salt="x",
    system_prompt=None,
    hashes=(PAIR.hash, SOUND.hash),
    items={PAIR.hash: PAIR, SOUND.hash: SOUND},
    fresh=2,
    query=LiveQuery(text="What?", seed=1),
)
PREVIEW = PreviewRequest(
    config=EngineConfig(model="m"), question=QUESTION, media=((VIDEOS[0], {"fps": 1.0, "frames_indices": [0]}),)
)
FRAMES = EmbedImages(number=1, videos=VIDEOS)
VECTORS = Vectors(number=1, vectors=np.ones((2, 3), np.float32))


STORED = Path(__file__).with_name("messages.json")


def as_json():
    """Return every message as it is encoded, by its name, as JSON."""
    messages = [*REQUESTS, LIVE, PREVIEW, FRAMES, *REPLIES, VECTORS]
    found = {type(each).__name__: msgspec.msgpack.decode(encode(each)) for each in messages}
    return json.loads(msgspec.json.encode({"protocol": PROTOCOL} | found))


def test_messages_are_those_of_their_protocol_number():
    """`PYTHONPATH=. python -m tests.engine.test_protocol` writes the file, once `PROTOCOL` was raised.

    A new field with a default needs no other number.
    """
    found = as_json()

    assert found == json.loads(STORED.read_text())
    assert found.keys() - {"protocol"} == {each.__name__ for each in (*get_args(Request), *get_args(Reply))}


def test_pixels_vectors_and_sound_arrive_as_they_were_sent():
    frames = decode_request(encode(FRAMES)).videos
    vectors = decode_reply(encode(VECTORS)).vectors
    found = decode_request(encode(LIVE))
    [(pixels, metadata)] = decode_request(encode(PREVIEW)).media

    for sent, came in zip((*VIDEOS, VECTORS.vectors, VIDEOS[0]), (*frames, vectors, pixels), strict=True):
        assert sent.dtype == came.dtype
        assert np.array_equal(sent, came)
    assert metadata == {"fps": 1.0, "frames_indices": [0]}
    assert found.query == LIVE.query
    assert [*found.items] == [item.hash for item in found.items.values()] == [PAIR.hash, SOUND.hash]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x80\x04N.", id="a pickle"),
        pytest.param(b"", id="nothing"),
        pytest.param(encode(REPLIES[2]), id="a reply in place of a request"),
        pytest.param(encode(Cancel(number=1)).replace(b"\x01", b"\xa1x"), id="a text in place of a number"),
    ],
)
def test_an_invalid_message_is_refused(data):
    with pytest.raises(ValueError, match=r"."):
        decode_request(data)


@pytest.mark.parametrize(
    ("announced", "data"),
    [
        pytest.param({"dtype": "float32", "shape": [2]}, b"1234", id="too short"),
        pytest.param({"dtype": "uint8", "shape": [-1]}, b"", id="of a negative shape"),
        pytest.param({"dtype": "object", "shape": [1]}, b"12345678", id="of objects"),
        pytest.param({"dtype": "uint8", "shape": [1, 1, 1, 1, 1]}, b"1", id="of five dimensions"),
    ],
)
def test_an_invalid_array_is_refused(announced, data):
    message = {"type": "Vectors", "number": 1, "vectors": announced | {"data": data}}

    with pytest.raises(ValueError, match=r"array"):
        decode_reply(msgspec.msgpack.encode(message))


def test_fields_of_a_later_version_are_ignored():
    assert decode_request(msgspec.msgpack.encode({"type": "Cancel", "number": 2, "why": "late"})) == REQUESTS[4]


@pytest.mark.parametrize("odd", [{"text": 7}, {"text": "\ud800"}, {"choices": ("a", None)}, {"system_prompt": b"x"}])
def test_a_question_that_no_message_can_have_is_found_before_it_is_sent(odd):
    with pytest.raises((TypeError, ValueError)):
        check(replace(QUESTION, **odd))


def test_an_engine_is_called_by_the_folder_or_name_that_was_chosen():
    assert EngineConfig(model="a/base").name == "a/base"
    assert EngineConfig(model="a/base", adapter="/mine").name == "/mine"
    assert EncoderConfig(model="a/encoder").name == "a/encoder"


def test_times_add_up():
    one, other = (EngineTimes(busy_ms=n, waiting_for_input_ms=10 * n, restart_ms=100 * n) for n in (1.0, 2.0))

    assert one + other == EngineTimes(busy_ms=3.0, waiting_for_input_ms=30.0, restart_ms=300.0)


def test_a_part_of_a_batch_has_the_files_that_it_needs():
    files = {"v": b"1", "i": b"2", "w": b"3"}
    batch = Batch(frame_files=files, questions=(QUESTION, IN_WORDS, replace(IN_WORDS, video_id="w")), is_alone=True)

    assert QUESTION.shown == (QuestionMedium("image", "i"),)
    assert IN_WORDS.shown == (QuestionMedium("video", "v"),)
    assert batch.only((QUESTION,)) == Batch(frame_files={"i": b"2"}, questions=(QUESTION,))
    assert batch.only(batch.questions[1:]).frame_files.keys() == {"v", "w"}


def test_a_prompt_is_the_text_of_all_its_runs():
    runs = (PromptSpan(text="a"), PromptSpan(text="<pad>", repeats=3), PromptSpan(text="b"))

    assert msgspec.structs.replace(REPLIES[5], runs=runs).text == "a<pad><pad><pad>b"


def test_a_question_that_a_message_can_have_is_not_refused():
    check(QUESTION)
    check(LiveQuery(text="What?"))


if __name__ == "__main__":
    STORED.write_text(json.dumps(as_json(), indent=1, ensure_ascii=False) + "\n")
