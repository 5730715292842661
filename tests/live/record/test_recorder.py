import threading
from dataclasses import replace

import pytest
from sqlalchemy import delete, select

from infra.database.connect import Role, connect
from infra.errors import DatabaseUnavailableError
from infra.settings import DatabaseSettings
from reelabel.errors import FrameFileError, ReelabelError
from reelabel.seal import NO_KEY
from tasks.database.live_tables import LIVE_FRAMES, LIVE_QUERY, LIVE_SESSION
from tasks.live.record import recorder as recorder_module
from tasks.live.record.frame_part import read_part
from tests.live.record.recorded import answered, image, open_session, start
from tests.wait import until


def rows(db, table):
    with db.connect() as connection:
        return [dict(row) for row in connection.execute(select(table)).mappings()]


def test_what_a_client_asked_for_is_recorded_with_the_defaults_of_what_it_did_not(recorder, db):
    sampling = {"max_tokens": 7, "top_k": 5}
    record = open_session(recorder, window=8, sampling=sampling, persistent=True, unknown="x" * 99)

    [row] = rows(db, LIVE_SESSION)
    assert (row["session_id"], row["model"], row["versions"]) == (record.session_id, "tiny", {"av": "18"})
    assert row["config"] == {
        "modalities": ["text"],
        "window": 8,
        "sink": 4,
        "enable_frame_filter": True,
        "frame_filter_threshold": 0.95,
        "use_audio_in_video": True,
        "history": 8,
        "sampling": {"temperature": 0, "top_p": 1, "max_tokens": 7},
    }


def test_kept_frames_become_sealed_frame_files_with_their_true_times(recorder, db):
    record = open_session(recorder)
    for number, time_s in enumerate((0.04, 0.5, 1.37)):
        record.keep(number=number, time_s=time_s, image=image(number * 100))
    record.keep(
        number=3, time_s=2.0, image=image(9, size=(8, 8))
    )  # the camera was turned: another size, so another file

    record.close(reason="done", frames_received=9, frames_similar=4, frames_evicted=2)

    first, second = rows(db, LIVE_FRAMES)
    file = read_part(recorder.files, first["key"])
    assert file.images[:, 0, 0, 0].tolist() == [0, 100, 200]
    assert file.time_s.tolist() == [0.04, 0.5, 1.37]
    assert file.index.tolist() == [0, 1, 2]
    assert (first["first_s"], first["last_s"], first["frames"]) == (0.04, 1.37, 3)
    assert (second["part"], second["first_frame"], second["frames"]) == (1, 3, 1)
    [session] = rows(db, LIVE_SESSION)
    counts = {name: session[f"frames_{name}"] for name in ("received", "similar", "kept", "evicted", "lost")}
    assert counts == {"received": 9, "similar": 4, "kept": 4, "evicted": 2, "lost": 0}
    assert session["reason"] == "done"
    assert session["ended_at"] is not None


def test_more_frames_than_a_file_may_have_become_several(recorder, db, monkeypatch):
    monkeypatch.setattr(recorder_module, "_PART_BYTES", 2 * image(0).nbytes)
    record = open_session(recorder)
    with record._writing:  # as while the store is slow
        for number in range(5):
            record.keep(number=number, time_s=float(number), image=image(number))

    record.close(reason="done", frames_received=5)

    assert [(part["first_frame"], part["frames"]) for part in rows(db, LIVE_FRAMES)] == [(0, 2), (2, 2), (4, 1)]


def test_a_frame_file_of_another_session_or_key_is_not_used(recorder, db):
    for _ in range(2):
        record = open_session(recorder)
        record.keep(number=0, time_s=0.0, image=image(1))
        record.close(reason="done", frames_received=1)
    mine, other = (each["key"] for each in rows(db, LIVE_FRAMES))
    with pytest.raises(FrameFileError, match=r"another store\.mac_key"):
        read_part(replace(recorder.files, seal=NO_KEY), mine)

    uri = f"{recorder.files.root_uri}/{{}}"
    recorder.files.objects.replace(uri.format(mine), recorder.files.objects.read(uri.format(other)))

    with pytest.raises(FrameFileError, match="corrupted or moved"):
        read_part(recorder.files, mine)


