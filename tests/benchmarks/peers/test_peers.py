"""The comparison with other tools: its arithmetic, and its smallest size with the plain script alone."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from benchmarks import harness
from benchmarks.__main__ import app
from benchmarks.peers import environment, measure
from benchmarks.peers.counter import Traffic
from benchmarks.peers.decoded import DecodedFrames
from benchmarks.peers.descriptions import DescriptionCase
from benchmarks.peers.frames import dirty_case, frame_cases
from benchmarks.peers.measure import Bench, Outcome, pythons_of
from benchmarks.peers.peer import OURS, PEERS, PLAIN, count_lines
from benchmarks.peers.questions import QuestionCase
from benchmarks.peers.report import peer_table, target_is_met
from benchmarks.peers.scripts.job import FrameJob, Place, pick_evenly
from benchmarks.peers.watch import Run, last_words, run_script
from infra.settings import StoreSettings
from reelabel.errors import ReelabelError
from tests.clips import write_clip

ROOT = Path(__file__).parents[3]
CASES = {case.name: case for case in frame_cases(0, 2, 1)}
KEYFRAMES, UNIFORM = CASES["keyframes, 2 of 600 s"], CASES["uniform, 2 of 600 s"]
DAFT = next(peer for peer in PEERS if peer.script == "daft")
ROWS = tuple({"id": f"s3://b/{number}.mp4", "frames": 16, "given": 300, "error": ""} for number in range(2))


def outcome(peer, wall_s, *, case=KEYFRAMES, rows=ROWS, why="", start_s=0.5):
    runs = [
        Run(wall_s=each, start_s=start_s, cpu_s=3, peak_bytes=10**8, rows=rows, received_bytes=5 * 10**6, error=why)
        for each in ((wall_s,) if isinstance(wall_s, int | float) else wall_s)
    ]
    return Outcome(peer=peer, case=case, runs=tuple(runs), why=why)


def cells(*outcomes):
    """The table's cells of each peer, by its heading."""
    table = peer_table(outcomes)
    return [{column.heading: column.cell(row) for column in table.columns} for row in table.rows]


def test_rows_that_are_lost_doubled_failed_or_short_are_counted():
    rows = [
        *ROWS,
        ROWS[0],
        {**ROWS[1], "id": "c", "frames": 15},
        {**ROWS[1], "id": "d", "frames": 0, "error": "gone"},
    ]

    case = replace(KEYFRAMES, copies=6)

    assert case.faults(rows) == {"lost": 2, "doubled": 1, "failed": 1, "short": 1, "silent": 0}
    assert not any(KEYFRAMES.faults(ROWS).values())


def test_a_video_that_cannot_be_read_should_fail():
    case = dirty_case(60)
    names = case.file_names
    rows = [
        {"id": name, "frames": 16 * (len(name) == 9), "given": 0, "error": "no" * (len(name) > 9)} for name in names
    ]

    assert sorted(name[6:] for name in names if "-" in name) == ["broken.mp4", "broken.mp4", "gone.mp4", "stalls.mp4"]
    assert not any(case.faults(rows).values())
    assert case.faults([row | {"error": ""} for row in rows])["silent"] == 4
    assert case.faults([row | {"error": "no"} for row in rows])["failed"] == 56


@pytest.mark.parametrize(
    ("case", "outcomes", "is_met"),
    [
        pytest.param(KEYFRAMES, [outcome(OURS, 2), outcome(DAFT, 6)], True, id="three times as fast"),
        pytest.param(KEYFRAMES, [outcome(OURS, 2), outcome(DAFT, 5.9)], False, id="less than three times"),
        pytest.param(UNIFORM, [outcome(OURS, 2, case=UNIFORM), outcome(DAFT, 2.1, case=UNIFORM)], True, id="first"),
        pytest.param(KEYFRAMES, [outcome(OURS, 2), outcome(PLAIN[0], 1.5)], True, id="behind by our start"),
        pytest.param(KEYFRAMES, [outcome(OURS, 2), outcome(PLAIN[1], 1.4)], False, id="behind by more"),
        pytest.param(KEYFRAMES, [outcome(OURS, 2), outcome(DAFT, 1, why="died")], True, id="a peer that fails"),
        pytest.param(KEYFRAMES, [outcome(OURS, 2, rows=ROWS[:1]), outcome(DAFT, 9)], False, id="we lose a row"),
    ],
)
def test_the_target_is_to_be_first(case, outcomes, is_met):
    assert target_is_met(outcomes, case) == is_met


def test_the_table_tells_medians_and_why_a_peer_has_none():
    plain = outcome(PLAIN[0], (), why="cannot be installed")

    ours, daft, none = cells(outcome(OURS, (1, 2, 9)), outcome(DAFT, (8, 7, 20)), plain)

    assert (ours["peer"], ours["wall, s"], ours["/ ours"]) == ("reelabel", "2.00", "1.00x")
    assert (daft["peer"], daft["wall, s"], daft["/ ours"], daft["given"]) == ("Daft", "8.00", "4.00x", "600")
    assert (none["peer"], none["wall, s"], none["faults"]) == ("plain script", "", "cannot be installed")


