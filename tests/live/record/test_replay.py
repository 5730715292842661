import io

import polars as pl
import pytest
from sqlalchemy import text

from reelabel.errors import ConfigurationError
from reelabel.extract import extract_local
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from tasks.live.record.frame_part import KeptFrame
from tasks.live.record.replay import encode_footage, write_jobs
from tasks.live.record.saved import SessionFrames, find_session
from tests.live.record.recorded import SIZE_PX, TIMES_S, answered, image, open_session, record_session


def jobs_of(objects, uri):
    return pl.read_parquet(io.BytesIO(objects.read(uri))).to_dicts()


@pytest.mark.parametrize("sampler", ["keyframes", "uniform"])
def test_a_query_asked_again_shows_exactly_the_frames_that_it_saw(recorder, db, objects, tmp_path, sampler):
    record_session(recorder)

    written = write_jobs(find_session(db, "last"), recorder.files)

    first, third, failed = jobs_of(objects, written.manifest_uri)
    assert failed["video_uri"] == third["video_uri"]  # a question without an answer may get one now
    assert (first["job_id"], first["prompt"], first["choices"]) == ("query-0", "Is it dark?", ["yes", "no"])
    assert str(written) == ("3 questions of the session to replay. 1 question left out: it has no choices.")
    seen = {"query-0": [0, 40, 80], "query-2": [0, 160, 200]}
    times_s = {"query-0": [0.04, 0.5, 1.371], "query-2": [0.04, 2.5, 9.0]}
    for job in (first, third):
        video = tmp_path / "seen.mkv"
        video.write_bytes(objects.read(job["video_uri"]))
        frames = extract_local(video, sampling=Sampling(sampler=sampler, num_frames=8), limits=Limits())
        assert frames.unique.shape == (3, *image(0).shape)
        assert [sorted(set(each.ravel().tolist())) for each in frames.unique] == [
            [value] for value in seen[job["job_id"]]
        ]
        assert frames.selection.time_s.tolist() == times_s[job["job_id"]]


def test_stored_queries_and_frame_files_are_in_order_however_their_rows_lie(recorder, db):
    record_session(recorder)
    with db.begin() as connection:  # an updated row lies behind the others, and few rows are read as they lie
        connection.execute(text("UPDATE reelabel.live_query SET question = 'Is it dark at all?' WHERE query = 0"))
        connection.execute(text("UPDATE reelabel.live_frames SET bytes = bytes + 1 WHERE part = 0"))
        connection.execute(text("ANALYZE reelabel.live_query, reelabel.live_frames"))

    session = find_session(db, "last")

    assert [each["query"] for each in session.queries] == [0, 1, 2, 3]
    assert [each["part"] for each in session.parts] == [0, 1]


def test_frames_that_are_hours_apart_are_all_shown(tmp_path):
    """As of a camera at night; by the frame rate, models with a sampler of their own decide how many they see."""
    frames = [KeptFrame(number, number * 7200.0, image(number * 10)) for number in range(12)]
    (tmp_path / "night.mkv").write_bytes(encode_footage(frames))

    found = extract_local(tmp_path / "night.mkv", sampling=Sampling(sampler="qwen2_vl"), limits=Limits())

    assert found.selection.time_s[found.shown].tolist() == [frame.time_s for frame in frames]


def test_asking_again_twice_writes_the_same_videos(recorder, db, objects):
    record_session(recorder)
    session = find_session(db, "last")
    before = jobs_of(objects, write_jobs(session, recorder.files).manifest_uri)
    videos = [before[number]["video_uri"] for number in (0, 1)]
    written = [objects.read(uri) for uri in videos]
    objects.remove(videos[0])
    objects.replace(videos[1], b"another video")

    after = jobs_of(objects, write_jobs(session, recorder.files).manifest_uri)

    assert after == before  # and so the labels of its jobs stay valid
    assert [objects.read(uri) for uri in videos] == written


