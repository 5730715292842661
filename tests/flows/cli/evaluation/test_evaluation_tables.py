"""The tables of an evaluation fit a terminal of 80 columns, with every number whole."""

import polars as pl
import pytest

from flows.cli.evaluation import evaluate
from tasks.evaluation.compare import CandidateResults, compare_candidates
from tasks.evaluation.scores import Cost, format_p_value

NAMES = ("uniform:16", "keyframes:16", "qwen3_vl,fps=4,max_frames=768 @ Qwen/Qwen2.5-VL-7B-Instruct")
COST = Cost(wall_s=1.0, jobs_per_s=123.4, frames_decoded=1_234_567, decode_s=12_345.6, bytes_read=9_876_500_000)
P_VALUES = [(0.0, "<0.001"), (1e-300, "<0.001"), (0.00099, "<0.001"), (0.0012, "0.001"), (1, "1.000")]


@pytest.fixture
def evaluation():
    """Three candidates on 2,000 jobs of two tasks."""
    jobs = pl.DataFrame({"job_id": [f"j{at}" for at in range(2000)], "answer": "yes"}).with_columns(
        task=pl.when(pl.int_range(2000) < 900).then(pl.lit("temporal reasoning")).otherwise(pl.lit("causal reasoning")),
        subtask=pl.lit(None, dtype=pl.String),
    )
    results = [
        CandidateResults(
            name=name,
            spec_id=f"{number}" * 16,
            model="m",
            sampling={},
            labels=jobs.select(
                "job_id",
                label=pl.when(pl.int_range(2000) % 7 < number).then(pl.lit("no")).otherwise(pl.lit("yes")),
                probabilities=[0.9, 0.1],
                choice_mass=pl.when(pl.int_range(2000) < 3 * number).then(0.01).otherwise(0.9),
            ),
            cost=Cost(
                wall_s=1.0, jobs_per_s=123.4, frames_decoded=1_234_567, decode_s=12_345.6, bytes_read=9_876_500_000
            ),
        )
        for number, name in enumerate(NAMES)
    ]
    return compare_candidates(jobs, results, baseline=NAMES[0], dataset="clips")


def test_tables_fit_80_columns_without_cutting_a_number(evaluation, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")  # its width, once set, would be that of all later tests
    with evaluate.OUT.capture() as captured:
        evaluate.print_evaluation(evaluation)
    text = captured.get()

    tables = [line for line in text.splitlines() if line[:1] in "┏┃│└"]
    assert max(map(len, tables)) <= 80
    for number in (
        "1,234,567",
        "12,345.6",
        "9,876.5",
        "123.4",
        "2,000",
        "85.7%",
        "<0.001*",
        "84.1 to",
        "Qwen2.5-VL-7B",
        "-14.3",
    ):
        assert number in text, number
    assert "…" not in text
    assert "keyframes:16: 3 labels with choice_mass below 0.05" in " ".join(text.split())
    assert "uniform:16: 0 labels" not in text


@pytest.mark.parametrize(("p_value", "shown"), P_VALUES)
def test_a_p_value_is_never_printed_as_zero(p_value, shown):
    assert format_p_value(p_value) == shown