def test_of_a_peer_that_fails_the_run_that_failed_is_reported():
    runs = (outcome(DAFT, 36.5).runs[0], outcome(DAFT, 60.0, rows=(), why="ended").runs[0])
    failed = replace(outcome(DAFT, (1, 2), why="ended"), runs=runs)

    _, row = cells(outcome(OURS, 2), failed)
    assert (row["wall, s"], row["faults"]) == ("60.00", "2 lost; ended")


def test_answers_that_are_right_and_questions_that_were_asked_are_counted():
    case = QuestionCase(name="q", videos=1, truths={"a": "A", "b": "B"})
    rows = [
        {"id": "a", "letter": "A", "is_new": True, "error": ""},
        {"id": "b", "letter": "C", "is_new": False, "error": ""},
        {"id": "c", "letter": "", "is_new": True, "error": "gone"},
    ]

    assert case.figures(rows) == {"asked": 2, "right": 1}
    assert case.faults([*rows, rows[0]]) == {"lost": 5, "doubled": 1, "failed": 1}
    assert replace(case, truths={}).figures(rows) == {"asked": 2}


def test_tags_and_searches_that_fit_what_is_seen_are_counted():
    truths = {"s3://a": ("red", "square"), "s3://b": ("blue", "cross")}
    case = DescriptionCase(name="d", videos=2, texts=("a red square", "a blue cross"), truths=truths)
    tagged = [{"id": uri, "tag": tag, "vectors": 32, "error": ""} for uri, tag in zip(truths, case.texts, strict=True)]
    wrong = {**tagged[1], "tag": "a red cross"}
    found = {"something red": "s3://a", "a blue cross": "s3://a"}
    searched = replace(case, texts=tuple(found), is_search=True)
    rows = [{"id": text, "found": uri, "error": ""} for text, uri in found.items()]

    assert case.figures(tagged) == {"vectors": 64, "right": 2}
    assert case.figures([tagged[0], wrong]) == {"vectors": 64, "right": 1}
    assert case.faults(tagged[:1]) == {"lost": 1, "doubled": 0, "failed": 0}
    assert searched.figures(rows) == {"right": 1}
    assert searched.faults(rows[1:])["lost"] == 1


def test_of_a_run_that_is_killed_halfway_the_one_that_continues_it_is_reported(monkeypatch, tmp_path):
    died = QuestionCase(name="died", videos=1, kill_at_rows=4, is_race=False)
    kills, folders = [], []

    def run_script(_python, _script, options, *, kill_at_rows, **_):
        kills.append(kill_at_rows)
        folders.append(json.loads(options)["folder"])
        return Run(wall_s=5, start_s=1, cpu_s=1, peak_bytes=1, rows=(), error="killed" if kill_at_rows else "")

    monkeypatch.setattr(measure, "run_script", run_script)
    relay = SimpleNamespace(traffic=Traffic(0, 0))
    bench = Bench(store=StoreSettings(), relay=relay, logs=tmp_path, rounds=1, limit_s=9)
    videos = SimpleNamespace(
        job=lambda _case, _bench, folder: Place(endpoint="", key="", secret="", cores=1, folder=folder)
    )

    outcomes = bench.measure(
        [OURS],
        [died, replace(died, name="continued", kill_at_rows=0)],
        {OURS.name: "python"},
        videos=videos,
        on_run=lambda _: None,
    )

    assert kills == [4, 0]
    assert folders[0] == folders[1]
    assert [(each.case.name, each.why) for each in outcomes] == [("continued", "")]


def test_a_peer_is_asked_for_what_it_can_do():
    ray, chain = (next(peer for peer in PEERS if peer.script == name) for name in ("ray_data", "datachain"))

    assert UNIFORM.is_for(ray)
    assert not KEYFRAMES.is_for(ray)
    assert KEYFRAMES.is_for(DAFT)
    assert not QuestionCase(name="q", videos=1).is_for(chain)


def test_lines_are_those_that_hold_code():
    code = '"""What it\n\nis."""\n\n# why\nimport os  # this\n\n\ndef f():\n    """Say."""\n    return """a\nb"""\n'

    assert count_lines(code) == 4
    server = (ROOT / "benchmarks/peers/scripts/questions/server.py").read_text()
    assert DAFT.lines("questions") > count_lines(server) > 20  # it is what Daft's script shares with others
    assert all(0 < peer.lines("frames") <= 60 for peer in (OURS, *PEERS))


