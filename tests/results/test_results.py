import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import log
from uuid import UUID, uuid4

import polars as pl
import pytest
from psycopg.errors import ForeignKeyViolation
from sqlalchemy import text

from infra.database.connect import connected
from infra.settings import DatabaseSettings
from reelabel.errors import ConfigurationError, TransientError, VideoUnavailableError
from sql.queries import read_query
from tasks.domain import Medium, ModelIdentity, OrderBias, RunSpec, Stage, Words
from tasks.domain.job import join_fingerprints
from tasks.manifest.digests import jobs_to_rows
from tasks.results import read
from tasks.results.audit import audit_jobs
from tasks.results.pending import changed_jobs, count_reused_ids, pending_jobs, refresh_annotations
from tasks.results.read import has_words, read_failures, read_outcomes, read_results
from tasks.results.runs import cancel_run, close_run, find_run, list_running, open_run, short_ids
from tasks.results.summary import summarize_results, warn_of_labels
from tasks.results.write import ShardWriter
from tests.job_table import job_table
from tests.results.rows import FACTS, SCOPE, SPEC, failure, ids_of, job, result


def test_a_label_is_written_with_everything_about_it(db, run):
    ShardWriter(db, run).write(results=[result(job("a"))], failures=[])

    row = read_results(db, SCOPE).row(0, named=True)
    assert (row["label"], row["choice_index"], row["probabilities"], row["margin"]) == ("no", 1, [0.25, 0.75], 0.5)
    assert row["entropy_nats"] == pytest.approx(-0.25 * log(0.25) - 0.75 * log(0.75))
    assert (row["keyframes_in_file"], row["frames_used"], row["prompt_tokens"], row["cached_tokens"]) == (5, 4, 90, 64)
    assert row["run_id"] == str(run.run_id)


def test_a_row_with_a_spec_that_its_run_never_had_is_refused(db, run):
    other = RunSpec(model=ModelIdentity(name="another"))
    open_run(db, run_id=uuid4(), spec=other, facts=FACTS)

    for run_id, spec_id in [(run.run_id, other.spec_id), (uuid4(), SPEC.spec_id)]:
        writer = ShardWriter(db, replace(run, run_id=run_id, spec_id=spec_id))
        with pytest.raises(ForeignKeyViolation, match="result_run_id_spec_id_fkey"):
            writer.write(results=[result(job("a"))], failures=[])


def test_earlier_rows_stay_if_a_run_is_restarted_under_another_spec(db, run):
    ShardWriter(db, run).write(results=[result(job("a"))], failures=[])
    other = RunSpec(model=ModelIdentity(name="another"))

    open_run(db, run_id=run.run_id, spec=other, facts=FACTS)
    ShardWriter(db, replace(run, spec_id=other.spec_id)).write(results=[result(job("a"))], failures=[])

    for spec in (SPEC, other):
        assert read_results(db, replace(SCOPE, spec_id=spec.spec_id))["run_id"].to_list() == [str(run.run_id)]


def test_rows_under_another_spec_count_for_nothing(db, run):
    jobs, other = [job(name) for name in "abcde"], RunSpec(model=ModelIdentity(name="another"))
    open_run(db, run_id=run.run_id, spec=other, facts=FACTS)
    labelled, failed = [result(jobs[number]) for number in (0, 2, 3)], [failure(jobs[1]), failure(jobs[4])]
    ShardWriter(db, replace(run, spec_id=other.spec_id)).write(results=labelled, failures=failed)

    for _ in range(2):
        ShardWriter(db, run).write(results=[result(jobs[2])], failures=[failure(jobs[0]), failure(jobs[1])])

    failed = read_failures(db, SCOPE)
    assert failed.select("job_id", "attempts").rows() == [("a", 2), ("b", 2)]
    theirs = replace(SCOPE, spec_id=other.spec_id)
    rows = [read(db, theirs)["job_id"].to_list() for read in (read_results, read_failures)]
    assert rows == [["a", "c", "d"], ["b", "e"]]
    now = {"a.mp4": None, "b.mp4": None, "c.mp4": "e1", "d.mp4": "e1", "e.mp4": None}
    assert pending_ids(db, jobs, now) == ["d", "e"]
    report = audit_jobs(db, SCOPE, jobs=jobs)
    assert (report.labels, report.failures, report.missing, report.orphaned) == (1, 2, 2, 0)


