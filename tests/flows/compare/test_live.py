"""The candidate `live` of an evaluation, on the real server with a scripted model."""

import threading

import polars as pl
import pytest

from flows.compare import live
from flows.compare.live import answer_live
from infra.settings import ServeSettings, Settings
from reelabel.errors import ConfigurationError
from reelabel.live import LiveClient
from tests.flows.cli.live.test_client import write_video
from tests.flows.serve.live.server import live_server


@pytest.fixture(scope="module")
def server():
    with live_server() as server:
        yield server


def jobs_of(*rows):
    """Return jobs on videos: each a video, its start and its end."""
    return pl.DataFrame(
        [
            {
                "job_id": f"job-{number}",
                "video_uri": str(uri),
                "start_s": start_s,
                "end_s": end_s,
                "prompt": "Which frames?",
                "choices": ["yes", "no"],
                "system_prompt": None,
            }
            for number, (uri, start_s, end_s) in enumerate(rows)
        ],
        schema_overrides={"start_s": pl.Float64, "end_s": pl.Float64, "system_prompt": pl.String},
    )


def seen(model):
    """Return the times of the frames that each question saw, in order."""
    return [[item.times_s[at] for item in prefix.items for at in range(item.frames)] for prefix, _ in model.requests]


def test_a_question_sees_the_video_up_to_its_time(server, tmp_path):
    clip = write_video(tmp_path / "clip.mp4", seconds=5)

    results = answer_live(
        jobs_of((clip, None, None), (clip, None, 1.5), (clip, 3.0, 4.0), ("/gone.mp4", None, None)),
        Settings(),
        url=server.url,
    )

    assert results.labels.select("job_id", "label").sort("job_id").rows() == [(f"job-{n}", "yes") for n in range(3)]
    assert results.labels["probabilities"].to_list() == [[0.75, 0.25]] * 3
    assert (results.failed, results.model, results.spec_id) == (["job-3"], "scripted", "")
    early, late, part = seen(server.model)
    assert early == [0, 1]
    assert late == [0, 1, 2, 3, 4]
    assert part == [0, 1]  # of the session, which begins at the third second


def test_a_question_sees_nothing_before_a_start_between_two_seconds(server, tmp_path, monkeypatch):
    clip, sent = write_video(tmp_path / "clip.mp4", seconds=5), []
    send = LiveClient.send_frame

    def note(client, picture, *, time_s):
        sent.append(time_s)
        return send(client, picture, time_s=time_s)

    monkeypatch.setattr(LiveClient, "send_frame", note)
    results = answer_live(jobs_of((clip, 2.75, 4.0), (clip, 4.5, None)), Settings(), url=server.url)

    assert (results.failed, sent) == ([], [2.75, 3.75, 4.5])


def test_a_server_that_is_not_there_ends_the_evaluation_with_a_sentence():
    with pytest.raises(ConfigurationError, match="No live sessions are served at"):
        answer_live(jobs_of(("/clip.mp4", None, None)), Settings(), url="http://127.0.0.1:1")


def test_a_question_sees_its_window_and_not_the_first_frames(server, tmp_path, monkeypatch):
    monkeypatch.setattr(live, "_WINDOW_S", 2)
    server.model.requests.clear()

    answer_live(jobs_of((write_video(tmp_path / "clip.mp4", seconds=8), None, None)), Settings(), url=server.url)

    assert 0 not in seen(server.model)[0]


@pytest.mark.system
def test_more_questions_than_may_wait_are_all_answered(server, tmp_path):
    clip = write_video(tmp_path / "clip.mp4", seconds=2)

    results = answer_live(jobs_of(*[(clip, None, 0.5)] * 150), Settings(), url=server.url)

    assert results.failed == []


@pytest.mark.system
def test_frames_wait_for_a_connection_that_was_lost(server, tmp_path, monkeypatch):
    clients = []

    class Client(LiveClient):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            clients.append(self)

    def dropping(*arguments, frames=live._frames, **options):
        for frame in frames(*arguments, **options):
            if frame[0] == 3:
                server.drop()
                while clients[0]._is_connected:
                    threading.Event().wait(0.01)
            yield frame

    monkeypatch.setattr(live, "LiveClient", Client)
    monkeypatch.setattr(live, "_frames", dropping)
    server.model.requests.clear()

    results = answer_live(
        jobs_of((write_video(tmp_path / "clip.mp4", seconds=5), None, None)), Settings(), url=server.url
    )

    assert (results.failed, clients[0].resumed) == ([], 1)
    assert seen(server.model)[0][-2:] == [3, 4]


def test_the_token_is_sent_to_the_configured_server_only(tmp_path):
    jobs, token = jobs_of((write_video(tmp_path / "clip.mp4", seconds=2), None, None)), "sixteen-characters-or-more"
    with live_server(settings=Settings(serve=ServeSettings(token=token))) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with pytest.raises(ConfigurationError, match="its token is missing or wrong"):
            answer_live(jobs, Settings(serve=ServeSettings(token=token, host=host)), url=server.url)

        configured = Settings(serve=ServeSettings(token=token, host=host, port=int(port)))
        assert answer_live(jobs, configured, url=server.url).failed == []
