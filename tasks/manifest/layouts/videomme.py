"""Video-MME: a Parquet file of questions about videos that are named by their ids.

Fu et al., "Video-MME: The First-Ever Comprehensive Evaluation Benchmark of Multi-modal LLMs in Video
Analysis", CVPR 2025.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from infra.errors import ManifestError
from tasks.manifest.layouts.source import choice_at, require_columns, strip_letters

if TYPE_CHECKING:
    from tasks.manifest.layouts.source import Source

_COLUMNS = ("videoID", "question_id", "task_type", "duration", "question", "options", "answer")


def read_videomme(source: Source) -> pl.DataFrame:
    """Read the test file; `task` is the task's type, `subtask` the videos' length (short, medium, long).

    Videos stand at `<videoID>.mp4`, or where a map of videos says.

    Raises:
        ManifestError: The file is of another layout.
    """
    try:
        table = pl.read_parquet(source.path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ManifestError(f"Cannot read {source.path} as Parquet: {error}") from None
    require_columns(source.path, table.columns, _COLUMNS, layout="Video-MME")
    places = source.mapped()
    return pl.DataFrame([_job(row, source, places) for row in table.select(_COLUMNS).iter_rows(named=True)])


def _job(row: dict[str, Any], source: Source, places: dict[str, str]) -> dict[str, Any]:
    choices = strip_letters(row["options"])
    number = ord(row["answer"]) - ord("A") if len(row["answer"]) == 1 else -1
    return {
        "job_id": row["question_id"],
        "video_uri": source.uri_of(places.get(row["videoID"], f"{row['videoID']}.mp4")),
        "prompt": row["question"],
        "choices": choices,
        "answer": choice_at(choices, number, where=row["question_id"]),
        "task": row["task_type"],
        "subtask": row["duration"],
    }