def test_questions_that_cannot_be_asked_as_they_were_are_left_out_with_the_reason(recorder, db):
    record = open_session(recorder)
    for number, size in enumerate([(28, 28), *[SIZE_PX] * 4]):
        record.keep(number=number, time_s=float(number), image=image(number, size))
    for query, (frames, audio_s) in enumerate(
        [((1, 2), 0), ((0, 1), 0), ((1, 1, 3), 0), ((1, 2, 9), 0), ((7,), 0), ((1, 2, 3), 0), ((), 0), ((1,), 1.5)]
    ):
        record.answer(answered(query=query, frames=frames, audio_s=audio_s))
    record.close(reason="done", frames_received=5)
    pixels = SIZE_PX[0] * SIZE_PX[1]

    found = write_jobs(find_session(db, "last"), recorder.files, max_pixels=pixels, max_video_pixels=2 * pixels)

    assert found.jobs == 1
    assert found.left_out == {
        "its frames have several sizes": 2,  # of the latter, one between its frames, which was evicted
        "some of its frames were never written to the store": 2,
        "its frames together have more than 3,136 pixels, which the model takes of a video": 1,
        "it saw no frame": 1,
        "it had audio in its prompt, which is not stored": 1,
    }
    with pytest.raises(ConfigurationError, match="frames have more than 1,567 pixels, to which they would be scaled"):
        write_jobs(find_session(db, "last"), recorder.files, max_pixels=pixels - 1)


def test_a_session_without_questions_to_ask_again_is_refused(recorder, db):
    session_id = record_session(recorder)
    with db.begin() as connection:
        connection.execute(text("DELETE FROM reelabel.live_query WHERE choices IS NOT NULL"))

    with pytest.raises(ConfigurationError, match=r"No question .* can be replayed: 1 question: it has no choices\."):
        write_jobs(find_session(db, str(session_id)), recorder.files)


def test_an_altered_frame_file_is_named_and_not_shown(recorder, db, objects):
    record_session(recorder)
    session = find_session(db, "last")
    uri = f"{recorder.files.root_uri}/{session.parts[0]['key']}"
    objects.replace(uri, objects.read(uri).replace(b"live:", b"lies:"))

    with pytest.raises(ConfigurationError, match=r"000000\.arrow on the store cannot be used: Signature mismatch"):
        write_jobs(session, recorder.files)
    objects.remove(uri)
    with pytest.raises(ConfigurationError, match=r"000000\.arrow on the store is gone"):
        write_jobs(session, recorder.files)


def test_sessions_are_found_by_a_prefix_or_as_the_last(recorder, db):
    with pytest.raises(ConfigurationError, match="No live session has been recorded yet"):
        find_session(db, "last")
    first, second = record_session(recorder), record_session(recorder)

    assert find_session(db, "last").row["session_id"] == second
    assert find_session(db, str(first)[:13]).row["session_id"] == first
    with pytest.raises(ConfigurationError, match=f"No live sessions match 'x'; use one of the latest: {second}"):
        find_session(db, "x")
    with pytest.raises(ConfigurationError, match="Several live sessions match ''; use a longer prefix"):
        find_session(db, "")


def test_a_session_is_open_until_its_server_has_said_nothing_for_a_minute(recorder, db):
    record_session(recorder)
    with db.begin() as connection:
        connection.execute(text("UPDATE reelabel.live_session SET ended_at = NULL, reason = NULL"))
    assert find_session(db, "last").row["state"] == "open"

    with db.begin() as connection:
        connection.execute(text("UPDATE reelabel.live_session SET seen_at = now() - interval '61 seconds'"))

    assert find_session(db, "last").row["state"] == "lost"


def test_the_frames_of_a_query_are_found_by_their_numbers(recorder, db):
    record_session(recorder)
    frames = SessionFrames(find_session(db, "last"), recorder.files)

    def seen(*numbers):
        return [frame.time_s for frame in frames.seen_by({"frames": list(numbers)})]

    assert seen(*range(6)) == list(TIMES_S)
    assert seen(2, 3) == [1.371, 2.0]
    assert seen(0, 0, 5) == [0.04, 9.0]
    assert seen() == []
    assert seen(4, 6) == [2.5], "the last one is lost"