def test_frames_are_written_in_the_background_and_the_session_is_marked_as_alive(db, objects, store_settings):
    recorder = start(db, objects, store_settings.uri, write_every_s=0.02)
    record = open_session(recorder)
    before = rows(db, LIVE_SESSION)[0]["seen_at"]
    record.keep(number=0, time_s=0.0, image=image(1))

    for _ in range(500):
        if rows(db, LIVE_FRAMES) and rows(db, LIVE_SESSION)[0]["seen_at"] > before:
            break
        threading.Event().wait(0.01)

    recorder.close()
    assert [each["frames"] for each in rows(db, LIVE_FRAMES)] == [1]
    assert rows(db, LIVE_SESSION)[0]["frames_kept"] == 1
    assert rows(db, LIVE_SESSION)[0]["ended_at"] is None


def test_a_session_that_cannot_be_written_does_not_stop_the_others(db, objects, store_settings):
    recorder = start(db, objects, store_settings.uri, write_every_s=0.02)
    gone, other = (open_session(recorder) for _ in range(2))
    with db.begin() as connection:
        connection.execute(delete(LIVE_SESSION).where(LIVE_SESSION.c.session_id == gone.session_id))
    gone.keep(number=0, time_s=0.0, image=image(1))
    for _ in range(20):
        threading.Event().wait(0.01)
    other.keep(number=0, time_s=0.0, image=image(1))

    for _ in range(500):
        if rows(db, LIVE_FRAMES):
            break
        threading.Event().wait(0.01)

    recorder.close()
    assert [each["session_id"] for each in rows(db, LIVE_FRAMES)] == [other.session_id]


def test_frames_wait_for_a_store_that_is_away_and_are_counted_as_lost_once_they_fill_the_memory(
    recorder, db, monkeypatch
):
    monkeypatch.setattr(recorder_module, "_WAITING_BYTES", 3 * image(0).nbytes)
    record = open_session(recorder)
    db.dispose()
    away = connect(DatabaseSettings(url="postgresql://u@127.0.0.1:1/none"))
    recorder.engine = away
    for number in range(5):
        record.keep(number=number, time_s=float(number), image=image(number))
    with pytest.raises(DatabaseUnavailableError):
        record.write()

    recorder.engine = db
    record.close(reason="done", frames_received=5)

    [part], [session] = rows(db, LIVE_FRAMES), rows(db, LIVE_SESSION)
    assert (part["frames"], session["frames_kept"], session["frames_lost"]) == (3, 5, 2)
    away.dispose()


def test_what_a_session_could_not_write_at_its_end_is_written_once_postgres_is_back(
    db, objects, store_settings, monkeypatch
):
    monkeypatch.setattr(recorder_module, "_WAITING_BYTES", image(0).nbytes)
    away = connect(DatabaseSettings(url="postgresql://u@127.0.0.1:1/none"))
    recorder = start(db, objects, store_settings.uri)
    records = [open_session(recorder) for _ in range(2)]
    recorder.engine = away
    for record in records:
        record.keep(number=0, time_s=0.0, image=image(1))
        with pytest.raises(DatabaseUnavailableError):
            record.close(reason="done", frames_received=1)
    recorder.engine = db

    recorder.close()

    kept, lost = ({row["session_id"]: row for row in rows(db, LIVE_SESSION)}[each.session_id] for each in records)
    assert (lost["reason"], lost["frames_kept"], lost["frames_lost"]) == ("done", 1, 1)  # too much waited
    assert (kept["reason"], kept["frames_kept"], kept["frames_lost"]) == ("done", 1, 0)
    assert kept["ended_at"] < kept["seen_at"]
    assert [part["session_id"] for part in rows(db, LIVE_FRAMES)] == [kept["session_id"]]
    away.dispose()


