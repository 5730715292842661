"""Import of reviewers' answers: an export of Label Studio and its manifest become one with known answers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from infra.errors import ManifestError
from reelabel.text import pluralize, quoted
from tasks.manifest.digests import rows_to_jobs
from tasks.manifest.importers.imported import ImportedRows, is_text, read_json
from tasks.manifest.schema import COLUMNS, REPLACED
from tasks.manifest.table import open_jobs

if TYPE_CHECKING:
    from pathlib import Path

    from reelabel.sources.object_store import ObjectStore
    from tasks.domain import Job

# Name of the control with the answer in the labelling interface.
ANSWER = "answer"


def read_label_studio(export: Path, manifest: str, objects: ObjectStore) -> ImportedRows:
    """Read a JSON export of Label Studio, of tasks that `reelabel results --format label-studio` has written.

    Tasks without an answer are left out and counted. Tasks on which reviewers disagree, or whose job is not in the
    manifest, are rejected.

    Raises:
        ManifestError: The file is not such an export, no task has an answer, or the manifest cannot be read.
    """
    answers, unanswered = _read_answers(export)
    if not answers:
        raise ManifestError(f"No task of {export} has an answer yet.")
    found = ImportedRows(source=export, columns=list(COLUMNS))
    only = pl.Series("job_id", list(answers), dtype=pl.String)
    with open_jobs(manifest, objects, only=only, keep_going=True) as table:
        jobs = {job.job_id: job for part in table.parts() for job in rows_to_jobs(part)}
    for job_id, (place, given) in answers.items():
        found.add(place, partial(_answered, jobs.get(job_id), given, manifest), job_id=job_id, given=given)
    if unanswered:
        found.notes.append(f"Left out {pluralize(unanswered, 'task')} without an answer.")
    return found


def _read_answers(export: Path) -> tuple[dict[str, tuple[str, list[str]]], int]:
    """Return the place and the distinct answers of each answered job, and the number of tasks without an answer."""
    tasks = read_json(export)
    if not (isinstance(tasks, list) and tasks):
        raise ManifestError(f"{export} is no export of Label Studio: export the project as JSON.")
    answers: dict[str, tuple[str, list[str]]] = {}
    unanswered = 0
    for number, task in enumerate(tasks, 1):
        data, annotations = (_part(task, name) for name in ("data", "annotations"))
        job_id = _part(data, "job_id")
        if not (is_text(job_id) and isinstance(annotations, list)):
            raise ManifestError(
                f"Task {number} of {export} is not one of `reelabel results --format label-studio`, or the export is "
                "not in the format JSON."
            )
        given = _answers(annotations)
        if given:
            known = answers.setdefault(job_id, (f"task {number}", []))[1]
            known += [answer for answer in given if answer not in known]
        unanswered += not given
    return answers, unanswered


def _answers(annotations: list[Any]) -> list[str]:
    results = (
        result
        for annotation in annotations
        if not _part(annotation, "was_cancelled")
        for result in _listed(_part(annotation, "result"))
        if _part(result, "from_name") == ANSWER
    )
    choices = (choice for result in results for choice in _listed(_part(_part(result, "value"), "choices")))
    return list(dict.fromkeys(filter(is_text, choices)))


def _part(value: object, name: str) -> Any:  # noqa: ANN401 - any JSON value
    return value.get(name) if isinstance(value, dict) else None


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _answered(job: Job | None, answers: list[str], manifest: str) -> dict[str, Any]:
    if job is None:
        raise ValueError(f"{manifest} has no such job")
    if len(answers) > 1:
        raise ValueError(f"its reviewers disagree: {', '.join(map(quoted, answers))}")
    cells = {name: getattr(job, name, None) for name in COLUMNS} | {"answer": answers[0]}
    if job.messages is not None:
        cells |= dict.fromkeys(REPLACED["messages"])
    elif job.media:
        cells |= {"video_uri": None, "video_uris": [medium.uri for medium in job.media]}
    return {name: list(cell) if isinstance(cell, tuple) else cell for name, cell in cells.items()}