def test_the_effect_of_the_order_of_choices_is_stored_with_the_label(db, run):
    order = OrderBias(permutations=2, agreement=0.5, spread=0.25, same_position=True)
    ShardWriter(db, run).write(results=[result(job("a")), result(job("b"), order=order)], failures=[])

    rows = read_results(db, SCOPE)

    columns = rows.select("permutations", "order_agreement", "order_spread", "same_position")
    assert columns.rows() == [(1, None, None, None), (2, 0.5, 0.25, True)]


def test_labels_whose_choices_the_model_did_not_mean_are_counted(db, run):
    meant, unmeant = (replace(result(job(name)).answer, choice_mass=mass) for name, mass in (("a", 0.9), ("b", 1e-9)))
    labels = [replace(result(job("a")), answer=meant), replace(result(job("b")), answer=unmeant), result(job("c"))]
    ShardWriter(db, run).write(results=labels, failures=[])

    [warning] = warn_of_labels(db, run_id=run.run_id)
    assert warning.startswith("In 1 label ")
    jobs = [job(name) for name in "abc"]
    assert summarize_results(db, SCOPE, jobs=jobs).low_mass == 1
    report = audit_jobs(db, SCOPE, jobs=jobs)
    assert report.low_mass == 1
    assert str(report) == "Reconciled: 3 jobs = 3 labels (1 with choice_mass below 0.05) + 0 failures."


def test_times_are_utc_whatever_the_database_s_time_zone(db, run):
    with db.begin() as connection:
        connection.execute(text(f"ALTER DATABASE {db.url.database} SET timezone = 'Asia/Tokyo'"))
    db.dispose()
    ShardWriter(db, run).write(results=[result(job("a"))], failures=[])

    created = read_results(db, SCOPE)["created_at"]

    assert created.dtype == pl.Datetime("us", "UTC")
    with db.connect() as connection:
        assert abs((connection.scalar(text("SELECT now()")) - created[0]).total_seconds()) < 60


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("DateStyle", "'German'"),
        ("DateStyle", "'SQL, DMY'"),
        ("client_encoding", "'LATIN1'"),
    ],
)
def test_what_a_database_sets_otherwise_changes_no_row(db, run, setting, value):
    with db.begin() as connection:
        connection.execute(text(f"ALTER DATABASE {db.url.database} SET {setting} = {value}"))
    db.dispose()
    ShardWriter(db, run).write(results=[result(job("日本"))], failures=[failure(job("b"))])
    ShardWriter(db, run).write(results=[], failures=[failure(job("日本"))])

    rows = read_results(db, SCOPE)

    assert rows["job_id"].to_list() == ["日本"]
    with db.connect() as connection:
        assert abs((connection.scalar(text("SELECT now()")) - rows["created_at"][0]).total_seconds()) < 60


def test_a_job_has_one_row_whatever_isolation_is_the_default_of_the_database(db, run):
    with db.begin() as connection:
        connection.execute(
            text(f"ALTER DATABASE {db.url.database} SET default_transaction_isolation = 'repeatable read'")
        )
    db.dispose()
    key = {"dataset": "d", "spec_id": SPEC.spec_id}
    lock = text(read_query("lock_jobs"))
    waits = text(
        "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database "
        "WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()"
    )
    with ThreadPoolExecutor(2) as threads:
        with db.begin() as connection:
            connection.execute(lock, key | {"job_ids": ["a"]})
            label = threads.submit(ShardWriter(db, run).write, results=[result(job("a"))], failures=[])
            failed = threads.submit(ShardWriter(db, run).write, results=[], failures=[failure(job("a"))])
            url = db.url.render_as_string(hide_password=False)
            with connected(DatabaseSettings(url=url)) as another, another.connect() as other:
                while other.scalar(waits) < 2:
                    other.rollback()
        for each in (label, failed):
            each.result()

    assert (len(read_results(db, SCOPE)), len(read_failures(db, SCOPE))) == (1, 0)


@pytest.mark.parametrize("limit", ["statement_timeout", "transaction_timeout"])
def test_an_audit_takes_as_long_as_it_needs_whatever_limit_a_login_has(db, limit):
    with db.begin() as connection:
        connection.execute(text(f"ALTER DATABASE {db.url.database} SET {limit} = '50ms'"))
    db.dispose()

    def slowly():
        for name in "ab":
            time.sleep(0.2)
            yield jobs_to_rows([job(name)])

    assert audit_jobs(db, SCOPE, jobs=slowly()).missing == 2


