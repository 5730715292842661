from datetime import timedelta
from uuid import uuid4

from sqlalchemy import select, text

from tasks.database.live_tables import LIVE_FRAMES, LIVE_QUERY, LIVE_SESSION
from tasks.live.record.replay import write_jobs
from tasks.live.record.saved import find_session, remove_old_sessions
from tests.live.record.recorded import record_session


def test_old_sessions_go_with_their_queries_and_files_and_nothing_else(recorder, db, objects):
    old, new = record_session(recorder), record_session(recorder)
    write_jobs(find_session(db, str(old)), recorder.files)
    with db.begin() as connection:
        connection.execute(
            text("UPDATE reelabel.live_session SET seen_at = now() - interval '8 days' WHERE session_id = :old"),
            {"old": old},
        )
    forgotten = f"{recorder.files.root_uri}/live/{uuid4()}/000000.arrow"
    objects.write_new(forgotten, b"its session has no row, perhaps not yet")
    mine = f"{recorder.files.root_uri}/live/{old}/notes.txt"
    objects.write_new(mine, b"the user's own")

    def remove(**options):
        return remove_old_sessions(db, objects, root_uri=recorder.files.root_uri, age=timedelta(days=7), **options)

    assert remove(dry_run=True) == (1, 5)
    assert remove() == (1, 5)
    assert remove() == (0, 0)

    with db.connect() as connection:
        for table in (LIVE_SESSION, LIVE_QUERY, LIVE_FRAMES):
            assert set(connection.execute(select(table.c.session_id)).scalars()) == {new}, table.name
    left = sorted(info.uri for info in objects.list(f"{recorder.files.root_uri}/live"))
    kept = [f"{recorder.files.root_uri}/live/{new}/00000{part}.arrow" for part in (0, 1)]
    assert left == sorted([mine, forgotten, *kept])

    assert remove_old_sessions(db, objects, root_uri=recorder.files.root_uri, age=timedelta(days=-1)) == (1, 3)
    assert [info.uri for info in objects.list(f"{recorder.files.root_uri}/live")] == [mine]
