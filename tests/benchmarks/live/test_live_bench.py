"""The benchmark of live sessions, with the stub engine in the process."""

import gc
import time
from contextlib import closing

import pytest

from benchmarks.live import bench
from benchmarks.live.chat_server import ChatServer
from benchmarks.live.endurance import Arrival, explain, measure_endurance
from benchmarks.live.latency import PARTS, measure_chat, measure_latency, measure_parts
from benchmarks.live.stream import find_setup, open_live, open_watched, pairs_of
from benchmarks.live.watched_engine import note_collections
from tasks.live.window import WindowRule
from tests import stub_engine
from tests.vllm_server import gate
from tools.tiny_model.scenes import SCENE_QUESTIONS

pytestmark = pytest.mark.xdist_group("live-bench")  # the tests share an engine


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    return find_setup("tiny", tmp_path_factory.mktemp("live"))._replace(side_px=4)


@pytest.fixture(scope="module")
def live(setup, tmp_path_factory):
    with open_live(setup, tmp_path_factory.mktemp("log"), command=stub_engine.COMMAND) as live:
        yield live


def test_rows_have_the_history_and_what_is_cached_of_it(live, setup):
    said = []

    rows = list(measure_latency(live, setup, (4, 12), rounds=1, on_length=said.append))

    assert [row["frames"] for row in rows] == [4, 12]
    assert [(row["prompt_tokens"], row["cached_tokens"]) for row in rows] == [(2, 2), (6, 6)]
    assert [row["computed_tokens"] for row in rows] == [1, 1]  # the last pair
    assert all(row["on_arrival_ms"] > 0 and row["arrival_ms"] > 0 for row in rows)
    assert said == ["4 frames, read on arrival", "12 frames, read on arrival"]


def test_a_stream_is_replayed_with_evictions_and_memory_by_quarter(live, setup):
    found = measure_endurance(live, setup, minutes=0.7, rule=WindowRule(sink=2, size=8), on_minute=lambda _text: None)

    assert found["stream_s"] == 42
    assert found["evictions"] >= 3
    assert found["most_frames"] < 2 + 2 * 8 + 2
    assert len(found["memory_mib"]) == 4
    assert found["question_ms"][0] > 0
    p50, p99, longest = found["arrival_ms"]
    assert p50 <= p99 <= longest == found["longest"][0]["total_ms"]
    assert {each["garbage_ms"] for each in found["longest"]} == {0}
    assert all(each["step_ms"] > 0 and each["no_core_ms"] >= 0 and each["cause"] for each in found["longest"])


COSTS = {"step_ms": 0, "core_ms": 0, "no_core_ms": 0, "stolen_ms": 0, "is_evicting": False, "computed_tokens": 40}


@pytest.mark.parametrize(
    ("cost", "cause"),
    [
        ({"computed_tokens": 400, "no_core_ms": 90}, "read again"),
        ({"no_core_ms": 50, "stolen_ms": 20, "is_evicting": True}, "no core"),
        ({"no_core_ms": 20, "stolen_ms": 50}, "other machines"),
        ({"began_s": 7.0}, "garbage collection"),
        ({"is_evicting": True}, "eviction"),
        ({}, "other"),
    ],
)
def test_what_took_the_time_of_a_long_arrival_is_said(tmp_path, cost, cause):
    (collections := tmp_path / "collections").write_text("6.9 7.06\n7.2 9.9\n")
    usual = [Arrival(**COSTS, at_s=0, began_s=0, total_ms=10) for _ in range(3)]

    *_, found = explain([*usual, Arrival(**COSTS | {"began_s": 1.0} | cost, at_s=1, total_ms=100)], collections)

    assert found.cause == cause
    assert found.garbage_ms == pytest.approx(60 if cause == "garbage collection" else 0)


def test_a_process_notes_when_it_has_collected_garbage(tmp_path):
    began_s = time.monotonic()

    note_collections(tmp_path / "collections", least_s=0)
    try:
        gc.collect()
    finally:
        gc.callbacks.pop()

    *_, line = (tmp_path / "collections").read_text().splitlines()
    assert began_s <= float(line.split()[0]) <= float(line.split()[1]) <= time.monotonic()


def test_labels_are_compared_equally_often_by_kind_of_question(live, monkeypatch):
    monkeypatch.setattr(bench, "_FRAMES", 2)

    found = bench.measure_agreement(live, labels=6, on_clip=lambda _text: None)

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
        rows = list(measure_chat(server, setup, (8, 10, 12, 14), rounds=1, on_length=lambda _text: None))

    assert [row["chat_ms"] is None for row in rows] == [False, True, True, True]
    assert [row["chat_error"] for row in rows] == [
        "",
        "vLLM's server refuses the question: The video exceeds the cache.",
        "vLLM's server refuses the question: Too large.",
        "vLLM's server sent no token.",
    ]


@pytest.mark.system
def test_the_parts_of_a_question_are_measured_in_the_engine_and_add_up(tmp_path):
    setup = find_setup("tiny", tmp_path)

    with open_watched(setup, tmp_path, "parts") as (live, path):
        [row] = measure_parts(live, path, setup, (8,), rounds=1, on_length=lambda _text: None)

    assert all(row[part] > 0 for part in PARTS)
    assert sum(row[part] for part in PARTS) == pytest.approx(row["all"])
    assert 0 < row["computed_tokens"] < 100
