"""`reelabel live` against a real server of live sessions, with sources of real files and streams."""

import json
import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import av
import numpy as np
import pytest

from flows.cli.live.run import LiveOptions, _Conversation, run_live
from flows.cli.live.source import Source
from infra.settings import LiveSettings, ServeSettings, Settings
from reelabel.errors import ConfigurationError
from reelabel_engine.live_items import AUDIO_HZ, AudioSpan
from tests.flows.cli.live.rtsp_server import rtsp_camera
from tests.flows.cli.live.sources import FPS, SECONDS, served, write_video
from tests.flows.serve.live.server import live_server
from tests.live.scripted_model import INFO
from tests.live.sync_client import LiveClient

TONE_HZ = 440
TOKEN = "sixteen-characters-or-more"


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    return write_video(tmp_path_factory.mktemp("source") / "brighter.mp4")


@pytest.fixture(scope="module")
def server():
    with live_server() as server:
        yield server


@pytest.fixture(scope="module")
def hearing():
    with live_server(info=replace(INFO, takes_audio=True)) as server:
        yield server


@pytest.fixture(scope="module")
def video_with_audio(tmp_path_factory):
    return write_video(tmp_path_factory.mktemp("source") / "tone.mp4", tone_hz=TONE_HZ)


def options(source, url, **changed):
    values = {"questions": ("Is it dark?",), "choices": None, "every_s": None, "fps": 4.0, "limit_s": None}
    values |= {"audio": None}
    return LiveOptions(**{"source": str(source), "window_s": None, "url": url, "as_json": False, **values, **changed})


def test_a_file_is_paced_as_a_camera_and_asked_about_at_its_end(server, video, capsys):
    assert run_live(options(video, server.url)) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "0.8 s  Is it dark?  0 0.3 0.5 0.8"
    assert re.fullmatch(
        r"  first token \d+ ms, whole answer \d+ ms; 4 frames, 10 tokens, 8 of them prefilled", lines[1]
    )
    assert re.fullmatch(r"4 frames: 4 kept; acknowledged after \d+ ms \(median\)\.", lines[2])
    assert re.fullmatch(
        r"1 of 1 question answered: first token after \d+ ms, whole answer after \d+ ms \(medians\)\.", lines[3]
    )
    assert len(lines) == 4


def test_answers_are_printed_as_json_objects_alone(server, video, capsys):
    assert run_live(options(video, server.url, as_json=True, window_s=60.0)) == 0

    printed = capsys.readouterr()
    [answer] = map(json.loads, printed.out.splitlines())
    assert (answer["type"], answer["text"]) == ("response.done", "0 0.3 0.5 0.8")
    assert printed.err == ""


def test_similar_and_refused_frames_are_counted_and_named(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tasks.live.session.MAX_FRAME_BYTES", 2500)
    with av.open(str(tmp_path / "clip.mkv"), "w") as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.width, stream.height, stream.pix_fmt = 128, 96, "yuv420p"
        noise = np.random.default_rng(1).integers(0, 256, (96, 128, 3), np.uint8)
        for pixels in (np.zeros_like(noise), np.zeros_like(noise), noise):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode(None))

    assert run_live(options(tmp_path / "clip.mkv", server.url, fps=20.0)) == 0

    printed = capsys.readouterr()
    assert "3 frames: 1 kept, 1 similar, 1 refused; acknowledged" in printed.out
    assert "frame_too_large: The frame has" in printed.err


def test_a_connection_that_was_lost_and_resumed_is_reported(server, video, monkeypatch, capsys):
    prefill, dropped = server.model.prefill, []

    def drop_once(goal):
        if not dropped:
            dropped.append(server.drop())
        return prefill(goal)

    monkeypatch.setattr(server.model, "prefill", drop_once)

    assert run_live(options(video, server.url)) == 0

    printed = capsys.readouterr()
    assert "The connection was lost; the session continues." in printed.err
    assert "1 of 1 question answered" in printed.out
    assert printed.out.endswith("The connection was lost and resumed 1 time.\n")


