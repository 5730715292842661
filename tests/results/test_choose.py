import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from pydantic import ValidationError
from sqlalchemy import inspect

from infra.database.connect import Role, connected
from reelabel.errors import ConfigurationError
from tasks.results.choose import choose_jobs
from tasks.results.runs import open_run
from tasks.results.selection import Selection
from tasks.results.write import ShardWriter
from tests.job_table import job_table
from tests.results.rows import FACTS, SCOPE, SPEC, failure, ids_of, job, result

JOBS = [
    job("sure", task="colour"),
    job("unsure", task="shape"),
    job("gone", task="colour"),
    job("odd", task="shape"),
    job("new", task="colour"),
    job("changed", prompt="Now?"),
]


@pytest.fixture
def reader(database):
    with connected(database, Role.READER) as reader:
        yield reader


@pytest.fixture
def choose(db, reader, run):
    """Select from two labels, two failures, a job without a row, and one whose question has changed.

    The job without a row has labels under another spec, and in another dataset.
    """
    labels = [
        result(JOBS[0], (0.05, 0.95)),
        result(JOBS[1], (0.45, 0.55), coverage="one_keyframe,long_gap"),
        result(job("changed")),
    ]
    failures = [failure(JOBS[2], code="video_missing"), failure(JOBS[3])]
    ShardWriter(db, run).write(results=labels, failures=failures)
    other = SPEC.model_copy(update={"permutations": 2})
    for elsewhere in (replace(run, run_id=uuid4(), spec_id=other.spec_id), replace(run, run_id=uuid4(), dataset="e")):
        spec = SPEC if elsewhere.spec_id == SPEC.spec_id else other
        open_run(db, run_id=elsewhere.run_id, spec=spec, facts=FACTS | {"dataset": elsewhere.dataset})
        ShardWriter(db, elsewhere).write(results=[result(JOBS[4], (0.45, 0.55))], failures=[])

    def chosen(named=(), run_id=None, timeout_s=20, **selection):
        options = {"named": named, "run_id": run_id, "timeout_s": timeout_s}
        return choose_jobs(reader, SCOPE, Selection(**selection), jobs=job_table(JOBS), **options)

    return chosen


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        pytest.param({"failed": True}, "gone odd", id="failed"),
        pytest.param({"code": "video_missing"}, "gone", id="failed with a code"),
        pytest.param({"missing": True}, "new changed", id="without a row for their question"),
        pytest.param({"label": "no"}, "sure unsure", id="with a label"),
        pytest.param({"margin_below": 0.5}, "unsure", id="with a small margin"),
        pytest.param({"margin_below": 0.55 - 0.45}, "", id="with exactly this margin"),
        pytest.param({"failed": True, "margin_below": 0.5}, "unsure gone odd", id="states add up"),
        pytest.param({"task": "colour"}, "sure gone new", id="filter by task only"),
        pytest.param({"failed": True, "task": "colour"}, "gone", id="filtered by task"),
        pytest.param({"named": ["sure", "odd"], "task": "shape"}, "odd", id="named ids filtered by task"),
        pytest.param({"named": ["sure"], "missing": True}, "sure new changed", id="ids and states add up"),
        pytest.param({"where": "label = 'no' -- and so on"}, "sure unsure", id="SQL with a comment"),
        pytest.param(
            {"where": "job_id LIKE '%s%' AND 'a:b' <> ':c'"}, "sure unsure", id="SQL with placeholders of drivers"
        ),
        pytest.param({"where": "coverage LIKE '%one_keyframe%'"}, "unsure", id="SQL on coverage"),
        pytest.param({"where": "state = 'missing' OR code = 'no_frames'"}, "odd new changed", id="SQL on any state"),
        pytest.param({"where": "margin > (SELECT avg(margin) FROM reelabel.result)"}, "sure", id="SQL on all rows"),
    ],
)
def test_jobs_are_selected_by_outcome_task_and_sql(choose, selection, expected):
    assert ids_of(choose(**selection).jobs) == expected.split()