def test_a_login_whose_transactions_begin_read_only_can_compare_a_manifest_and_changes_nothing(db, run):
    ShardWriter(db, run).write(results=[result(job("a"))], failures=[])
    url = db.url.update_query_dict({"options": "-c default_transaction_read_only=on"})
    with connected(DatabaseSettings(url=url.render_as_string(hide_password=False))) as reader:
        assert audit_jobs(reader, SCOPE, jobs=[job("a"), job("b")]).missing == 1
        with pytest.raises(TransientError, match="is read-only"):
            refresh_annotations(reader, SCOPE, jobs=job_table([job("a", task="colour")]))


def test_columns_have_the_same_types_with_rows_and_without(db, run):
    empty = read_results(db, SCOPE)
    ShardWriter(db, run).write(results=[result(job("a"))], failures=[])

    assert read_results(db, SCOPE).schema == empty.schema


def test_labels_and_failures_are_read_together_in_parts(db, run, monkeypatch):
    monkeypatch.setattr(read, "_ROWS_PER_PART", 2)
    ended = [result(job(name)) for name in "ace"], [failure(job(name)) for name in "bd"]
    ShardWriter(db, run).write(results=ended[0], failures=ended[1])

    first, *parts = read_outcomes(db, SCOPE)

    assert first.is_empty()
    assert [part["job_id"].to_list() for part in parts] == [["a", "b"], ["c", "d"], ["e"]]
    both = pl.concat([first, *parts])
    apart = [read_results(db, SCOPE), read_failures(db, SCOPE)]
    assert both.equals(pl.concat(apart, how="diagonal").sort("job_id"))


def test_columns_are_read_outcome_first_and_costs_last_whatever_their_order_on_disk(db):
    [columns] = (frame.columns for frame in read_outcomes(db, SCOPE))
    some = ["job_id", "label", "text", "margin", "probabilities", "frames_used", "decode_ms", "run_id"]

    assert [name for name in columns if name in some] == some


def test_a_message_with_a_nul_byte_is_kept_readable(db, run):
    ShardWriter(db, run).write(results=[], failures=[failure(job("a"), message="moov\0 not found")])

    assert read_failures(db, SCOPE)["message"].to_list() == ["moov\ufffd not found"]


def test_writing_again_replaces_and_counts_attempts(db, run):
    for _ in range(3):
        ShardWriter(db, run).write(results=[result(job("a"))], failures=[failure(job("b"))])

    assert len(read_results(db, SCOPE)) == 1
    assert read_failures(db, SCOPE)["attempts"].to_list() == [3]


def test_a_job_never_has_a_label_and_a_failure(db, run):
    ShardWriter(db, run).write(results=[], failures=[failure(job("a"))])
    ShardWriter(db, run).write(results=[result(job("a"))], failures=[])
    assert read_failures(db, SCOPE).is_empty()

    ShardWriter(db, run).write(results=[], failures=[failure(job("a", prompt="another?"))])
    assert read_results(db, SCOPE).is_empty()


@pytest.mark.parametrize("fingerprint", ["e1", None])
def test_a_failure_does_not_replace_a_valid_label(db, run, fingerprint):
    ShardWriter(db, run).write(results=[result(job("a"))], failures=[])

    failed = replace(failure(job("a")), source_fingerprint=fingerprint)
    ShardWriter(db, run).write(results=[], failures=[failed])

    assert read_results(db, SCOPE)["label"].to_list() == ["no"]
    assert read_failures(db, SCOPE).is_empty()


def test_a_failure_replaces_the_label_of_an_older_video(db, run):
    ShardWriter(db, run).write(results=[result(job("a"))], failures=[])

    failed = replace(failure(job("a")), source_fingerprint="e2")
    ShardWriter(db, run).write(results=[], failures=[failed])

    assert read_results(db, SCOPE).is_empty()


def test_a_job_never_has_a_label_and_a_failure_even_if_two_runs_race(db, run):
    jobs = [job(f"j{number}") for number in range(20)]

    def write(turn):
        ended = ([result(one) for one in jobs], []) if turn % 2 else ([], [failure(one) for one in jobs])
        ShardWriter(db, run).write(results=ended[0], failures=ended[1])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(12)))

    report = audit_jobs(db, SCOPE, jobs=jobs)
    assert report.is_reconciled
    assert report.doubled == 0


