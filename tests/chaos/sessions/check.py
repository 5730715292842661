"""Checks that everything sent to clients of live sessions is in the database and on the store."""

import subprocess

import numpy as np
from psycopg.rows import dict_row

from tasks.frame_cache.sealed_files import SealedFiles
from tasks.live.record.frame_part import read_part
from tasks.live.record.saved import LOST_AFTER_S

_SHADE = 4  # by which JPEG may change a shade
_STATUS_S = 120
_SESSIONS = "SELECT * FROM reelabel.live_session WHERE session_id = ANY(%s)"
_QUERIES = "SELECT * FROM reelabel.live_query WHERE session_id = ANY(%s) ORDER BY query"
_PARTS = "SELECT * FROM reelabel.live_frames WHERE session_id = ANY(%s) ORDER BY part"
_AGE = "UPDATE reelabel.live_session SET seen_at = seen_at - make_interval(secs => %s) WHERE session_id = ANY(%s)"


def check(world, logs, outcome, *, echoes):
    """Compare the events of clients with the records.

    Args:
        world: The world.
        logs: What clients have sent and received, by session.
        outcome: Receives what was counted, and what is wrong. If the service was started again, sessions may have been
            lost with it.
        echoes: Whether an answer in words repeats the question.
    """
    ids = [each.session_id for each in logs]
    sessions, queries, parts = _rows(world, ids)
    for each in logs:
        row = sessions.get(each.session_id)
        if row is None:
            outcome.wrong.append(f"session {each.session_id} has no row")
            continue
        _check_events(each, outcome.wrong, echoes=echoes)
        _check_queries(each, queries.get(each.session_id, []), outcome)
        _check_frames(world, each, row, parts.get(each.session_id, []), outcome)
    lost = [row["session_id"] for row in sessions.values() if row["ended_at"] is None]
    outcome.lost = len(lost)
    if lost and not outcome.starts:
        outcome.wrong.append(f"{len(lost)} sessions have no end, though no service died")
    elif lost:
        _check_status(world, lost, outcome.wrong)


def _rows(world, ids):
    with world.connection() as connection:
        connection.row_factory = dict_row
        sessions = {str(row["session_id"]): row for row in connection.execute(_SESSIONS, [ids])}
        grouped = []
        for query in (_QUERIES, _PARTS):
            rows = {}
            for row in connection.execute(query, [ids]):
                rows.setdefault(str(row["session_id"]), []).append(row)
            grouped.append(rows)
    return sessions, *grouped


def _check_events(log, wrong, *, echoes):
    """No event is received twice or missed, and an answer consists of its deltas."""
    numbers = [event.seq for event in log.events]
    if numbers != list(range(2, 2 + len(numbers))):  # the first one is `session.created`
        wrong.append(f"session {log.session_id} received events {numbers}")
    if log.end == "done" and not log.is_closed:
        wrong.append(f"session {log.session_id} was not closed")
    deltas = {}
    for event in log.events:
        if event.type == "response.start":
            deltas[event.query] = ""
        elif event.type == "response.text.delta":
            deltas[event.query] += event.delta
        elif event.type == "response.done" and event.choice is None:
            echo = f"{event.frames_used} 0 {log.questions[event.query_id][0]}"
            if event.text != deltas[event.query] or (echoes and event.text != echo):
                wrong.append(f"session {log.session_id} was sent {deltas[event.query]!r}, and then {event.text!r}")


def _check_queries(log, rows, outcome):
    wrong, name = outcome.wrong, f"session {log.session_id}"
    by_number = {row["query"]: row for row in rows}
    questions = [row["question"] for row in rows]
    if len(set(questions)) < len(questions):
        wrong.append(f"{name} has a question's row twice")
    if set(questions) - {text for text, _ in log.questions.values()}:
        wrong.append(f"{name} has questions of another session")
    _check_answers(log, by_number, outcome)
    _check_refusals(log, by_number, outcome)


def _check_answers(log, by_number, outcome):
    wrong, name = outcome.wrong, f"session {log.session_id}"
    for done in log.of("response.done"):
        outcome.answered += 1
        text, choices = log.questions[done.query_id]
        row = by_number.get(done.query)
        if row is None:
            wrong.append(f"{name} answered query {done.query}, which has no row")
            continue
        sent = (text, done.text, done.frames_used, choices and list(choices), done.choice)
        stored = (row["question"], row["answer"], len(row["frames"]), row["choices"], row["choice_index"])
        if stored != sent or not np.allclose(row["probabilities"] or (), done.probabilities or ()):
            wrong.append(f"{name} answered {sent}, and its row says {stored}")
        if done.frames_used > sum(ack.seq < done.seq for ack in log.kept):
            wrong.append(f"{name} answered query {done.query} by frames that were not kept before")


def _check_refusals(log, by_number, outcome):
    wrong, name = outcome.wrong, f"session {log.session_id}"
    for error in log.of("error"):
        if error.code == "internal":
            wrong.append(f"{name} failed: {error.message}")
        elif error.query is not None and error.code == "unavailable":
            outcome.unavailable += 1
        elif error.query is not None and "cannot be recorded" not in error.message:
            row = by_number.get(error.query)
            if row is None or row["code"] != error.code:
                wrong.append(f"{name} refused query {error.query} ({error.code}), and its row is {row}")


def _check_frames(world, log, row, parts, outcome):
    """Each frame that was acknowledged as kept is in a frame file, or the session's row says that some are not."""
    store, wrong, name = world.settings.store, outcome.wrong, f"session {log.session_id}"
    stored = {}
    for part in parts:
        file = read_part(SealedFiles.of(store), part["key"])
        shades = file.images.reshape(len(file.images), -1).mean(axis=1)
        stored |= dict(zip(file.time_s.tolist(), shades.tolist(), strict=True))
        if len(file.images) < part["frames"]:
            wrong.append(f"{name} has a frame file of fewer frames than its row says")
    shown = {ack.time_s: log.shown[ack.frame_id] for ack in log.kept}
    if any(abs(stored[time_s] - shade) > _SHADE for time_s, shade in shown.items() if time_s in stored):
        wrong.append(f"{name} has frames of another session, or at other times")
    outcome.kept += len(shown)
    missing = len(shown.keys() - stored.keys())
    outcome.missing += missing
    if row["ended_at"] is None:
        return
    if missing > row["frames_lost"]:
        wrong.append(f"{name} lacks {missing} frames, and its row counts {row['frames_lost']} as lost")
    if log.is_closed and row["frames_kept"] != len(shown):
        wrong.append(f"{name} kept {len(shown)} frames, and its row says {row['frames_kept']}")


def _check_status(world, lost, wrong):
    """`reelabel status` lists what was lost with a service once its heartbeat has been missing long enough."""
    with world.connection() as connection:
        connection.execute(_AGE, [LOST_AFTER_S, lost])
    run = world.start_run(["status"], subprocess.PIPE, COLUMNS="200")
    shown = run.communicate(timeout=_STATUS_S)[0].decode()
    unlisted = [each for each in lost if f" report --session {str(each)[:8]}" not in shown]
    if unlisted:
        wrong.append(f"`reelabel status` does not name {len(unlisted)} of {len(lost)} lost sessions")