def test_frames_are_picked_evenly():
    assert pick_evenly(range(300), 4) == [0, 100, 199, 299]
    assert pick_evenly(range(3), 16) == [0, 1, 2]
    job = FrameJob(
        **dict.fromkeys(("uris", "choice", "endpoint", "key", "secret", "folder", "cores"), ""),
        frames=3,
        start_s=10,
        end_s=40,
        fps=30,
        is_whole=False,
    )
    assert job.indices() == [450, 750, 1050]


def test_the_last_words_of_a_script_are_its_error(tmp_path):
    log = tmp_path / "log"
    log.write_text("start\nValueError:   no\n  such codec\nbye\n\n")

    assert last_words(log) == "ValueError: no"


def test_an_environment_that_cannot_be_made_is_a_row_that_says_why(monkeypatch, tmp_path):
    refused = subprocess.CompletedProcess([], 1, "", "ERROR: no matching distribution\n")
    monkeypatch.setattr(harness.subprocess, "run", lambda *_, **__: refused)
    monkeypatch.setattr(environment, "_shared_packages", list)
    monkeypatch.setattr(harness.venv, "create", lambda home, **_: harness.packages_of(home).mkdir(parents=True))

    pythons = pythons_of([OURS, DAFT], tmp_path)

    assert pythons["reelabel"] == sys.executable
    assert isinstance(pythons["Daft"], ReelabelError)
    assert "no matching distribution" in str(pythons["Daft"])


@pytest.mark.system
def test_a_script_that_does_not_end_is_ended_with_what_it_started(tmp_path):
    script = tmp_path / "python"  # plays the interpreter, whatever it is told to run
    script.write_text('#!/bin/sh\necho \'{"event": "began"}\'\nsleep 977 &\nsleep 977\n')
    script.chmod(0o700)

    run = run_script(script, "none", "{}", limit_s=1, log_path=tmp_path / "log")

    assert run.error == "ended after the limit of 1 s"
    assert 1 <= run.wall_s < 60
    assert run.start_s > 0
    assert subprocess.run(["pgrep", "-f", "sleep 977"], check=False).returncode == 1


@pytest.mark.system
@pytest.mark.parametrize(("rows", "took_s"), [((1, 4), (0, 3)), ((1, 3), (4, 7))])
def test_a_run_is_killed_by_its_progress(tmp_path, rows, took_s):
    events = "; sleep 0.3; ".join(f'echo \'{{"event": "progress", "rows": {number}}}\'' for number in rows)
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\necho \'{{"event": "began"}}\'\n{events}\nsleep 978\n')
    script.chmod(0o700)

    run = run_script(script, "none", "{}", limit_s=4, log_path=tmp_path / "log", kill_at_rows=4)

    assert took_s[0] <= run.wall_s < took_s[1]


@pytest.mark.system
def test_decoded_frames_are_counted_wherever_they_are_decoded(tmp_path):
    counter, clip = DecodedFrames(tmp_path), write_clip(tmp_path / "a.mp4", frames=30)
    code = f"import av\nwith av.open({str(clip)!r}) as a: print(len(list(a.decode(video=0))))"

    completed = subprocess.run([sys.executable, "-c", code], env=os.environ | counter.restart(), check=True)

    assert completed.returncode == 0
    assert counter.frames == 31 if shutil.which("cc") else counter.frames is None  # FFmpeg decodes one to look at it


@pytest.mark.system
def test_the_smallest_size_with_the_plain_script_alone(tmp_path):
    arguments = ["peers", "--peers", "plain", "--clips", "2,0,0", "--rounds", "1", "--folder", str(tmp_path), "--json"]

    rows = json.loads(CliRunner().invoke(app, arguments).stdout)["tables"][0]["rows"]

    assert [(row["peer"], row["faults"]) for row in rows] == [("reelabel", "none"), ("plain script", "none")] * 2
    size_bytes = (tmp_path / "640x360-gop60-32s.mp4").stat().st_size
    for row in rows:
        assert row["given"] == 32
        [run] = row["runs"]
        assert run["wall_s"] > run["start_s"] > 0
        assert min(run["cpu_s"], run["peak_bytes"], run["requests"]) > 0
        assert run["received_bytes"] >= 2 * size_bytes


@pytest.mark.system
def test_clips_are_described_and_searched_as_the_plain_script_does(tmp_path):
    arguments = [
        "peers",
        "--peers",
        "plain",
        "--descriptions",
        "8",
        "--rounds",
        "1",
        "--folder",
        str(tmp_path),
        "--json",
    ]

    rows = json.loads(CliRunner().invoke(app, arguments).stdout)["tables"][0]["rows"]

    assert [row["case"] for row in rows[::2]] == ["8 clips described", "again, with another bank", "11 searches"]
    assert {row["faults"] for row in rows} == {"none"}
    assert [row["vectors"] for row in rows[:4]] == [8 * 32] * 4
    assert all(row["right"] >= 0.9 * wanted for row, wanted in zip(rows, [8, 8, 8, 8, 11, 11], strict=True))
    assert rows[2]["read_bytes"] < rows[0]["read_bytes"] / 10
