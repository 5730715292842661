"""Video-MME: a Parquet file of questions about videos, which are named by their ids.

Fu et al., "Video-MME: The First-Ever Comprehensive Evaluation Benchmark of Multi-modal LLMs in Video
Analysis", CVPR 2025.
"""

from __future__ import annotations

from functools import partial
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

import polars as pl

from reelabel.text import quoted
from tasks.manifest.layouts.source import merge_repeated, read_parquet, strip_letters
from tasks.manifest.rejects import ImportedRows

if TYPE_CHECKING:
    from tasks.manifest.layouts.source import BenchmarkFiles

_COLUMNS = ("videoID", "question_id", "task_type", "duration", "question", "options", "answer")
_TYPES: dict[str, pl.DataType] = dict.fromkeys(_COLUMNS, pl.String()) | {"options": pl.List(pl.String())}
_FILLED = ("job_id", "video_uri", "prompt", "choices", "answer", "task", "subtask")


def read_videomme(source: BenchmarkFiles) -> ImportedRows:
    """Read the test file; `task` is the task type, `subtask` the video's length (short, medium, long).

    Videos are at `<videoID>.mp4`, or at the path in the video map. Unknown answers are null.

    Raises:
        ManifestError: The file has a different layout.
    """
    rows = read_parquet(source.path, _TYPES, layout="Video-MME")
    paths = source.mapped()
    found = ImportedRows(source=source.path, columns=_FILLED)
    for number, row in enumerate(rows.iter_rows(named=True)):
        found.add(f"row {number}", partial(_job, row, source, paths), job_id=row["question_id"], given=row)
    return found


def _job(row: dict[str, Any], source: BenchmarkFiles, paths: dict[str, str]) -> dict[str, Any]:
    if row["options"] is None or None in row["options"]:
        raise ValueError("options is null, or contains a null")
    choices, video = strip_letters(row["options"]), row["videoID"]
    answer = None if row["answer"] is None else _answer(row["answer"], choices)
    return {
        "job_id": row["question_id"],
        "video_uri": source.uri_of(paths.get(video, f"{video}.mp4")) if video else "",
        "prompt": row["question"],
        "choices": merge_repeated(choices, answer),
        "answer": answer,
        "task": row["task_type"],
        "subtask": row["duration"],
    }


def _answer(letter: str, choices: list[str]) -> str:
    number = ascii_uppercase.find(letter) if len(letter) == 1 else -1
    if not 0 <= number < len(choices):
        raise ValueError(f"the answer {quoted(letter)} is not the letter of one of its {len(choices)} choices")
    return choices[number]
