"""A service that is killed in the middle of a session: what the session leaves behind, once it is started again."""

import signal
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from infra.database.connect import connect
from tasks.database.live_tables import LIVE_FRAMES, LIVE_QUERY, LIVE_SESSION
from tasks.frame_cache.sealed_files import SealedFiles
from tasks.live.record.frame_part import read_part
from tasks.live.record.saved import LOST_AFTER_S
from tests.command_line import reelabel
from tests.flows.serve.live.client import TOKEN, Client, send_frames
from tests.flows.serve.served import serving
from tests.wait import until

pytestmark = pytest.mark.system
CHOICES = ["red", "green"]


def test_a_killed_service_leaves_what_it_acknowledged_and_refuses_to_resume(own_environment, own_services):
    environment = own_environment | {"REELABEL_SERVE_LOAD": '["live"]', "REELABEL_SERVE_TOKEN": TOKEN}
    database = connect(own_services.database)

    def rows(table):
        with database.connect() as connection:
            return connection.execute(select(table)).mappings().all()

    with serving(environment) as served:
        client = Client(served.url, {})
        send_frames(client, [0, 120])
        done = client.ask(choices=CHOICES)
        until(lambda: sum(part["frames"] for part in rows(LIVE_FRAMES)) == 2)  # written every ten seconds
        assert served.end(signal.SIGKILL) == -signal.SIGKILL
    session_id, token = client.created["session_id"], client.created["resume_token"]
    with serving(environment) as served, Client(served.url) as again:
        again.send({"type": "session.resume", "session_id": session_id, "resume_token": token, "last_seq": done["seq"]})
        refused = again.last("error")
        assert (refused["code"], refused["is_fatal"]) == ("resume_refused", True)

    [query] = rows(LIVE_QUERY)
    assert (str(query["session_id"]), query["answer"], query["frames"]) == (session_id, done["text"], [0, 1])
    files = [read_part(SealedFiles.of(own_services.store), part["key"]) for part in rows(LIVE_FRAMES)]
    assert [time_s for file in files for time_s in file.time_s] == [0, 1]
    with database.begin() as connection:  # its heartbeat has been missing for long enough
        connection.execute(
            update(LIVE_SESSION).values(seen_at=LIVE_SESSION.c.seen_at - timedelta(seconds=LOST_AFTER_S))
        )
    database.dispose()
    shown = reelabel(own_environment, "status")
    assert f"reelabel report --session {session_id[:8]}" in shown.stdout
