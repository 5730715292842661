"""NExT-QA, multiple choice: a CSV of questions, and a JSON map from video ids to paths.

Xiao et al., "NExT-QA: Next Phase of Question-Answering to Explaining Temporal Actions", CVPR 2021.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from infra.errors import ManifestError
from tasks.manifest.layouts.source import choice_at, require_columns

if TYPE_CHECKING:
    from tasks.manifest.layouts.source import BenchmarkFiles

_CHOICES = ("a0", "a1", "a2", "a3", "a4")
_TASKS = {"C": "causal", "T": "temporal", "D": "descriptive"}


def read_nextqa(source: BenchmarkFiles) -> pl.DataFrame:
    """Read `val.csv` or the like; `task` is causal, temporal or descriptive, `subtask` the type (CW, TN, ...).

    Videos are at `<path>.mp4`, where the path is that of the video's id in the map, or without a map the id itself.

    Raises:
        ManifestError: The file has a different layout, or a video is not in the map.
    """
    try:
        table = pl.read_csv(source.path, infer_schema=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ManifestError(f"Cannot read {source.path} as CSV: {error}") from None
    require_columns(
        source.path, table.columns, ("video", "question", "answer", "qid", "type", *_CHOICES), layout="NExT-QA"
    )
    paths = source.mapped()
    return pl.DataFrame([_job(row, source, paths) for row in table.iter_rows(named=True)])


def _job(row: dict[str, Any], source: BenchmarkFiles, paths: dict[str, str]) -> dict[str, Any]:
    job_id = f"{row['video']}_{row['qid']}"
    if paths and row["video"] not in paths:
        raise ManifestError(f"{source.video_map} has no entry for video {row['video']} of job {job_id}.")
    choices = [row[name] or "" for name in _CHOICES]
    if not (row["answer"] or "").isdecimal():
        raise ManifestError(f"{source.path}: {job_id} has the answer {row['answer']!r}, not a number from 0 to 4.")
    return {
        "job_id": job_id,
        "video_uri": source.uri_of(f"{paths.get(row['video'], row['video'])}.mp4"),
        "prompt": row["question"],
        "choices": choices,
        "answer": choice_at(choices, int(row["answer"]), where=job_id),
        "task": _TASKS.get((row["type"] or "")[:1], row["type"]),
        "subtask": row["type"],
    }