def test_only_unchanged_jobs_on_unchanged_videos_are_done(db, run):
    jobs = [job(name) for name in "abcdef"]
    ended = [result(one) for one in jobs[:3]] + [result(jobs[5])]
    ShardWriter(db, run).write(results=ended, failures=[])
    now = [jobs[0], replace(jobs[1], prompt="another?"), *jobs[2:]]
    fingerprints = {"a.mp4": "e1", "c.mp4": "e2", "f.mp4": None}

    assert pending_ids(db, now, fingerprints) == ["b", "c", "d", "e"]


def pending_ids(db, jobs, fingerprints, *, dataset="d", **options):
    def fingerprints_of(uris):
        assert [*uris] == sorted(uris)  # as stores list them
        return [fingerprints[uri] for uri in uris]

    pending = pending_jobs(
        db,
        replace(SCOPE, dataset=dataset),
        jobs=job_table(jobs),
        fingerprints_of=fingerprints_of,
        **options,
    )
    return ids_of(pending)


def test_a_failed_job_is_repeated_only_if_its_video_changes_or_on_request(db, run):
    jobs = [job(name) for name in "abcde"]
    gone, broken, mended = (
        replace(failure(one), source_fingerprint=mark) for one, mark in zip(jobs[:3], (None, "e1", "e1"), strict=True)
    )
    cached = replace(failure(jobs[3]), stage=Stage.CACHE, source_fingerprint="e1")
    busy = replace(failure(jobs[4], code=VideoUnavailableError.code), source_fingerprint="e1")
    ShardWriter(db, run).write(results=[], failures=[gone, broken, mended, cached, busy])
    fingerprints = {"a.mp4": None, "b.mp4": "e1", "c.mp4": "e2", "d.mp4": "e1", "e.mp4": "e1"}

    assert pending_ids(db, jobs, fingerprints) == ["c", "d", "e"]
    assert pending_ids(db, jobs, fingerprints, retry_failures=True) == ["a", "b", "c", "d", "e"]
    # A run that selects again does not repeat its own failures.
    assert pending_ids(db, jobs, fingerprints, run_id=run.run_id) == ["c"]
    assert pending_ids(db, jobs, fingerprints, run_id=uuid4()) == ["c", "d", "e"]


def test_a_video_that_was_removed_is_not_another_one(db, run):
    jobs = [job(name) for name in "abcd"]
    broken = [replace(failure(one), source_fingerprint="e1") for one in jobs[2:]]
    ShardWriter(db, run).write(results=[result(one) for one in jobs[:2]], failures=broken)
    now = {"a.mp4": None, "b.mp4": "e2", "c.mp4": None, "d.mp4": "e2"}

    assert ids_of(changed_of(db, jobs, now)) == ["b", "d"]
    assert pending_ids(db, jobs, now) == ["b", "c", "d"]


def test_a_job_on_several_videos_is_repeated_if_any_of_them_changes(db, run):
    media = [(Medium("video", "a.mp4"), Medium("image", f"{name}.png")) for name in "abcd"]
    jobs = [job(f"{number}", video_uri="a.mp4", media=shown) for number, shown in enumerate(media)]
    labelled = [result(one, fingerprint=join_fingerprints(["e1", "i1"])) for one in jobs[:3]]
    ShardWriter(db, run).write(results=labelled, failures=[failure(jobs[3])])
    now = {"a.mp4": "e1", "a.png": "i1", "b.png": "i2", "c.png": None, "d.png": None}

    assert pending_ids(db, jobs, now) == ["1"]  # a label outlives its image, and a failure lasts without one
    assert pending_ids(db, jobs, now | {"d.png": "i1"}) == ["1", "3"]
    assert pending_ids(db, jobs, now | {"a.mp4": "e2"}) == ["0", "1"]
    assert ids_of(changed_of(db, jobs, now | {"a.mp4": "e2"})) == ["0", "1"]


def changed_of(db, jobs, fingerprints):
    look_up = lambda uris: [fingerprints[uri] for uri in uris]  # noqa: E731
    return changed_jobs(db, SCOPE, jobs=job_table(jobs), fingerprints_of=look_up)


def test_ids_that_another_manifest_used_for_other_questions_are_counted(db, run):
    ShardWriter(db, run).write(results=[result(job("a")), result(job("b"))], failures=[])
    jobs = job_table([job("a"), job("b", prompt="another?"), job("c")])

    assert count_reused_ids(db, dataset="d", manifest_uri="other.parquet", jobs=jobs) == 1
    assert count_reused_ids(db, dataset="d", manifest_uri="m.parquet", jobs=jobs) == 0
    assert count_reused_ids(db, dataset="e", manifest_uri="other.parquet", jobs=jobs) == 0