def test_a_session_whose_frames_cannot_be_written_ends_without_them_when_the_server_does(db, objects, store_settings):
    recorder = start(db, objects, store_settings.uri)
    record = open_session(recorder)
    record.keep(number=0, time_s=0.0, image=image(1))
    recorder.files = replace(recorder.files, root_uri="s3://there-is-no-such-bucket")
    with pytest.raises(ReelabelError):
        record.close(reason="done", frames_received=1)

    recorder.close()

    [session] = rows(db, LIVE_SESSION)
    assert (session["reason"], session["frames_kept"], session["frames_lost"]) == ("done", 1, 1)


def test_a_store_that_is_away_is_not_tried_again_with_each_frame(recorder, monkeypatch):
    attempts = []

    def fail(record):
        attempts.append(record)
        raise DatabaseUnavailableError("Postgres is unavailable.")

    monkeypatch.setattr(recorder_module, "_PART_BYTES", image(0).nbytes)
    record = open_session(recorder)
    with monkeypatch.context() as away:
        away.setattr(recorder_module.SessionRecord, "write", fail)
        for number in range(5):
            record.keep(number=number, time_s=float(number), image=image(number))
            until(lambda: attempts)
            threading.Event().wait(0.05)
    assert len(attempts) == 1


def test_frames_that_a_defect_keeps_from_being_written_are_lost_and_the_end_is_written(
    db, objects, store_settings, monkeypatch
):
    """Else they would fill the memory in which the frames of all sessions wait."""
    monkeypatch.setattr(recorder_module, "_WAITING_BYTES", image(0).nbytes)
    recorder = start(db, objects, store_settings.uri, write_every_s=0.02)
    faulty, other = (open_session(recorder) for _ in range(2))
    encode = recorder_module.encode_part

    def fail_one(frames, *, session_id, **options):
        if session_id == faulty.session_id:
            raise RuntimeError("a defect")
        return encode(frames, session_id=session_id, **options)

    monkeypatch.setattr(recorder_module, "encode_part", fail_one)
    faulty.keep(number=0, time_s=0.0, image=image(1))
    until(lambda: not faulty._waiting)
    other.keep(number=0, time_s=0.0, image=image(1))
    other.close(reason="done", frames_received=1)
    faulty.keep(number=1, time_s=1.0, image=image(1))
    with pytest.raises(RuntimeError):
        faulty.close(reason="done", frames_received=2)

    recorder.close()

    sessions = {row["session_id"]: row for row in rows(db, LIVE_SESSION)}
    assert [sessions[each.session_id]["frames_lost"] for each in (faulty, other)] == [2, 0]
    assert sessions[faulty.session_id]["reason"] == "done"


def test_a_query_is_a_row_when_answer_returns(recorder, db):
    record = open_session(recorder)

    record.answer(answered())
    record.answer(answered(total_ms=99.0))  # repeated after an error whose commit had succeeded
    record.answer(answered(query=1, question="What\0is it?", choices=None, answer="A ball.", probabilities=None))
    failed = {"choices": None, "answer": None, "probabilities": None, "first_token_ms": None}
    record.answer(answered(query=2, code="engine_lost", message="The engine is gone.", **failed))

    chosen, free, without = rows(db, LIVE_QUERY)
    assert (chosen["answer"], chosen["choice_index"], chosen["total_ms"]) == ("no", 1, 21.0)
    assert (chosen["choices"], chosen["probabilities"], chosen["margin"]) == (["yes", "no"], [0.25, 0.75], 0.5)
    assert (free["question"], free["answer"], free["margin"]) == ("What\ufffdis it?", "A ball.", None)
    assert (without["answer"], without["code"]) == (None, "engine_lost")


def test_the_writer_records_and_the_reader_reads(database, objects, store_settings):
    writer, reader = connect(database, Role.WRITER), connect(database, Role.READER)
    recorder = start(writer, objects, store_settings.uri)
    record = open_session(recorder)
    record.keep(number=0, time_s=0.0, image=image(1))
    record.answer(answered())
    record.close(reason="done", frames_received=1)

    assert [len(rows(reader, table)) for table in (LIVE_SESSION, LIVE_FRAMES, LIVE_QUERY)] == [1, 1, 1]

    recorder.close()
    writer.dispose()
    reader.dispose()
