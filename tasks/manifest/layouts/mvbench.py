"""MVBench: a folder of JSON files, one per subtask; the videos are in the folders of their source datasets.

Li et al., "MVBench: A Comprehensive Multi-modal Video Understanding Benchmark", CVPR 2024.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import polars as pl

from infra.errors import ManifestError
from tasks.manifest.layouts.source import read_json, require_columns, require_texts
from tasks.manifest.schema import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tasks.manifest.layouts.source import BenchmarkFiles

# From the benchmark's own loader; a map given by the user takes precedence.
_FOLDERS = {
    "action_sequence": "star/Charades_v1_480",
    "action_prediction": "star/Charades_v1_480",
    "action_antonym": "ssv2_video",
    "fine_grained_action": "Moments_in_Time_Raw/videos",
    "unexpected_action": "FunQA_test/test",
    "object_existence": "clevrer/video_validation",
    "object_interaction": "star/Charades_v1_480",
    "object_shuffle": "perception/videos",
    "moving_direction": "clevrer/video_validation",
    "action_localization": "sta/sta_video",
    "scene_transition": "scene_qa/video",
    "action_count": "perception/videos",
    "moving_count": "clevrer/video_validation",
    "moving_attribute": "clevrer/video_validation",
    "state_change": "perception/videos",
    "fine_grained_pose": "nturgbd",
    "character_order": "perception/videos",
    "egocentric_navigation": "vlnqa",
    "counterfactual_inference": "clevrer/video_validation",
}
# Its "videos" are folders of images.
_NO_VIDEOS = frozenset({"episodic_reasoning"})
_DATED = re.compile(r"_\d{8}$")
_SCHEMA = {
    name: COLUMNS[name] for name in ("job_id", "video_uri", "prompt", "choices", "answer", "task", "subtask")
} | {name: COLUMNS[name] for name in ("start_s", "end_s")}


def read_mvbench(source: BenchmarkFiles) -> pl.DataFrame:
    """Read one subtask's JSON file, or a folder of them; `start` and `end` become a segment.

    Episodic reasoning is skipped: it consists of images, not videos.

    Raises:
        ManifestError: There is no JSON file, a file has a different layout, a value has the wrong type, or the video
            folder of a subtask is unknown.
    """
    files = sorted(source.path.glob("*.json")) if source.path.is_dir() else [source.path]
    files = [file for file in files if _subtask(file) not in _NO_VIDEOS]
    if not files:
        raise ManifestError(f"{source.path} contains no JSON file of a subtask with videos.")
    folders = _FOLDERS | source.mapped()
    return pl.DataFrame([job for file in files for job in _jobs(file, source, folders)], schema=_SCHEMA)


def _jobs(file: Path, source: BenchmarkFiles, folders: dict[str, str]) -> Iterator[dict[str, Any]]:
    subtask, rows = _subtask(file), read_json(file)
    folder = folders.get(subtask)
    if folder is None:
        raise ManifestError(f"The video folder of subtask {subtask} is unknown; add it to the video map.")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ManifestError(f"{file} must contain a JSON list of questions.")
    for number, row in enumerate(rows):
        require_columns(file, row, ("video", "question", "candidates", "answer"), layout="MVBench")
        _require_types(row, where=f"{file}, question {number}")
        yield {
            "job_id": f"{subtask}_{number}",
            "video_uri": source.uri_of(f"{folder}/{row['video']}" if folder else row["video"]),
            "prompt": row["question"],
            "choices": row["candidates"],
            "answer": row["answer"],
            "task": "mvbench",
            "subtask": subtask,
            "start_s": row.get("start"),
            "end_s": row.get("end"),
        }


def _require_types(row: dict[str, Any], *, where: str) -> None:
    choices = row["candidates"]
    if not isinstance(choices, list):
        raise ManifestError(f"{where}: candidates {choices!r} is not a list.")
    # An unknown answer is null.
    named = {name: row[name] for name in ("video", "question", "answer") if name != "answer" or row[name] is not None}
    require_texts(named | {f"candidate {at}": choice for at, choice in enumerate(choices)}, where=where)
    for name in ("start", "end"):
        if not isinstance(row.get(name), float | int | None):
            raise ManifestError(f"{where}: {name} {row[name]!r} is not a number of seconds.")


def _subtask(file: Path) -> str:
    """Return a file's subtask; names of corrected files end in a date."""
    return _DATED.sub("", file.stem)
