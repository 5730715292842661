"""Messages of live sessions: what the published protocol sends is taken, and what is wrong is named."""

import json

import pytest

from tasks.live.events import EVENTS, SessionClosed
from tasks.live.messages import ProtocolError, parse_message, pop_unknown_fields


@pytest.mark.parametrize(
    "message",
    [
        {"type": "session.config", "model": "m", "modalities": ["text", "audio"], "num_frames": 32},
        {"type": "session.config", "evs_enabled": False, "evs_threshold": 0.9, "num_sample_frames": 4},
        {
            "type": "session.config",
            "max_frames": 50,
            "system_prompt": "Be brief.",
            "use_audio_in_video": False,
            "sampling_params_list": [{"temperature": 0, "max_tokens": 64}, {"top_k": 1}],
            "enable_frame_filter": True,
            "frame_filter_threshold": 0.95,
            "speaker": None,
        },
        {"type": "video.frame", "data": "aGk="},
        {"type": "video.frame", "data": "aGk=", "frame_id": "f7", "pts_ms": 700, "capture_ts_ms": 1234.5},
        {"type": "audio.chunk", "data": "AAAA"},
        {"type": "video.query", "text": "What do you see?"},
        {"type": "video.query", "text": "Say it.", "audio_data": "AAAA"},
        {"type": "video.done"},
        {"type": "ping"},
        # of newer versions
        {"type": "session.config", "persistent": True, "sink_frames": 4, "refresh_at_position": 100_000},
        {"type": "video.query", "text": "What?", "sampling": {"top_k": 1}, "response": {"modalities": ["text"]}},
    ],
)
def test_messages_of_published_clients_are_taken(message):
    assert parse_message(json.dumps(message)).type == message["type"]


def test_old_names_mean_the_new_ones():
    config = parse_message('{"type": "session.config", "evs_enabled": false, "evs_threshold": 0.5}')
    assert (config.enable_frame_filter, config.frame_filter_threshold) == (False, 0.5)
    assert parse_message('{"type": "session.config", "sink_frames": 4}').sink == 4


def test_unknown_fields_are_named():
    message = {"type": "session.config", "fps": 1, "persistent": True, "sampling": {"top_k": 1}, "\x1b[2J": 2}
    parsed = parse_message(json.dumps(message))
    assert pop_unknown_fields(parsed) == [
        "session.config.fps",
        "session.config.␛[2J",
        "session.config.sampling.top_k",
    ]
    assert pop_unknown_fields(parsed) == []
    many = parse_message(json.dumps({"type": "ping"} | {"x" * 1000 + str(key): 1 for key in range(101)}))
    names = pop_unknown_fields(many)
    assert len(names) == 10
    assert max(map(len, names)) < 100


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("{", "The message is not valid JSON."),
        ("[" * 100_000, "The message is not valid JSON."),
        ('{"type": "video.query", "text": "\\ud800"}', "The message is not valid JSON."),
        ("[]", "The message is not a JSON object."),
        ("{}", "The message has no type; it must be one of session.config, session.resume"),
        ('{"type": "video.frames"}', "There is no message of type video.frames; there are session.config"),
        ('{"type": "a\\u001b[2J"}', "There is no message of type a␛[2J;"),
        ('{"type": "session.config", "sampling_params_list": [{"top_p": 9}]}', "temperature, top_p, max_tokens, seed"),
        ('{"type": "session.config", "window": 2, "max_frames": 4}', "only one of window, window_s and max_frames"),
        ('{"type": "session.config", "modalities": ["smell"]}', "modalities.0 must be 'text' or 'audio'"),
        ('{"type": "session.config", "sink": true}', "sink must be a whole number"),
        ('{"type": "session.config", "window_s": NaN}', "window_s must be"),
        ('{"type": "session.config", "frame_filter_threshold": NaN}', "frame_filter_threshold must be"),
        ('{"type": "session.config", "sampling": {"temperature": NaN}}', "sampling.temperature must be"),
        ('{"type": "session.config", "sampling": {"top_p": Infinity}}', "sampling.top_p must be"),
        ('{"type": "video.frame", "pts_ms": NaN}', "pts_ms must be a finite number"),
        ('{"type": "video.frame", "time_s": 1, "pts_ms": 1}', "only one of time_s and pts_ms"),
        ('{"type": "video.query"}', "video.query: text is required."),
        ('{"type": "video.query", "text": ""}', "text must not be empty"),
        ('{"type": "video.query", "text": "a\\u0000"}', "text must not contain the character U+0000"),
        ('{"type": "video.query", "text": "a", "choices": ["b"]}', "choices must have at least 2 entries"),
        ('{"type": "video.query", "text": "a", "choices": ["b", "b"]}', "choices must differ"),
        ('{"type": "session.resume", "session_id": "a"}', "resume_token is required"),
        # What would take seconds and gigabytes to check, or to describe.
        (json.dumps({"type": "ping", "a": [1] * 100_001}), "100,001 commas"),
        (json.dumps({"type": "session.config", "sampling_params_list": [{}] + [1] * 99}), "sampling_params_list.1."),
        (json.dumps({"type": "session.config", "sampling_params_list": [{}] * 99}), "at most 64"),
        (json.dumps({"type": "video.query", "text": "?", "choices": ["a"] + [1] * 99}), "choices.1 must be text"),
    ],
)
def test_what_is_wrong_with_a_message_is_named(message, error):
    with pytest.raises(ProtocolError) as raised:
        parse_message(message)
    assert raised.value.code == "invalid_message"
    assert error in raised.value.message


def test_long_words_of_a_client_are_not_repeated_in_full():
    with pytest.raises(ProtocolError) as raised:
        parse_message(json.dumps({"type": "x" * 100_000}))
    assert len(raised.value.message) < 300


def test_events_survive_json():
    event = SessionClosed(seq=3, reason="idle")
    assert EVENTS.validate_json(event.model_dump_json()) == event
