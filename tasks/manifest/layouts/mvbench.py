"""MVBench: a folder of JSON files, one per subtask; the videos are in the folders of their source datasets.

Li et al., "MVBench: A Comprehensive Multi-modal Video Understanding Benchmark", CVPR 2024.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from infra.errors import ManifestError
from reelabel.text import pluralize, quoted
from tasks.manifest.layouts.source import merge_repeated, note_merged, read_json, require_texts
from tasks.manifest.rejects import ImportedRows

if TYPE_CHECKING:
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
_COLUMNS = ("job_id", "video_uri", "prompt", "choices", "answer", "task", "subtask", "start_s", "end_s")
_NEEDED = ("video", "question", "candidates", "answer")


def read_mvbench(source: BenchmarkFiles) -> ImportedRows:
    """Read one subtask's JSON file, or a folder of them; `start` and `end` become a segment.

    Episodic reasoning is left out, and noted: it consists of pictures, not videos. Repeated wrong choices are merged.

    Raises:
        ManifestError: There is no JSON file of a subtask with videos, a file is not a list of questions, or the video
            folder of a subtask is unknown.
    """
    files = sorted(source.path.glob("*.json")) if source.path.is_dir() else [source.path]
    found = ImportedRows(source=source.path, columns=_COLUMNS)
    folders = _FOLDERS | source.mapped()
    merged: list[str] = []
    for file in files:
        rows = _questions(file)
        if _subtask(file) in _NO_VIDEOS:
            found.notes.append(f"Left out {file}: {pluralize(len(rows), 'question')} about pictures, not videos.")
        else:
            _add(found, file, rows, source, folders)
            merged += _merged(found, rows, file)
    if len(files) == len(found.notes):
        raise ManifestError(f"{source.path} contains no JSON file of a subtask with videos.")
    note_merged(found, merged)
    return found


def _add(
    found: ImportedRows, file: Path, rows: list[dict[str, Any]], source: BenchmarkFiles, folders: dict[str, str]
) -> None:
    subtask = _subtask(file)
    folder = folders.get(subtask)
    if folder is None:
        raise ManifestError(f"{file}: the video folder of subtask {subtask} is unknown; add it to the video map.")
    for number, row in enumerate(rows):
        job_id = f"{subtask}_{number}"
        read = partial(_job, row, subtask=subtask, job_id=job_id, source=source, folder=folder)
        found.add(_place(file, number), read, job_id=job_id, given=row)


def _merged(found: ImportedRows, rows: list[dict[str, Any]], file: Path) -> list[str]:
    """Return the places of a file's questions that have fewer choices than candidates."""
    candidates = {_place(file, number): row.get("candidates") for number, row in enumerate(rows)}
    return [
        place
        for place, job in zip(found.places, found.rows, strict=True)
        if place in candidates and len(job["choices"]) < len(candidates[place] or ())
    ]


def _place(file: Path, number: int) -> str:
    return f"{file.name}, question {number}"


def _questions(file: Path) -> list[dict[str, Any]]:
    rows = read_json(file)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ManifestError(f"{file} must contain a JSON list of questions.")
    return rows


def _job(row: dict[str, Any], *, subtask: str, job_id: str, source: BenchmarkFiles, folder: str) -> dict[str, Any]:
    missing = [name for name in _NEEDED if name not in row]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")
    _require_types(row)
    video = row["video"]
    return {
        "job_id": job_id,
        "video_uri": source.uri_of(f"{folder}/{video}" if folder and video else video),
        "prompt": row["question"],
        "choices": merge_repeated(row["candidates"], row["answer"]),
        "answer": row["answer"],
        "task": "mvbench",
        "subtask": subtask,
        "start_s": row.get("start"),
        "end_s": row.get("end"),
    }


def _require_types(row: dict[str, Any]) -> None:
    choices = row["candidates"]
    if not isinstance(choices, list):
        raise ValueError(f"candidates {quoted(choices)} is not a list")  # noqa: TRY004 - a fault of the data
    # An unknown answer is null.
    named = {name: row[name] for name in ("video", "question", "answer") if name != "answer" or row[name] is not None}
    require_texts(named | {f"candidate {at}": choice for at, choice in enumerate(choices)})
    for name in ("start", "end"):
        if not isinstance(row.get(name), float | int | None):
            raise ValueError(f"{name} {quoted(row[name])} is not a number of seconds")  # noqa: TRY004


def _subtask(file: Path) -> str:
    """Return a file's subtask; names of corrected files end in a date."""
    return _DATED.sub("", file.stem)
