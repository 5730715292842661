"""`reelabel diff`: which labels a run changed."""

import json
import os
from dataclasses import replace
from uuid import uuid4

import pytest

from infra.embedded import export
from infra.settings import DatabaseSettings
from tasks.results.runs import open_run
from tasks.results.write import RunKey, ShardWriter
from tests.command_line import reelabel
from tests.results.rows import FACTS, SPEC, job, result


@pytest.fixture
def answer(db):
    """Have a run of a dataset answer each job by a label; return the run's id."""

    def answer(labels, dataset="d"):
        key = RunKey(run_id=uuid4(), dataset=dataset, spec_id=SPEC.spec_id, host="h")
        open_run(db, run_id=key.run_id, spec=SPEC, facts=FACTS | {"dataset": dataset})
        rows = []
        for name, (choice, probabilities) in labels.items():
            row = result(job(name, task="colour" if name < "c" else None), probabilities)
            rows.append(replace(row, answer=replace(row.answer, choice_index=choice)))
        ShardWriter(db, key).write(results=rows, failures=[])
        return str(key.run_id)

    return answer


@pytest.fixture
def diff(services, database_url):
    settings = services.model_copy(update={"database": DatabaseSettings(url=database_url)})
    return lambda *arguments: reelabel(os.environ | export(settings) | {"COLUMNS": "80"}, "diff", *arguments)


@pytest.fixture
def runs(answer):
    """Three jobs, of which the second run asks two again, and changes the label of one."""
    first = answer({"a": (1, (0.25, 0.75)), "b": (1, (0.25, 0.75)), "c": (1, (0.25, 0.75))})
    return first, answer({"a": (0, (0.9, 0.1)), "b": (1, (0.4, 0.6))})


def test_what_a_run_changed_is_told_by_task_and_by_job(diff, runs):
    first, second = runs

    replaced, named = diff(), diff("last", first[:8])

    assert (replaced.returncode, named.returncode) == (0, 0), replaced.stderr + named.stderr
    head, *lines = replaced.stdout.splitlines()
    assert head == (f"Run {second[:8]} of d against the answers that it replaced: 2 jobs compared, 1 label changed.")
    assert lines[:2] == ["colour: 1 of 2 labels changed; 1 margin up, 1 down, by +0.000 on average", "  no → yes: 1"]
    [row] = [line.split() for line in lines if "│ a " in line]
    assert [cell for cell in row if cell != "│"] == ["a", "no", "0.500", "yes", "0.800"]
    assert named.stdout.splitlines()[1:] == lines
    assert f"against run {first[:8]}: " in named.stdout


def test_programs_read_every_pair(diff, runs):  # noqa: ARG001 - what is compared
    shown = json.loads(diff("--json").stdout)

    pairs = {pair["job_id"]: (pair["label_before"], pair["label_after"]) for pair in shown["jobs"]}
    assert pairs == {"a": ("no", "yes"), "b": ("no", "no")}
    assert shown["other_questions"] == 0


def test_a_run_that_replaced_nothing_and_runs_that_cannot_be_compared(diff, answer):
    lone, other = answer({"a": (0, (0.9, 0.1))}), answer({"a": (0, (0.9, 0.1))}, dataset="e")

    nothing, mixed, unknown = diff(lone), diff(lone, other), diff("ffffffff")

    assert (nothing.returncode, mixed.returncode, unknown.returncode) == (0, 2, 2)
    assert nothing.stdout.endswith("against the answers that it replaced: 0 jobs compared, 0 labels changed.\n")
    assert f"Run {other} is of dataset e, not d; use two runs of one dataset." in mixed.stderr
    assert "ffffffff" in unknown.stderr
