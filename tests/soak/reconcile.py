"""Compares what a machine was asked for with what its database, its store and Prefect say."""

from collections import Counter

from tests.chaos.sessions.check import check
from tests.chaos.sessions.trial import SessionOutcome
from tests.wait import until

_END_S = 600
_ROWS = """
SELECT dataset, job_id, label FROM reelabel.result UNION ALL SELECT dataset, job_id, NULL FROM reelabel.failure
"""
_ENDED = {"COMPLETED", "SCHEDULED"}


def reconcile(machine, load):
    """Wait until all that was asked for has ended; return what was counted, and what is wrong."""
    sent, wrong = load.sent, list(load.sent.wrong)
    jobs = {(dataset, job): key for dataset, known in sent.jobs.items() for job, key in known.items()}
    try:
        until(lambda: _has_ended(machine, jobs), _END_S, every_s=5)
    except AssertionError:
        wrong.append(f"not all that was asked for has ended after {_END_S} s")
    rows = _rows(machine)
    found = Counter(row[:2] for row in rows)
    wrong += [f"{job} has {found[job]} rows" for job in jobs if found[job] != 1]
    wrong += [f"{job} was never asked for" for job in found if job not in jobs]
    for dataset, job, label in rows:
        expected = sent.labels.get(jobs.get((dataset, job)), label)
        if label is None or label != expected:
            wrong.append(f"job {job} of {dataset} has the label {label}, and a request got {expected}")
    runs = Counter(run["state_type"] for run in machine.flow_runs())
    if runs.keys() - _ENDED:
        wrong.append(f"flow runs ended as {dict(runs)}")
    sessions = SessionOutcome(number=1, sessions=len(load.logs))
    check(machine, load.logs, sessions, echoes=False)
    counted = {
        "manifests that arrived": len(sent.jobs) - ("nightly" in sent.jobs),
        "jobs that arrived or were scheduled": len(jobs),
        "rows": len(rows),
        "flow runs that completed": runs["COMPLETED"],
        "jobs run again by backfills": sum(map(len, sent.backfilled.values())),
        "single requests": sent.statuses.total(),
        "labels that runs and requests share": len(set(sent.labels) & set(jobs.values())),
        "live sessions": len(load.logs),
        "live questions answered": sessions.answered,
        "live frames kept": sessions.kept,
    }
    return counted, wrong + sessions.wrong


def _rows(machine):
    with machine.connection() as connection:
        return connection.execute(_ROWS).fetchall()


def _has_ended(machine, jobs):
    """Return whether each job has a row, and no flow run is in progress."""
    states = {run["state_type"] for run in machine.flow_runs()}
    return not states & {"RUNNING", "PENDING"} and jobs.keys() <= {row[:2] for row in _rows(machine)}