@pytest.mark.system
def test_the_time_of_a_session_ends_while_a_picture_is_held(server, tmp_path, capsys):
    with av.open(str(tmp_path / "held.mkv"), "w") as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.width, stream.height, stream.pix_fmt = 128, 96, "yuv420p"
        for number in (0, 1, 2, 3600 * FPS):
            frame = av.VideoFrame.from_ndarray(np.full((96, 128, 3), number % 256, np.uint8), format="rgb24")
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))

    assert run_live(options(tmp_path / "held.mkv", server.url, limit_s=1.0)) == 0

    assert "1 of 1 question answered" in capsys.readouterr().out


def test_questions_with_choices_are_asked_every_so_many_seconds(server, video, capsys):
    queries = {"questions": ("Dark?", "Red?"), "choices": ("yes", "no"), "every_s": 0.4, "fps": 20.0}

    assert run_live(options(video, server.url, **queries)) == 0

    answers = [line for line in capsys.readouterr().out.splitlines() if "?  yes (0.750)" in line]
    assert [line.split("  ")[1] for line in answers] == ["Dark?", "Red?", "Dark?", "Red?"]


def test_a_question_without_an_answer_is_reported_and_counts(server, video, capsys):
    server.model.fails_with = ConfigurationError("The model is at fault.")
    try:
        assert run_live(options(video, server.url, limit_s=0.5)) == 1
    finally:
        server.model.fails_with = None

    printed = capsys.readouterr()
    assert "query_" in printed.err or "internal" in printed.err
    assert "None of 1 question answered." in printed.out


def test_an_event_that_cannot_be_taken_ends_the_session_with_its_error(server, video, monkeypatch):
    def refuse(_conversation, event):
        raise RuntimeError(event.type)

    monkeypatch.setattr(_Conversation, "_handle", refuse)

    with pytest.raises(RuntimeError, match=r"video\.frame\.ack"):
        run_live(options(video, server.url, limit_s=0.5))


@pytest.mark.system
def test_a_lost_connection_is_taken_up_again_and_a_question_sent_meanwhile_is_answered_once(server, video):
    heard, answered = [], threading.Event()

    def on_event(event):
        heard.append(event)
        if event.type == "response.done":
            answered.set()

    client = LiveClient(server.url, token=None, config={}, on_event=on_event)
    with Source(str(video), fps=4) as source:
        jpeg = next(source.parts()).jpeg
    assert client.send_frame(jpeg, frame_id="0", time_s=0.0)
    while not any(event.type == "video.frame.ack" for event in heard):
        threading.Event().wait(0.01)
    server.drop()
    client.ask("Which frames?", query_id="q0")  # into a connection that is gone
    assert answered.wait(60)

    assert client.finish(60)
    client.close()
    assert client.resumed == 1
    assert [event.text for event in heard if event.type == "response.done"] == ["0"]
    seqs = [event.seq for event in heard if event.seq]
    assert len(seqs) == len(set(seqs))  # nothing is heard twice


@pytest.mark.system
def test_questions_asked_while_the_session_is_taken_up_again_are_answered_once_and_in_their_turn(server, video):
    heard, kept = [], threading.Event()

    def on_event(event):
        heard.append(event)
        if event.type == "video.frame.ack":
            kept.set()

    client = LiveClient(server.url, token=None, config={}, on_event=on_event)
    with Source(str(video), fps=4) as source:
        client.send_frame(next(source.parts()).jpeg, frame_id="0", time_s=0.0)
    assert kept.wait(20)
    server.drop()
    for number in range(3):  # the first one into a connection that is gone
        client.ask("Which frames?", query_id=f"q{number}")

    assert client.finish(20)
    client.close()
    assert [event.query_id for event in heard if event.type == "response.done"] == ["q0", "q1", "q2"]


