"""The notebooks of examples/ run from top to bottom, as a user would who has the folders that they name."""

import ast
import json
import os
from pathlib import Path
from unittest.mock import patch

import polars as pl
import pytest

from tasks.demo.clips import make_demo

pytestmark = pytest.mark.system

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def folder(tmp_path, served, monkeypatch):
    """Where the notebook is: clips in videos/, questions.csv about them, and the settings of a kernel."""
    jobs = make_demo(tmp_path / "videos", seed=5, clips=6).filter(pl.col("choices").list.len() > 1)
    names = jobs["video_uri"].str.extract(r"([^/]*)$")
    pl.DataFrame(
        {
            "id": jobs["job_id"],
            "file": names,
            "question": jobs["prompt"],
            "a": jobs["choices"].list.get(0),
            "b": jobs["choices"].list.get(1),
            "correct": jobs["choices"].list.get(0),
        }
    ).write_csv(tmp_path / "questions.csv")
    monkeypatch.chdir(tmp_path)
    with patch.dict(os.environ, served, clear=True):
        yield tmp_path


def run_notebook(name):
    """Execute the code of a notebook, and return what its last cell shows."""
    cells = json.loads((EXAMPLES / name).read_text())["cells"]
    names, shown = {}, None
    for cell in cells:
        if cell["cell_type"] == "code":
            *statements, last = ast.parse("".join(cell["source"])).body
            exec(compile(ast.Module(statements, []), name, "exec"), names)
            if isinstance(last, ast.Expr):
                shown = eval(compile(ast.Expression(last.value), name, "eval"), names)
            else:
                exec(compile(ast.Module([last], []), name, "exec"), names)
    return shown


@pytest.mark.usefixtures("folder")
def test_a_folder_becomes_labels_and_a_chart_of_their_margins():
    chart = run_notebook("own_folder.ipynb").to_dict()

    [rows] = chart["datasets"].values()
    assert len(rows) == 6
    assert {row["label"] for row in rows} <= {"yes", "no"}
    assert all(0 <= row["margin"] <= 1 for row in rows)


@pytest.mark.usefixtures("folder")
def test_a_benchmark_becomes_a_chart_of_frames_against_accuracy():
    chart = run_notebook("benchmark.ipynb").to_dict()

    [rows] = chart["datasets"].values()
    assert [row["frames"] for row in rows] == [1, 2, 4, 8]
    assert all(0 <= row["accuracy"] <= 1 and row["decoding, ms per video"] > 0 for row in rows)
