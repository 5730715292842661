"""Answers of reviewers: an export of Label Studio becomes a manifest with the column `answer`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from infra.errors import ManifestError
from reelabel.sources.object_info import unsigned_uri
from reelabel.text import pluralize, quoted
from tasks.manifest.imported import ImportedRows, is_text, read_json
from tasks.manifest.schema import COLUMNS, REPLACED

if TYPE_CHECKING:
    from tasks.domain import Job
    from tasks.manifest.imported import QuestionFiles

# Of a task's data, the row of the manifest; of the labelling interface, the control that has the answer.
JOB = "job"
ANSWER = "answer"


def row_of_job(job: Job) -> dict[str, Any]:
    """Return the cells of a job's row in its manifest that are not empty, with URLs without their signatures."""
    cells = {name: getattr(job, name, None) for name in COLUMNS}
    if job.messages is not None:
        cells |= dict.fromkeys(REPLACED["messages"])
    elif job.media:
        cells |= {"video_uri": None, "video_uris": [unsigned_uri(medium.uri) for medium in job.media]}
    else:
        cells["video_uri"] = unsigned_uri(job.video_uri)
    return {name: list(cell) if isinstance(cell, tuple) else cell for name, cell in cells.items() if cell is not None}


def read_label_studio(source: QuestionFiles) -> ImportedRows:
    """Read an export in Label Studio's format JSON of tasks that `reelabel results --format label-studio` has written.

    Tasks without an answer are left out and counted; those on whose answer reviewers disagree are rejected.

    Raises:
        ManifestError: The file is no such export.
    """
    tasks = read_json(source.path)
    if not (isinstance(tasks, list) and tasks and all(isinstance(task, dict) for task in tasks)):
        raise ManifestError(f"{source.path} is no export of Label Studio: export the project as JSON.")
    found = ImportedRows(source=source.path, columns=list(COLUMNS))
    unanswered = 0
    for number, task in enumerate(tasks, 1):
        data = task.get("data")
        row = data.get(JOB) if isinstance(data, dict) else None
        if not isinstance(row, dict) or not isinstance(task.get("annotations"), list):
            raise ManifestError(
                f"Task {number} of {source.path} is not one of `reelabel results --format label-studio`, or the export "
                "is not in the format JSON."
            )
        answers = _answers(task["annotations"])
        if answers:
            found.add(f"task {number}", partial(_answered, row, answers), job_id=row.get("job_id"), given=row)
        unanswered += not answers
    if unanswered:
        found.notes.append(f"Left out {pluralize(unanswered, 'task')} without an answer.")
    return found


def _answers(annotations: list[Any]) -> list[str]:
    """Return the answers that reviewers gave to a task, each once."""
    kept = (each for each in annotations if isinstance(each, dict) and not each.get("was_cancelled"))
    results = (result for each in kept for result in each.get("result") or () if isinstance(result, dict))
    values = (result.get("value") for result in results if result.get("from_name") == ANSWER)
    choices = (choice for value in values if isinstance(value, dict) for choice in value.get("choices") or ())
    return list(dict.fromkeys(filter(is_text, choices)))


def _answered(row: dict[str, Any], answers: list[str]) -> dict[str, Any]:
    if len(answers) > 1:
        raise ValueError(f"its reviewers disagree: {', '.join(map(quoted, answers))}")
    unknown = sorted(row.keys() - COLUMNS.keys())
    if unknown:
        raise ValueError(f"it has {quoted(unknown[0])}, which is no column of a manifest")
    return {**row, "answer": answers[0]}
