"""NExT-QA, multiple choice: questions as CSV or Parquet, and a JSON map from video ids to paths.

Xiao et al., "NExT-QA: Next Phase of Question-Answering to Explaining Temporal Actions", CVPR 2021.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from reelabel.text import quoted
from tasks.manifest.csv_rows import read_header, read_rows
from tasks.manifest.layouts.source import choice_at, merge_repeated, note_merged, read_parquet, require_columns
from tasks.manifest.rejects import ImportedRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.manifest.layouts.source import BenchmarkFiles

_CHOICES = ("a0", "a1", "a2", "a3", "a4")
_READ = ("video", "question", "answer", "qid", "type", *_CHOICES)
_TASKS = {"C": "causal", "T": "temporal", "D": "descriptive"}


_COLUMNS = ("job_id", "video_uri", "prompt", "choices", "answer", "task", "subtask")


def read_nextqa(source: BenchmarkFiles) -> ImportedRows:
    """Read `val.csv` or the like; `task` is causal, temporal or descriptive, `subtask` the type (CW, TN, ...).

    Videos are at `<path>.mp4`, where the path is that of the video's id in the map, or without a map the id itself.
    The published files repeat a choice in a few rows: wrong ones are merged.

    Raises:
        ManifestError: The file has a different layout.
    """
    paths = source.mapped()
    found = ImportedRows(source=source.path, columns=_COLUMNS)
    for place, cells in _rows(source, found):
        found.add(place, partial(_job, cells, source, paths), job_id=f"{cells['video']}_{cells['qid']}", given=cells)
    few = [place for place, job in zip(found.places, found.rows, strict=True) if len(job["choices"]) < len(_CHOICES)]
    note_merged(found, few)
    if source.video_map is None:
        found.notes.append(
            f"Without --video-map, every video is expected at {source.uri_of('<video>.mp4')}; the published videos are "
            "in subfolders, which map_vid_vidorID.json lists."
        )
    return found


def _rows(source: BenchmarkFiles, into: ImportedRows) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each row's place and its cells."""
    if source.path.suffix == ".parquet":
        table = read_parquet(source.path, dict.fromkeys(_READ, pl.String()), layout="NExT-QA").fill_null("")
        yield from ((f"row {number}", cells) for number, cells in enumerate(table.iter_rows(named=True)))
    else:
        require_columns(source.path, read_header(source.path), _READ, layout="NExT-QA")
        yield from read_rows(source.path, into)


def _job(cells: dict[str, str], source: BenchmarkFiles, paths: dict[str, str]) -> dict[str, Any]:
    video = cells["video"]
    if paths and video not in paths:
        raise ValueError(f"{source.video_map} has no entry for video {quoted(video)}")
    if not cells["answer"].isdecimal():
        raise ValueError(f"the answer {quoted(cells['answer'])} is not a number from 0 to 4")
    choices = [cells[name] for name in _CHOICES]
    answer = choice_at(choices, int(cells["answer"]))
    return {
        "job_id": f"{video}_{cells['qid']}",
        "video_uri": source.uri_of(f"{paths.get(video, video)}.mp4") if video else "",
        "prompt": cells["question"],
        "choices": merge_repeated(choices, answer),
        "answer": answer,
        "task": _TASKS.get(cells["type"][:1], cells["type"]),
        "subtask": cells["type"],
    }