@pytest.mark.system
def test_what_was_missed_while_the_connection_was_lost_is_heard(server, video):
    heard, back = [], threading.Event()

    def on_event(event):
        heard.append(event)
        if event.type == "session.created":
            back.set()

    server.model.may_answer.clear()
    client = LiveClient(server.url, token=None, config={}, on_event=on_event)
    with Source(str(video), fps=4) as source:
        client.send_frame(next(source.parts()).jpeg, frame_id="0", time_s=0.0)
    client.ask("Which frames?", query_id="q0")
    while not any(event.type == "response.start" for event in heard):
        threading.Event().wait(0.01)
    server.drop()
    server.model.may_answer.set()  # it is answered while nobody listens
    assert back.wait(60)

    assert client.finish(60)
    client.close()
    kinds = [event.type for event in heard]
    assert kinds.index("response.done") < kinds.index("session.created")
    assert [event.seq for event in heard] == sorted({event.seq for event in heard})


@pytest.mark.system
def test_questions_that_were_refused_are_not_asked_again_after_a_lost_connection(server, video):
    heard, refused = [], threading.Semaphore(0)

    def on_event(event):
        heard.append(event)
        if event.type == "error":
            refused.release()

    server.model.may_answer.clear()
    client = LiveClient(server.url, token=None, config={}, on_event=on_event)
    with Source(str(video), fps=4) as source:
        client.send_frame(next(source.parts()).jpeg, frame_id="0", time_s=0.0)
    for number in range(66):
        client.ask("Which frames?", query_id=f"q{number}")
    assert all(refused.acquire(timeout=60) for _ in range(2))
    server.drop()
    server.model.may_answer.set()

    assert client.finish(60)
    client.close()
    assert [event.query_id for event in heard if event.type == "response.done"] == [f"q{each}" for each in range(64)]
    assert [event.query_id for event in heard if event.type == "error"] == ["q64", "q65"]


def heard_by(server):
    """The audio that the last question heard: when it began, and its samples."""
    prefix, _ = server.model.requests[-1]
    items = [item for item in prefix.items if isinstance(item, AudioSpan)]
    return items[0].time_s, np.concatenate([item.samples for item in items])


