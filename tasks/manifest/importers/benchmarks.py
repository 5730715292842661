"""Import of public benchmarks: NExT-QA, MVBench, Video-MME and StreamingBench.

Xiao et al., "NExT-QA: Next Phase of Question-Answering to Explaining Temporal Actions", CVPR 2021.
Li et al., "MVBench: A Comprehensive Multi-modal Video Understanding Benchmark", CVPR 2024.
Fu et al., "Video-MME: The First-Ever Comprehensive Evaluation Benchmark of Multi-modal LLMs in Video
Analysis", CVPR 2025.
Lin et al., "StreamingBench: Assessing the Gap for MLLMs to Achieve Streaming Video Understanding", 2024.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from itertools import chain
from pathlib import PurePosixPath
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

import polars as pl

from infra.errors import ManifestError
from reelabel.text import pluralize, quoted
from tasks.manifest.cells import parse_seconds
from tasks.manifest.importers.csv_rows import read_header, read_rows
from tasks.manifest.importers.imported import (
    ImportedRows,
    is_text,
    merge_repeated,
    read_columns,
    read_json,
    require_columns,
    strip_letters,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tasks.manifest.importers.imported import QuestionFiles

_COLUMNS = ("job_id", "video_uri", "prompt", "choices", "answer", "task", "subtask")
_SHOWN = 3

_NEXTQA_CHOICES = ("a0", "a1", "a2", "a3", "a4")
_NEXTQA = ("video", "question", "answer", "qid", "type", *_NEXTQA_CHOICES)
_NEXTQA_TASKS = {"C": "causal", "T": "temporal", "D": "descriptive"}


def read_nextqa(source: QuestionFiles) -> ImportedRows:
    """Read `val.csv` or the like; `task` is causal, temporal or descriptive, `subtask` the type (CW, TN, ...).

    Videos are at `<path>.mp4`, where the path is that of the video's id in the map; without a map, it is the id.
    The published files repeat a choice in a few rows; wrong ones are merged.
    """
    paths = source.mapped()
    found = ImportedRows(source=source.path, columns=_COLUMNS)
    for place, cells in _nextqa_rows(source, found):
        found.add(
            place, partial(_nextqa_job, cells, source, paths), job_id=f"{cells['video']}_{cells['qid']}", given=cells
        )
    _note_merged(found, dict.fromkeys(found.places, _NEXTQA_CHOICES))
    if source.video_map is None:
        found.notes.append(
            f"Without --video-map, every video is expected at {source.uri_of('<video>.mp4')}; the published videos are "
            "in subfolders, which map_vid_vidorID.json lists."
        )
    return found


def _nextqa_rows(source: QuestionFiles, into: ImportedRows) -> Iterator[tuple[str, dict[str, str]]]:
    if source.path.suffix == ".parquet":
        table = _read_parquet(source.path, dict.fromkeys(_NEXTQA, pl.String()), layout="NExT-QA").fill_null("")
        yield from ((f"row {number}", cells) for number, cells in enumerate(table.iter_rows(named=True)))
    else:
        require_columns(source.path, read_header(source.path), _NEXTQA, layout="NExT-QA")
        yield from read_rows(source.path, into)


def _nextqa_job(cells: dict[str, str], source: QuestionFiles, paths: dict[str, str]) -> dict[str, Any]:
    video = cells["video"]
    if paths and video not in paths:
        raise ValueError(f"{source.video_map} has no entry for video {quoted(video)}")
    if not cells["answer"].isdecimal():
        raise ValueError(f"the answer {quoted(cells['answer'])} is not a number from 0 to 4")
    choices = [cells[name] for name in _NEXTQA_CHOICES]
    if int(cells["answer"]) >= len(choices):
        raise ValueError(f"answer {cells['answer']} is out of range for {len(choices)} choices, counted from 0")
    answer = choices[int(cells["answer"])]
    return {
        "job_id": f"{video}_{cells['qid']}",
        "video_uri": source.uri_of(f"{paths.get(video, video)}.mp4") if video else "",
        "prompt": cells["question"],
        "choices": merge_repeated(choices, answer),
        "answer": answer,
        "task": _NEXTQA_TASKS.get(cells["type"][:1], cells["type"]),
        "subtask": cells["type"],
    }


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
# Their "videos" are folders of images.
_NO_VIDEOS = frozenset({"episodic_reasoning"})
_DATED = re.compile(r"_\d{8}$")  # names of corrected files
_MVBENCH = ("video", "question", "candidates", "answer")


def read_mvbench(source: QuestionFiles) -> ImportedRows:
    """Read the JSON file of a subtask, or a folder of them; `start` and `end` become a segment.

    Episodic reasoning, which is about pictures, is left out and noted. Repeated wrong choices are merged.

    Raises:
        ManifestError: There is no JSON file of a subtask with videos, a file is not a list of questions, or the video
            folder of a subtask is unknown.
    """
    files = sorted(source.path.glob("*.json")) if source.path.is_dir() else [source.path]
    found = ImportedRows(source=source.path, columns=(*_COLUMNS, "start_s", "end_s"))
    folders, choices = _FOLDERS | source.mapped(), dict[str, Any]()
    for file in files:
        rows, subtask = _questions(file), _DATED.sub("", file.stem)
        if subtask in _NO_VIDEOS:
            found.notes.append(f"Left out {file}: {pluralize(len(rows), 'question')} about pictures, not videos.")
            continue
        folder = folders.get(subtask)
        if folder is None:
            raise ManifestError(f"{file}: the video folder of subtask {subtask} is unknown; add it to the video map.")
        for number, row in enumerate(rows):
            place, job_id = f"{file.name}, question {number}", f"{subtask}_{number}"
            read = partial(_mvbench_job, row, subtask=subtask, job_id=job_id, source=source, folder=folder)
            found.add(place, read, job_id=job_id, given=row)
            choices[place] = row.get("candidates")
    if len(files) == len(found.notes):
        raise ManifestError(f"{source.path} contains no JSON file of a subtask with videos.")
    _note_merged(found, choices)
    return found


def _questions(file: Path) -> list[dict[str, Any]]:
    rows = read_json(file)
    if isinstance(rows, list) and all(isinstance(each, list) for each in rows):
        rows = [*chain.from_iterable(rows)]  # StreamingBench's sequential questions are grouped by video
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ManifestError(f"{file} must contain a JSON list of questions.")
    return rows


def _mvbench_job(
    row: dict[str, Any], *, subtask: str, job_id: str, source: QuestionFiles, folder: str
) -> dict[str, Any]:
    _require_fields(row, _MVBENCH)
    choices = row["candidates"]
    if not isinstance(choices, list):
        raise ValueError(f"candidates {quoted(choices)} is not a list")  # noqa: TRY004 - a fault of the data
    texts = {name: row[name] for name in ("video", "question", "answer")}
    _require_texts(texts | {f"candidate {at}": choice for at, choice in enumerate(choices)}, optional="answer")
    for name in ("start", "end"):
        if not isinstance(row.get(name), float | int | None):
            raise ValueError(f"{name} {quoted(row[name])} is not a number of seconds")  # noqa: TRY004
    video = row["video"]
    return {
        "job_id": job_id,
        "video_uri": source.uri_of(f"{folder}/{video}" if folder and video else video),
        "prompt": row["question"],
        "choices": merge_repeated(choices, row["answer"]),
        "answer": row["answer"],
        "task": "mvbench",
        "subtask": subtask,
        **{f"{name}_s": None if row.get(name) is None else float(row[name]) for name in ("start", "end")},
    }


def _require_fields(row: dict[str, Any], names: Sequence[str]) -> None:
    if missing := [name for name in names if name not in row]:
        raise ValueError(f"it lacks {', '.join(missing)}")


def _require_texts(texts: Mapping[str, object], *, optional: str) -> None:
    for name, text in texts.items():
        if not is_text(text) and (text is not None or name != optional):
            raise ValueError(f"{name} {quoted(text)} is not a valid string")


_VIDEOMME = ("videoID", "question_id", "task_type", "duration", "question", "options", "answer")
_VIDEOMME_TYPES: dict[str, pl.DataType] = dict.fromkeys(_VIDEOMME, pl.String()) | {"options": pl.List(pl.String())}


def read_videomme(source: QuestionFiles) -> ImportedRows:
    """Read the test file; `task` is the task type, `subtask` the video's length (short, medium, long).

    Videos are at `<videoID>.mp4`, or at the path in the video map.
    """
    rows = _read_parquet(source.path, _VIDEOMME_TYPES, layout="Video-MME")
    paths = source.mapped()
    found = ImportedRows(source=source.path, columns=_COLUMNS)
    for number, row in enumerate(rows.iter_rows(named=True)):
        found.add(f"row {number}", partial(_videomme_job, row, source, paths), job_id=row["question_id"], given=row)
    return found


def _videomme_job(row: dict[str, Any], source: QuestionFiles, paths: dict[str, str]) -> dict[str, Any]:
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


_STREAMINGBENCH = ("task_type", "question", "time_stamp", "answer", "options")


def read_streamingbench(source: QuestionFiles) -> ImportedRows:
    """Read a JSON file such as `questions_real.json`, whose questions are about the video up to their time.

    `task` is the task type, `subtask` the required ability. Videos are at the path in the file, or in the video map.
    Questions without choices, such as those of proactive output, are left out and noted.
    """
    paths, numbers = source.mapped(), Counter[str]()
    found = ImportedRows(source=source.path, columns=(*_COLUMNS, "end_s"))
    without_choices = 0
    for number, entry in enumerate(_questions(source.path)):
        video: Any = entry.get("video_path")
        questions: Any = entry.get("questions")
        if not is_text(video) or not isinstance(questions, list) or not all(isinstance(row, dict) for row in questions):
            raise ManifestError(f"{source.path}: entry {number} lacks video_path or a list of questions.")
        for row in questions:
            if not row.get("options"):
                without_choices += 1
                continue
            job_id = f"{PurePosixPath(video).stem}_{numbers[video]}"
            numbers[video] += 1
            read = partial(
                _streamingbench_job, row, job_id=job_id, uri=source.uri_of(paths.get(video, video.removeprefix("./")))
            )
            found.add(f"entry {number}", read, job_id=job_id, given=row)
    if without_choices:
        found.notes.append(f"Left out {pluralize(without_choices, 'question')} of {source.path} without choices.")
    return found


def _streamingbench_job(row: dict[str, Any], *, job_id: str, uri: str) -> dict[str, Any]:
    _require_fields(row, _STREAMINGBENCH)
    texts = {name: row.get(name) for name in ("task_type", "question", "required_ability")}
    _require_texts(texts, optional="required_ability")
    if not isinstance(row["options"], list) or not all(is_text(option) for option in row["options"]):
        raise ValueError(f"options {quoted(row['options'])} is not a list of texts")
    choices = strip_letters(row["options"])
    answer = _answer(str(row["answer"]), choices)
    return {
        "job_id": job_id,
        "video_uri": uri,
        "prompt": row["question"],
        "choices": merge_repeated(choices, answer),
        "answer": answer,
        "task": row["task_type"],
        "subtask": row.get("required_ability"),
        "end_s": parse_seconds(str(row["time_stamp"]), "time_stamp"),  # a few are published as 00:24, or 00:00:8
    }


def _read_parquet(path: Path, types: Mapping[str, pl.DataType], *, layout: str) -> pl.DataFrame:
    table = read_columns(path, list(types), uri=str(path), layout=layout)
    try:
        return table.select(pl.col(name).cast(dtype) for name, dtype in types.items())
    except pl.exceptions.PolarsError as error:
        why = str(error).splitlines()[0]
        raise ManifestError(f"{path} has columns whose types differ from {layout}'s: {why}.") from None


def _note_merged(found: ImportedRows, given: Mapping[str, Sequence[str]]) -> None:
    """Note which questions have fewer choices than were given at their places."""
    jobs = zip(found.places, found.rows, strict=True)
    merged = [place for place, job in jobs if len(job["choices"]) < len(given[place])]
    if merged:
        such = f" (first: {', '.join(merged[:_SHOWN])})"
        found.notes.append(
            f"Merged repeated wrong choices in {pluralize(len(merged), 'question')} of {found.source}{such}."
        )
