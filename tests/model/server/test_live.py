"""Live sessions by a server: what a question carries, answers as they are made, speech, and servers that break off."""

import base64
import io
import wave

import numpy as np
import pytest

from infra.errors import ServerFailedError, ServerUnavailableError
from infra.settings import ServerSettings
from reelabel.errors import ConfigurationError
from reelabel_engine.errors import InferenceError, SpecialTokensError
from reelabel_engine.live_items import AudioSpan
from reelabel_engine.protocol import LiveQuery, LiveText
from tasks.live.model import Prefix, Speech
from tasks.live.window import AudioSpans, FramePairs
from tasks.model.identity import TINY_MODEL, read_model_info
from tasks.model.server.live import ServerLiveModel, _encode
from tests.model.factories import live_answer
from tests.stub_server import Spoken, encoder, speech_of
from tests.vllm_server import CUT, KEY, gate

CARD = read_model_info(str(TINY_MODEL))


@pytest.fixture
def make(stub_server):
    """Make live models by the server, with settings; each ends with the test."""
    models = []

    def make(**settings):
        settings = {"url": stub_server, "api_key": KEY, "max_attempts": 1} | settings
        models.append(ServerLiveModel(ServerSettings(**settings), CARD, max_frame_px=5000, encode=encoder()))
        models[-1].wait_ready()
        models[-1].open("one")
        return models[-1]

    yield make
    for each in models:
        each.close()


def seen():
    """Return three frames with the audio of the first two seconds among them."""
    pairs, items = FramePairs(), []
    for at in range(2):
        items += pairs.add(np.full((28, 28, 3), 40 * at, np.uint8), float(at))
    items += AudioSpans().add(np.arange(32_000, dtype=np.int16), 0.0)
    pairs.add(np.zeros((28, 28, 3), np.uint8), 2.0)
    return Prefix(session="one", items=(*items, pairs.alone), has_audio=True)


def ask(model, text="What is it?", **options):
    return live_answer(model.ask(seen(), LiveQuery(text=text, **options)), options.get("choices", ()))


def test_what_a_question_sees_is_sent_in_order_and_answered_in_pieces(make):
    events, answer = ask(make())

    assert answer.text == "image image audio image What is it? "
    assert [event.text for event in events] == [f"{word} " for word in answer.text.split()]
    assert (answer.prompt_tokens, answer.cached_tokens, answer.output_tokens) == (7, 3, 7)
    assert answer.finish_reason == "stop"
    assert ask(make(), max_tokens=2)[1].finish_reason == "length"


def test_speech_is_passed_on_beside_its_text(make):
    model = make(voice="echo")
    events, answer = ask(model, produces_speech=True)
    speech = [event.data for event in events if isinstance(event, Speech)]

    assert speech == [speech_of(f"{word} ", "echo") for word in answer.text.split()]
    assert "".join(event.text for event in events if isinstance(event, LiveText)) == answer.text
    by_sage = [event.data for event in ask(model, produces_speech=True, voice="sage")[0] if isinstance(event, Speech)]
    assert by_sage[0] == speech_of("image ", "sage")


def test_a_query_with_choices_has_the_probabilities_of_the_servers_logprobs(make):
    [], answer = ask(make(), text="Which?\nA. red\nB. blue", choices=("red", "blue"))

    assert answer.text == ("red", "blue")[answer.choice_index]
    assert sum(answer.probabilities) == pytest.approx(1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (Spoken.CUT, "has ended its answer early"),
        (Spoken.NO_JSON, "broke off its answer"),
        (Spoken.NO_BASE64, "audio is not valid base64"),
        (Spoken.NO_ASCII, "audio is not valid base64"),
        (Spoken.HALF_A_SAMPLE, "3 bytes, which are no whole samples"),
    ],
)
def test_an_invalid_answer_is_reported_in_a_sentence(make, text, message):
    with pytest.raises(InferenceError, match=message):
        ask(make(), text, produces_speech=True)


BLOCKED = b"<html><p>Blocked.</p></html>"
ENDLESS = b'data: {"choices": [{"delta": {"content": "%s"}}]}\n\n' % (b"word " * 2000) * 1700
ODD = [  # with choices or without, and what a query is told
    ((200, CUT), (), "peer closed connection"),
    ((200, b'data: {"error": {"message": "Out of memory."}}\n\n'), (), "broke off its answer: Out of memory"),
    ((200, b'data: {"error": {"message": "\\ud83d\\u001b"}}\n\n'), (), "broke off its answer: <U[+]D83D>␛"),
    ((200, b'data: {"choices": [{"delta": null}]}\n\n'), (), "ended its answer early"),
    ((200, BLOCKED), (), "ended its answer early"),
    ((200, ENDLESS), (), "sent a response of more than 16 MiB"),
    ((200, b"data: " + b"x" * 17 * 1024**2), (), "sent a response of more than 16 MiB"),
    ((403, BLOCKED), (), r"rejects the question \(HTTP 403\): Blocked"),
    ((200, BLOCKED), ("red", "blue"), "answers others: Blocked"),
    ((404, BLOCKED), ("red", "blue"), r"rejects the question \(HTTP 404\): Blocked"),
    ((504, BLOCKED), ("red", "blue"), "unavailable.*HTTP 504: Blocked"),
]


def test_an_odd_reply_is_the_failure_of_its_query_alone(stub_server, make):
    odd = []
    with gate(stub_server, lambda path, _: odd[0] if odd and path.endswith("completions") else None) as url:
        model = make(url=url)
        for reply, choices, message in ODD:
            assert ask(model)[1].finish_reason == "stop"
            odd[:] = [reply]
            with pytest.raises((InferenceError, ServerFailedError, ServerUnavailableError), match=message):
                ask(model, choices=choices)
            odd.clear()


def test_a_character_that_a_stream_splits_is_replaced(stub_server, make):
    pieces = b'{"delta": {"content": "\\ud83d"}}', b'{"delta": {"content": "\\ude00!"}, "finish_reason": "stop"}'
    reply = 200, b"".join(b'data: {"choices": [%s]}\n\n' % each for each in pieces)
    with gate(stub_server, lambda path, _: reply if path.endswith("completions") else None) as url:
        assert ask(make(url=url))[1].text == "\N{REPLACEMENT CHARACTER}" * 2 + "!"


def test_what_a_server_would_obey_is_refused(make):
    with pytest.raises(SpecialTokensError, match="special token"):
        ask(make(), "Hello<|im_end|>")


def test_a_session_that_ended_is_refused(make):
    model = make()
    model.close_session("one")
    with pytest.raises(InferenceError, match="has ended"):
        ask(model)


def test_a_wrong_key_is_reported_when_the_service_starts(make):
    with pytest.raises(ConfigurationError, match="rejects the API key"):
        make(api_key="wrong")


def test_info_says_what_the_settings_say(make):
    assert [(info.takes_audio, info.produces_speech) for info in (make().wait_ready(),)] == [(False, False)]
    assert make(audio_input=True).wait_ready().takes_audio
    assert make(voice="echo").wait_ready().produces_speech
    assert make().prefill([seen()]) is None


def test_audio_is_sent_as_a_wave_file():
    samples = np.arange(-50, 50, dtype=np.int16)
    [part] = _encode(AudioSpan(samples=samples, time_s=1.0))
    assert part["type"] == "input_audio"
    with wave.open(io.BytesIO(base64.b64decode(part["input_audio"]["data"]))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16_000, 1, 2)
        assert file.readframes(1000) == samples.astype("<i2").tobytes()
