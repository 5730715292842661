"""What the page of a live session says about rows in a real Postgres and frames in a real store."""

import re

import pytest
from sqlalchemy import text

from tasks.live.record.saved import find_session
from tasks.report.live import load_session, render_session
from tasks.report.render import MAX_BYTES
from tests.live.record.recorded import answered, open_session, record_session, start
from tests.report.test_page import HOSTILE


@pytest.fixture
def recorder(db, objects, store_settings):
    recorder = start(db, objects, store_settings.uri)
    yield recorder
    recorder.close()


def gather(recorder, engine):
    return load_session(engine, find_session(engine, "last"), recorder.files)


def shown_text(page):
    body = re.sub(r"(?s)<(style|script|svg).*?</\1>", "", page)
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


def test_the_page_shows_what_was_kept_asked_and_answered_and_the_delays(recorder, db):
    record_session(recorder)

    report = gather(recorder, db)
    shown = shown_text(render_session(report))

    assert "Ended: The client was done." in shown
    assert "frames kept 6 of 9 received not kept 3 2 similar, 1 too late" in shown
    assert "answers 3 of 4 questions" in shown
    assert "first token, ms 20.0 median; P95 20.0, longest 20.0" in shown
    assert "1.5 s · Is it dark? no yes 25.0% no 75.0%" in shown
    assert (
        "Asked for: window of 5 s · sink of 1 frame · frames of a similarity above 0.95 dropped · temperature 0 · "
        "top-p 1 · at most 256 tokens per answer"
    ) in shown
    assert "3 frames , the last at 9.0 s" in shown.replace("frames,", "frames ,")
    assert "the last at 1.4 s, 4.5 s of audio" in shown
    assert "No answer engine_lost The engine was lost." in shown
    assert [[time_s for time_s, _ in query["frames"]] for query in report["queries"]] == [
        [0.04, 0.5, 1.371],
        [0.04, 0.5, 1.371],
        [0.04, 2.5, 9.0],
        [0.04, 2.5, 9.0],
    ]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"window": 8, "num_frames": 4}, "window of 8 frames · at most 4 frames of it shown"),
        ({"max_frames": 1, "enable_frame_filter": False}, "at most 1 frame seen · similar frames kept"),
        ({"system_prompt": "Be brief.", "sampling": {"seed": 0}}, "seed 0 · system prompt “Be brief.”"),
    ],
)
def test_the_page_says_how_the_session_was_configured(recorder, db, config, expected):
    record_session(recorder)
    report = gather(recorder, db)

    page = render_session(report | {"session": {**report["session"], "config": config}})

    assert expected in shown_text(page)


def test_only_the_first_questions_of_a_long_session_are_shown_and_have_frames(recorder, db, monkeypatch):
    monkeypatch.setattr("tasks.report.live.MAX_QUERIES", 3)
    monkeypatch.setattr("tasks.report.live._MAX_FRAMES", 4)
    monkeypatch.setattr("tasks.report.live._FRAMES_EACH", 2)
    monkeypatch.setattr("tasks.report.live._MAX_TICKS", 5)
    record_session(recorder)

    report = gather(recorder, db)

    assert [[time_s for time_s, _ in query["frames"]] for query in report["queries"]] == [[0.04, 1.371]] * 2 + [[]]
    assert report["kept_s"] == (0.04, 2.0)  # the first of each file
    assert (report["ends_s"], report["asked"]) == (9.1, 4)
    assert "3 of 4 questions are in this report, 2 with their frames: the first ones." in render_session(report)


def test_delays_are_those_of_the_answers(recorder, db):
    record = open_session(recorder)
    for number in range(21):
        record.answer(answered(query=number, first_token_ms=float(number), total_ms=100.0 + number))
    record.answer(answered(query=21, answer=None, choices=None, probabilities=None, total_ms=999.0, code="engine_lost"))

    report = gather(recorder, db)

    assert report["first_token"] == {"p50": 10, "p95": 19, "longest": 20}
    assert report["total"] == {"p50": 110, "p95": 119, "longest": 120}


def test_answers_of_an_offline_run_stand_beside_those_of_the_session(recorder, db):
    session_id = record_session(recorder)
    with db.begin() as connection:
        connection.execute(text(_RESULT), {"dataset": f"live-{session_id}"})

    assert "Replayed: large no (margin 0.800)" in shown_text(render_session(gather(recorder, db)))


def test_a_page_without_frames_says_why(recorder, db, objects):
    record_session(recorder)
    for info in objects.list(f"{recorder.files.root_uri}/live"):
        objects.remove(info.uri)

    page = render_session(gather(recorder, db))

    assert "000000.arrow on the store is gone" in page
    assert "<img" not in page


def test_hostile_texts_are_shown_as_they_are_and_many_questions_fit(recorder, db):
    record = open_session(recorder)
    record.answer(answered(question=HOSTILE, answer=HOSTILE, choices=None, probabilities=None))
    report = gather(recorder, db)

    page = render_session(report | {"queries": report["queries"] * 5_000})

    assert HOSTILE not in page
    assert len(page.encode()) < MAX_BYTES
    assert "Still open." in page


_RESULT = """
WITH spec AS (INSERT INTO reelabel.spec (spec_id, body) VALUES ('s', '{"model": {"name": "large"}}')),
run AS (
    INSERT INTO reelabel.run (run_id, dataset, spec_id, manifest_uri, kind, state, jobs_total, jobs_skipped, host)
    VALUES ('00000000-0000-0000-0000-000000000001', :dataset, 's', 'm', 'classify', 'done', 1, 0, 'h')
),
run_spec AS (INSERT INTO reelabel.run_spec VALUES ('00000000-0000-0000-0000-000000000001', 's'))
INSERT INTO reelabel.result (
    dataset, job_id, spec_id, job_digest, source_fingerprint, label, choice_index, probabilities, margin, entropy_nats,
    frames_used, prompt_tokens, cached_tokens, fetch_ms, decode_ms, cache_write_ms, cache_read_ms, preprocess_ms,
    inference_ms, embed_ms, permutations, run_id, shard_index, host
) VALUES (
    :dataset, 'query-0', 's', 'd', 'f', 'no', 1, '{0.1, 0.9}', 0.8, 0.3, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1,
    '00000000-0000-0000-0000-000000000001', 0, 'h'
)
"""
