from dataclasses import replace

import polars as pl

from tasks.evaluation.compare import CandidateResults, compare_candidates
from tasks.evaluation.scores import Cost
from tasks.report.run import render_run, select_trade_off
from tests.report.rows import report

SUBTASKS = [f"subtask {letter}" for letter in "abcdefghijklmn"]


def evaluation():
    """Keyframes beside a native sampler that is always right: wrong on the first subtasks, right on the others."""
    jobs = pl.DataFrame(
        [
            {"job_id": f"{subtask}-{at}", "answer": "yes", "task": "motion", "subtask": subtask}
            for subtask in SUBTASKS
            for at in range(4)
        ]
    )
    native = jobs.select("job_id", label=pl.lit("yes"), probabilities=[0.9, 0.1], choice_mass=0.9)
    wrong = pl.col("job_id").str.contains(r"subtask [ab]-")
    keyframes = native.with_columns(label=pl.when(wrong).then(pl.lit("no")).otherwise("label"))
    results = [
        CandidateResults(name="native", spec_id="f" * 16, model="m", sampling={}, labels=native, cost=_cost(2.0)),
        CandidateResults(
            name="keyframes:16", spec_id="5" * 16, model="m", sampling={}, labels=keyframes, cost=_cost(9.5)
        ),
    ]
    return compare_candidates(jobs, results, baseline="native", dataset="clips")


def _cost(jobs_per_s):
    return Cost(wall_s=1.0, jobs_per_s=jobs_per_s, decode_s=3.0, frames_decoded=120)


def test_subtasks_are_shown_from_the_worst_to_the_best():
    trade = select_trade_off(evaluation(), "5" * 16)

    assert trade["candidate"].name == "keyframes:16"
    assert [group.subtask for group in trade["worst"][:2]] == ["subtask a", "subtask b"]
    assert (len(trade["worst"]), len(trade["best"])) == (6, 6)
    assert len({group.subtask for group in trade["worst"] + trade["best"]}) == 12


def test_a_spec_that_was_not_evaluated_shows_the_first_candidate():
    assert select_trade_off(evaluation(), "another")["candidate"].name == "keyframes:16"


def test_a_page_shows_the_trade_off_in_numbers():
    page = render_run(report(trade=select_trade_off(evaluation(), "5" * 16)))

    assert "56 jobs with a known answer, compared with <strong>native</strong>" in page
    assert "85.7%" in page
    assert "-14.3" in page
    assert "keyframes:16 by subtask: the worst and the best" in page


def test_a_candidate_without_a_label_is_not_shown_as_the_baseline():
    compared = evaluation()
    [native, keyframes] = compared.specs
    failed = replace(keyframes, accuracy=None, calibration_error=None, difference=None)

    page = render_run(report(trade=select_trade_off(replace(compared, specs=(native, failed)), "5" * 16)))

    assert page.count(">baseline</td>") == 1


def test_a_page_never_shows_p_as_zero():
    compared = evaluation()
    [native, keyframes] = compared.specs
    certain = replace(keyframes, difference=replace(keyframes.difference, p_holm=1e-9))

    page = render_run(report(trade=select_trade_off(replace(compared, specs=(native, certain)), "5" * 16)))

    assert "&lt;0.001" in page
    assert ">0.000<" not in page


def test_a_page_shows_subtasks_from_the_worst_to_the_best():
    page = render_run(report(trade=select_trade_off(evaluation(), "5" * 16)))

    rows = page.partition('aria-label="Subtasks"')[2].partition("</table>")[0]
    assert rows.index("subtask a") < rows.index("subtask b") < rows.index("subtask n")
    assert rows.count("-100.0") == 4  # the difference of both, and one end of their intervals
