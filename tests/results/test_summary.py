import json
import os
import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from uuid import uuid4

import pytest

from flows.cli.runs.summary import _accuracies, prefect_link
from infra.embedded.home import Home
from infra.settings import load_settings
from tasks.domain import OrderBias
from tasks.results.runs import open_run
from tasks.results.summary import OrderScore, Summary, TaskScore, summarize_results, warn_of_labels
from tasks.results.write import ShardWriter
from tests.results.rows import FACTS, SCOPE, SPEC, failure, job, result


def test_accuracy_counts_known_answers_by_task(db, run):
    jobs = [
        job("a", task="colour", answer="no"),
        job("b", task="colour", answer="yes"),
        job("c", task="colour"),
        job("d"),
    ]
    ShardWriter(db, run).write(results=[result(one) for one in (*jobs, job("foreign", answer="no"))], failures=[])

    summary = summarize_results(db, SCOPE, jobs=jobs)

    colour, rest = summary.tasks
    assert (colour.task, colour.labels, colour.known, colour.correct, colour.accuracy) == ("colour", 3, 2, 1, 0.5)
    assert (rest.task, rest.labels, rest.accuracy) == (None, 1, None)
    assert (summary.overall.labels, summary.overall.accuracy) == (4, 0.5)


def test_failures_are_counted_by_code_with_an_example(db, run):
    failures = [
        failure(job("z"), code="frame_file_damaged", message="Nothing at z.mp4."),
        failure(job("b"), message="No frame in b."),
        failure(job("a"), message="No frame in a."),
    ]
    ShardWriter(db, run).write(results=[], failures=failures)

    jobs = [one.job for one in failures]
    frequent, rare = summarize_results(db, SCOPE, jobs=jobs).failures

    assert (frequent.code, frequent.count, frequent.job_id, frequent.message) == ("no_frames", 2, "a", "No frame in a.")
    assert (rare.code, rare.count) == ("frame_file_damaged", 1)


def test_failures_of_the_run_are_distinguished_from_earlier_ones(db, run):
    jobs = [job(name, answer="no") for name in "abc"]
    ShardWriter(db, run).write(results=[result(jobs[2])], failures=[failure(jobs[0])])
    later = replace(run, run_id=uuid4())
    open_run(db, run_id=later.run_id, spec=SPEC, facts=FACTS | {"kind": "backfill"})
    ShardWriter(db, later).write(results=[], failures=[failure(jobs[1])])
    options = {"jobs": jobs, "run_id": later.run_id}

    own, earlier = summarize_results(db, SCOPE, **options).failures
    alone = summarize_results(db, SCOPE, **options, only_run=True)

    assert (own.job_id, own.count, own.since) == ("b", 1, None)
    assert (earlier.job_id, earlier.count) == ("a", 1)
    assert (earlier.since is not None, earlier.is_earlier) == (True, True)
    _, meanwhile = summarize_results(db, SCOPE, jobs=jobs, run_id=run.run_id).failures
    assert (meanwhile.job_id, meanwhile.is_earlier) == ("b", False)
    assert (alone.failures, alone.tasks) == ((own,), ())


@contextmanager
def fake_supervisor(folder, **state):
    """A supervisor of a folder that is asked for nothing."""

    def answer():
        with suppress(OSError):
            while True:
                with listening.accept()[0] as connection:
                    connection.sendall(json.dumps(state).encode() + b"\n")

    with Home(folder).listen() as listening:
        threading.Thread(target=answer, daemon=True).start()
        yield
        listening.shutdown(socket.SHUT_RDWR)