def test_a_corrected_answer_updates_existing_rows(db, run):
    ShardWriter(db, run).write(results=[result(job("a", answer="yes"))], failures=[failure(job("b"))])

    now = [job("a", answer="no", task="t"), job("b", task="t")]
    refresh_annotations(db, SCOPE, jobs=job_table(now))

    row = read_results(db, SCOPE).row(0, named=True)
    assert (row["answer"], row["task"], row["subtask"]) == ("no", "t", None)
    assert read_failures(db, SCOPE)["task"].to_list() == ["t"]


def test_another_dataset_or_spec_has_results_of_its_own(db, run):
    ShardWriter(db, run).write(results=[result(job("a"))], failures=[])

    assert pending_ids(db, [job("a")], {"a.mp4": "e1"}, dataset="other") == ["a"]


def test_a_run_is_found_by_id_by_prefix_and_as_last(db, run):
    close_run(db, run.run_id, state="done", message="ok")

    for name in (str(run.run_id), str(run.run_id)[:8], str(run.run_id).upper(), "last"):
        assert find_run(db, name)["run_id"] == run.run_id
    assert find_run(db, "last")["ended_at"] is not None
    with pytest.raises(ConfigurationError, match="No runs match"):
        find_run(db, "ffffffff-no")
    with pytest.raises(ConfigurationError, match=f"use one of the latest: {run.run_id}"):
        find_run(db, "_")


def test_the_last_run_is_the_one_that_ended_last_while_another_is_in_progress(db, run):
    later = replace(run, run_id=uuid4())
    open_run(db, run_id=later.run_id, spec=SPEC, facts=FACTS)
    assert find_run(db, "last")["run_id"] == later.run_id  # none has ended
    close_run(db, run.run_id, state="done", message="ok")

    assert find_run(db, "last")["run_id"] == run.run_id
    assert [row["run_id"] for row in list_running(db)] == [later.run_id]
    cancel_run(db, later.run_id)
    assert find_run(db, "last")["run_id"] == later.run_id


def test_the_short_ids_of_runs_are_as_long_as_it_takes_to_tell_them_apart(db):
    together = [UUID(f"01990000-{part}-7000-8000-000000000000") for part in ("0001", "0012", "0013")]
    alone = UUID("ffffffff-0000-7000-8000-000000000000")
    for run_id in (*together, alone):
        open_run(db, run_id=run_id, spec=SPEC, facts=FACTS)

    shown = short_ids(db, [*together, alone])

    assert [shown[run_id] for run_id in (*together, alone)] == [
        "01990000-000",
        "01990000-0012",
        "01990000-0013",
        "ffffffff",
    ]
    assert all(find_run(db, text)["run_id"] == run_id for run_id, text in shown.items())


def test_a_run_starts_with_its_setup(db, run):
    open_run(db, run_id=UUID(int=1), spec=SPEC, facts=FACTS, setup_ms=60_000)

    assert (
        find_run(db, str(run.run_id))["started_at"] - find_run(db, str(UUID(int=1)))["started_at"]
    ).total_seconds() > 50


def test_a_database_without_runs_says_so(db):
    with pytest.raises(ConfigurationError, match="No run has been started yet"):
        find_run(db, "last")


def test_a_label_takes_at_most_400_bytes(db, run):
    of = job(
        "clips/2026-11-28/000000001-q1", task="action", choices=("picks it up", "puts it down", "throws it", "none")
    )
    fingerprint = "etag-9e107d9d372bb6826bd81d3542a419d6-1234567"
    ShardWriter(db, run).write([result(of, (0.1, 0.6, 0.2, 0.1), fingerprint=fingerprint, decode_method="index")], [])

    with db.connect() as connection:
        assert connection.execute(text("SELECT pg_column_size(r) FROM reelabel.result AS r")).scalar_one() <= 400


def test_a_dataset_has_words_if_any_answer_is_in_words_under_the_spec(db, run):
    words = Words(text="A cat.", finish_reason="stop", output_tokens=3)
    in_words = result(job("b", choices=()))
    in_words = replace(in_words, answer=replace(in_words.answer, choice_index=None, probabilities=(), words=words))
    other = replace(SCOPE, spec_id="0" * 16)
    writer = ShardWriter(db, run)

    writer.write([result(job("a"))], ())
    before = has_words(db, SCOPE)
    writer.write([in_words], ())

    assert (before, has_words(db, SCOPE), has_words(db, other)) == (False, True, False)
