"""Video-MME: a Parquet file of questions about videos, which are named by their ids.

Fu et al., "Video-MME: The First-Ever Comprehensive Evaluation Benchmark of Multi-modal LLMs in Video
Analysis", CVPR 2025.
"""

from __future__ import annotations

from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

import polars as pl

from infra.errors import ManifestError
from tasks.manifest.layouts.source import require_columns, strip_letters
from tasks.manifest.schema import COLUMNS

if TYPE_CHECKING:
    from tasks.manifest.layouts.source import BenchmarkFiles

_COLUMNS = ("videoID", "question_id", "task_type", "duration", "question", "options", "answer")
_TYPES = dict.fromkeys(_COLUMNS, pl.String()) | {"options": pl.List(pl.String())}
_SCHEMA = {name: COLUMNS[name] for name in ("job_id", "video_uri", "prompt", "choices", "answer", "task", "subtask")}


def read_videomme(source: BenchmarkFiles) -> pl.DataFrame:
    """Read the test file; `task` is the task type, `subtask` the video's length (short, medium, long).

    Videos are at `<videoID>.mp4`, or at the path in the video map. Unknown answers are null.

    Raises:
        ManifestError: The file has a different layout.
    """
    try:
        table = pl.read_parquet(source.path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ManifestError(f"Cannot read {source.path} as Parquet: {error}") from None
    require_columns(source.path, table.columns, _COLUMNS, layout="Video-MME")
    try:
        rows = table.select(pl.col(name).cast(dtype) for name, dtype in _TYPES.items())
    except pl.exceptions.PolarsError as error:
        why = str(error).splitlines()[0]
        raise ManifestError(f"{source.path} has columns whose types differ from Video-MME's: {why}.") from None
    paths = source.mapped()
    return pl.DataFrame([_job(row, source, paths) for row in rows.iter_rows(named=True)], schema=_SCHEMA)


def _job(row: dict[str, Any], source: BenchmarkFiles, paths: dict[str, str]) -> dict[str, Any]:
    where = f"{source.path}, {row['question_id']}"
    if row["options"] is None or None in row["options"]:
        raise ManifestError(f"{where}: options is null, or contains a null.")
    choices = strip_letters(row["options"])
    return {
        "job_id": row["question_id"],
        "video_uri": source.uri_of(paths.get(row["videoID"], f"{row['videoID']}.mp4")),
        "prompt": row["question"],
        "choices": choices,
        "answer": None if row["answer"] is None else _answer(row["answer"], choices, where=where),
        "task": row["task_type"],
        "subtask": row["duration"],
    }


def _answer(letter: str, choices: list[str], *, where: str) -> str:
    number = ascii_uppercase.find(letter) if len(letter) == 1 else -1
    if not 0 <= number < len(choices):
        raise ManifestError(f"{where}: the answer {letter!r} is not the letter of one of its {len(choices)} choices.")
    return choices[number]