def test_a_link_is_printed_only_where_it_answers(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("REELABEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("REELABEL_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REELABEL_PREFECT_API_URL", "http://127.0.0.1:4200/api")
    settings, page = load_settings(), "http://127.0.0.1:4200/runs/flow-run/7"
    assert prefect_link(settings, 7) == page

    with fake_supervisor(tmp_path, services={"prefect": {"pid": 1, "port": 4200}}, kept=False):
        assert prefect_link(settings, 7) is None
    with fake_supervisor(tmp_path, services={"prefect": {"pid": 1, "port": 4200}}, kept=True):
        assert prefect_link(settings, 7) == page


def test_rows_for_an_earlier_question_are_not_counted(db, run):
    earlier = [
        result(job("a", answer="no"), order=OrderBias(permutations=2, agreement=1, spread=0, same_position=False))
    ]
    ShardWriter(db, run).write(results=earlier, failures=[failure(job("b"))])
    now = [job(name, prompt="And now?", answer="no") for name in "ab"]

    summary = summarize_results(db, SCOPE, jobs=now)

    assert (summary.overall.labels, summary.failures, summary.order) == (0, (), None)


def test_a_dataset_without_rows_has_no_scores(db):
    summary = summarize_results(db, replace(SCOPE, dataset="none"), jobs=[])

    assert (summary.tasks, summary.failures, summary.overall.accuracy) == ((), (), None)


def test_jobs_are_counted_by_what_decided_them(db, run):
    def ordered(name, agreement, *, same_position):
        bias = OrderBias(permutations=2, agreement=agreement, spread=0.5, same_position=same_position)
        return result(job(name), order=bias)

    labelled = [
        ordered("a", 1.0, same_position=False),
        ordered("b", 0.5, same_position=True),
        ordered("c", 0.5, same_position=False),
        result(job("asked once")),
    ]
    ShardWriter(db, run).write(results=labelled, failures=[])
    jobs = [one.job for one in labelled]

    summary = summarize_results(db, SCOPE, jobs=jobs)

    assert summary.order == OrderScore(jobs=3, content=1, position=1, spread=0.5)
    assert "of 3 jobs, content decided 33.3%, position 33.3%, neither alone 33.3%" in str(summary.order)
    assert summarize_results(db, SCOPE, jobs=jobs[3:]).order is None


def test_labels_on_files_that_are_cut_short_are_counted(db, run):
    whole, cut = result(job("a")), result(job("b"), decode_note="the file is cut short: 9 bytes")
    ShardWriter(db, run).write(results=[whole, cut], failures=[])

    summary = summarize_results(db, SCOPE, jobs=[whole.job, cut.job])

    assert (summary.cut_short, summary.cut_short_job_id) == (1, "b")


def test_accuracy_is_reported_by_task_and_overall():
    def accuracies(*scores):
        tasks = [TaskScore(task=task, labels=known, known=known, correct=correct) for task, known, correct in scores]
        return [*_accuracies(Summary(tasks=tuple(tasks), failures=()))]

    assert accuracies((None, 4, 1)) == [("all", "0.250 (1 of 4)")]
    assert accuracies(("colour", 4, 1), (None, 0, 0)) == [("colour", "0.250 (1 of 4)")]
    assert accuracies(("colour", 4, 3), (None, 2, 0)) == [
        ("colour", "0.750 (3 of 4)"),
        ("no task", "0.000 (0 of 2)"),
        ("all", "0.500 (3 of 6)"),
    ]
    assert accuracies((None, 0, 0)) == []


@pytest.mark.parametrize(("position", "warns"), [(4, False), (5, False), (6, True), (10, True)])
def test_labels_that_position_decides_are_warned_of(position, warns):
    score = OrderScore(jobs=10, content=0, position=position, spread=0.5)

    assert bool(score.warning) == warns
    if warns:
        assert f"Position decided {position * 10}% of the answers in several orders" in score.warning
        assert "never trained on other orders" in score.warning


def test_a_run_knows_what_decided_its_own_answers(db, run):
    bias = OrderBias(permutations=2, agreement=0.5, spread=0.5, same_position=True)
    ShardWriter(db, run).write(
        results=[replace(result(job("a")), answer=result(job("a"), order=bias).answer)], failures=[]
    )

    [warning] = warn_of_labels(db, run_id=run.run_id)
    assert warning.startswith("Position decided 100% of the answers")
    assert warn_of_labels(db, run_id=uuid4()) == []
