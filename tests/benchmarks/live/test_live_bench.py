"""The benchmark of live sessions, with the stub engine in the process."""

import re
from contextlib import closing

import pytest

from benchmarks.live import measure
from benchmarks.live.chat_server import ChatServer
from benchmarks.live.measure import measure_chat, measure_endurance, measure_latency
from benchmarks.live.stream import find_setup, open_live, pairs_of
from tasks.live.window import WindowRule
from tests import stub_engine
from tests.vllm_server import gate
from tools.tiny_model.scenes import SCENE_QUESTIONS


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    return find_setup("tiny", tmp_path_factory.mktemp("live"))._replace(side_px=4)


@pytest.fixture(scope="module")
def live(setup, tmp_path_factory):
    with open_live(setup, tmp_path_factory.mktemp("log"), command=stub_engine.COMMAND) as live:
        yield live


def test_rows_have_the_history_and_what_is_cached_of_it(live, setup):
    notes = []

    rows = list(measure_latency(live, setup, (4, 12), rounds=1, show=notes.append))

    assert [row["frames"] for row in rows] == [4, 12]
    assert [(row["prompt_tokens"], row["cached_tokens"]) for row in rows] == [(2, 2), (6, 6)]
    assert [row["computed_tokens"] for row in rows] == [1, 1]  # the last pair
    assert all(row["on_arrival_ms"] > 0 and row["arrival_ms"] > 0 for row in rows)
    assert notes == ["4 frames, read on arrival", "12 frames, read on arrival"]


def test_a_stream_is_replayed_with_evictions_and_memory_by_quarter(live, setup):
    stream, spread, memory = measure_endurance(
        live, setup, minutes=0.7, rule=WindowRule(sink=2, size=8), show=lambda _text: None
    )

    assert stream.startswith("0.7 minutes of stream")
    evictions, most = map(int, re.search(r"(\d+) evictions, at most (\d+) frames", stream).groups())
    assert evictions >= 3
    assert most < 2 + 2 * 8 + 2
    assert memory.count(", ") == 3
    arrival, question = spread
    assert question["p50"] > 0
    assert 0 < arrival["p50"] <= arrival["p99"] <= arrival["longest"]


def test_labels_are_compared_equally_often_by_kind_of_question(live, monkeypatch):
    monkeypatch.setattr(measure, "_CLIP_FRAMES", 2)

    found = measure.measure_agreement(live, labels=6, show=lambda _text: None)

    assert {each["question"]: each["labels"] for each in found} == dict.fromkeys(SCENE_QUESTIONS, 1)


def test_every_pair_of_a_camera_is_new(setup):
    assert len({item.hash for seed in (1, 2) for item in pairs_of(setup, 8, seed=seed)}) == 8


def test_a_length_that_the_chat_server_refuses_has_its_words_in_place_of_a_time(setup):
    token = b'data: {"choices": [{"delta": {"content": "A"}, "finish_reason": null}]}\n\n'
    error = b'data: {"error": {"message": "The video exceeds the cache.", "code": 400}}\n\ndata: [DONE]\n\n'

    def answer(_path, body):
        frames = 1 + body["messages"][-1]["content"][0]["video_url"]["url"].partition(",")[2].count(",")
        return {8: (200, token), 10: (200, error), 12: (413, "Too large."), 14: (200, b"data: [DONE]\n\n")}[frames]

    with gate("http://127.0.0.1:9", answer) as url, closing(ChatServer(url.removesuffix("/v1"))) as server:
        rows = list(measure_chat(server, setup, (8, 10, 12, 14), rounds=1, show=lambda _text: None))

    assert [ms is None for ms, _ in rows] == [False, True, True, True]
    assert [error for _, error in rows] == [
        "",
        "vLLM's server refuses the question: The video exceeds the cache.",
        "vLLM's server refuses the question: Too large.",
        "vLLM's server sent no token.",
    ]