def assert_tone(samples):
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    assert np.argmax(spectrum) * AUDIO_HZ / len(samples) == pytest.approx(TONE_HZ, abs=3)
    middle = samples[len(samples) // 4 : -len(samples) // 4]
    assert np.abs(middle).max() == pytest.approx(0.25 * 32_768, rel=0.1)  # the mean of both channels


def test_the_audio_of_a_file_is_heard_with_its_frames(hearing, video_with_audio, capsys):
    assert run_live(options(video_with_audio, hearing.url)) == 0

    stdout = capsys.readouterr().out
    assert re.search(r"^[01]\.\d s of audio sent\.$", stdout, re.MULTILINE)
    assert re.search(r"frames, [01]\.\d s of audio, ", stdout)
    start_s, samples = heard_by(hearing)
    assert (start_s, len(samples) / AUDIO_HZ) == (pytest.approx(0, abs=0.05), pytest.approx(SECONDS, abs=0.2))
    assert_tone(samples)


@pytest.mark.system
def test_the_audio_of_a_stream_is_heard(hearing, tmp_path):
    write_video(
        tmp_path / "live.m3u8",
        seconds=4,
        tone_hz=TONE_HZ,
        format="hls",
        options={"hls_time": "2", "hls_list_size": "0"},
    )

    with served(tmp_path) as url:
        assert run_live(options(f"{url}/live.m3u8", hearing.url)) == 0

    _, samples = heard_by(hearing)
    assert_tone(samples)


@pytest.mark.system
@pytest.mark.parametrize(
    ("takes_audio", "has_audio", "audio"), [(False, True, None), (True, False, None), (True, True, False)]
)
def test_no_audio_is_sent_where_none_is_heard_wanted_or_there(request, capsys, takes_audio, has_audio, audio):
    server = request.getfixturevalue("hearing" if takes_audio else "server")
    source = request.getfixturevalue("video_with_audio" if has_audio else "video")

    assert run_live(options(source, server.url, audio=audio, limit_s=0.5)) == 0

    printed = capsys.readouterr()
    assert "audio" not in printed.out + printed.err
    assert not any(isinstance(item, AudioSpan) for item in server.model.requests[-1][0].items)


def test_audio_that_is_wanted_and_cannot_be_heard_is_reported_in_a_sentence(server, hearing, video, video_with_audio):
    with pytest.raises(ConfigurationError, match=r"^The model scripted accepts no audio; leave out --audio, or load"):
        run_live(options(video_with_audio, server.url, audio=True))
    with pytest.raises(ConfigurationError, match=r"^The source has no audio; leave out --audio\.$"):
        run_live(options(video, hearing.url, audio=True))


@pytest.mark.system
def test_a_camera_that_speaks_rtsp_is_a_source(server, capsys):
    with rtsp_camera(4 * FPS) as url:
        assert run_live(options(url, server.url, questions=("Which frames?",), every_s=1.0)) == 0

    stdout = capsys.readouterr().out
    assert "first token" in stdout
    frames = int(re.search(r"(\d+) frames: ", stdout)[1])
    assert 5 <= frames <= 16  # of 4 s at 4 a second, from when the stream is known


def test_a_server_that_is_absent_or_of_another_kind_is_reported_in_a_sentence(video, tmp_path):
    with pytest.raises(ConfigurationError, match=r"No live sessions are served at ws://127\.0\.0\.1:1/.*--url"):
        run_live(options(video, "http://127.0.0.1:1"))
    with (
        served(tmp_path) as url,
        pytest.raises(ConfigurationError, match=r"serves no live sessions \(404\); name live in serve\.load"),
    ):
        run_live(options(video, url))
    with pytest.raises(ConfigurationError, match="nonsense:// is not the address of a server"):
        run_live(options(video, "nonsense://"))
    for url in ("http://[::1", "http://127.0.0.1:99999", "http://127.0.0.1:port", "http://:80"):
        with pytest.raises(ConfigurationError, match=f"{re.escape(url)} is not the address of a server"):
            run_live(options(video, url))


@pytest.mark.system
def test_a_server_with_a_token_takes_who_has_it(monkeypatch, video):
    with live_server(settings=Settings(serve=ServeSettings(token=TOKEN))) as server:
        with pytest.raises(ConfigurationError, match="its token is missing or wrong"):
            run_live(options(video, server.url))
        monkeypatch.setenv("REELABEL_SERVE_TOKEN", TOKEN)

        assert run_live(options(video, server.url, limit_s=0.5)) == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"choices": ("yes",)}, "cannot be asked: choices must have at least 2"),
        ({"choices": ("yes", "yes")}, "choices must differ"),
        ({"questions": ("",)}, "cannot be asked: text must not be empty"),
    ],
)
def test_a_question_that_the_server_would_refuse_is_refused_first(video, changed, message):
    with pytest.raises(ConfigurationError, match=message):
        run_live(options(video, "http://127.0.0.1:1", **changed))


@pytest.mark.system
def test_ctrl_c_ends_the_session_and_prints_what_became_of_it(server, tmp_path):
    path = write_video(tmp_path / "long.mp4", seconds=120)
    command = [sys.executable, "-m", "flows.cli", "live", str(path), "--ask", "Which?", "--every", "0.5"]
    with subprocess.Popen([*command, "--url", server.url], stdout=subprocess.PIPE, text=True) as client:
        first = client.stdout.readline()
        client.send_signal(signal.SIGINT)
        rest, _ = client.communicate(timeout=60)

    assert "Which?" in first
    assert client.returncode == 130
    assert "answered: first token after" in rest


@pytest.mark.system
def test_a_server_that_does_not_come_back_is_reported(video, capsys):
    with live_server(settings=Settings(live=LiveSettings(resume_s=1))) as server:
        threading.Timer(0.7, server.end).start()

        assert run_live(options(video, server.url)) == 1

    assert "The connection was lost and could not be resumed in time." in capsys.readouterr().err