def test_sql_may_use_any_column_of_job_state(choose, db):
    found = inspect(db).get_columns("job_state", schema="reelabel")
    columns = {each["name"] for each in found} - {"dataset", "spec_id", "job_digest", "source_fingerprint"}

    chosen = choose(where=" OR ".join(f"{name} IS NOT NULL" for name in sorted(columns)))

    assert ids_of(chosen.jobs) == [each.job_id for each in JOBS]


def test_only_rows_of_the_given_run_are_selected(choose, run):
    another = UUID(int=0)

    assert ids_of(choose(run_id=run.run_id, run="x").jobs) == ["sure", "unsure", "gone", "odd"]
    assert ids_of(choose(run_id=another, run="x").jobs) == []
    assert ids_of(choose(run_id=another, run="x", missing=True).jobs) == ["new", "changed"]


def test_jobs_are_selected_by_the_time_of_their_row(choose):
    now = datetime.now(UTC)

    assert ids_of(choose(since=now - timedelta(hours=1)).jobs) == ["sure", "unsure", "gone", "odd"]
    assert ids_of(choose(until=now - timedelta(hours=1)).jobs) == []
    for text in ("2026-11-01", "20261101", "2026-11-01T00:00:00Z", "2026-11-01T01:00+01:00"):
        assert Selection(since=text).since == datetime(2026, 11, 1, tzinfo=UTC)


@pytest.mark.parametrize("value", ["2026", "1793491200", 1793491200, "yesterday"])
def test_a_number_is_not_accepted_as_a_time(value):
    with pytest.raises(ValidationError, match="not a time; write 2026-11-01"):
        Selection(since=value)


def test_reasons_are_counted_and_unknown_ids_listed(choose):
    chosen = choose(named=["nobody", "sure", "sure", "no\0", "anybody"], failed=True, missing=True)

    assert chosen.reasons == {"missing": 2, "labelled": 1, "video_missing": 1, "no_frames": 1}
    assert chosen.unknown == ("anybody", "nobody", "no\ufffd")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("margin <<< 1", "operator does not exist: "),
        ("label = 'no", "unterminated quoted string at or near "),
        ("label", "argument of AND must be type boolean"),
        ("true); DELETE FROM reelabel.result; SELECT (true", "cannot insert multiple commands"),
        ("(WITH gone AS (DELETE FROM reelabel.result RETURNING 1) SELECT true)", "WITH clause containing a data-mod"),
        ("nextval('reelabel.s') > 0", 'relation "reelabel.s" does not exist'),
        ("lo_create(0) > 0", "cannot execute lo_create.* in a read-only transaction"),
        ("set_config('transaction_read_only', 'off', true) = 'off'", "transaction read-write mode must be set before"),
    ],
)
def test_rejected_sql_is_explained_and_changes_nothing(choose, where, message):
    with pytest.raises(ConfigurationError, match=f"Postgres cannot run the condition {re.escape(where)}: {message}"):
        choose(where=where)
    assert len(choose(label="no").jobs) == 2


def test_slow_sql_times_out(choose):
    with pytest.raises(ConfigurationError, match="the condition in SQL timed out; simplify it"):
        choose(where="pg_sleep(60) IS NOT NULL", timeout_s=0.2)


@pytest.mark.parametrize("login", [Role.WRITER, Role.OWNER])
def test_sql_is_refused_for_a_login_that_can_write(database, login):
    refused = pytest.raises(ConfigurationError, match="requires a read-only login, but this one can write")
    with connected(database, login) as db, refused:
        choose_jobs(db, SCOPE, Selection(where="true"), jobs=job_table(JOBS))


def test_unknown_fields_of_a_selection_are_refused():
    with pytest.raises(ValidationError, match="Extra inputs"):
        Selection(labels="no")
    assert Selection(limit=3, skip_unknown=True).is_empty


@pytest.mark.parametrize(
    "selection", [{"failed": True}, {"code": "x"}, {"margin_below": 0.5}, {"task": "a"}, {"where": "x"}]
)
def test_a_selection_that_filters_is_not_empty(selection):
    assert not Selection(**selection).is_empty
