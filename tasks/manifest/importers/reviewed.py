"""Answers of reviewers: an export of Label Studio or FiftyOne, and its manifest, become one with known answers."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from infra.errors import ManifestError
from reelabel.integrations.chat_messages import parse_messages
from reelabel.text import pluralize, quoted
from tasks.manifest.digests import rows_to_jobs
from tasks.manifest.importers.imported import ImportedRows, is_text, read_json
from tasks.manifest.schema import COLUMNS, REPLACED
from tasks.manifest.table import open_jobs

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from reelabel.sources.object_store import ObjectStore
    from tasks.domain import Job

# Name of the control with the answer in the labelling interface.
ANSWER = "answer"


class _Given(NamedTuple):
    """The answers to a job, each once, and where in the export the first of its tasks or frames is."""

    place: str
    answers: list[str]


def read_label_studio(export: Path, manifest: str, objects: ObjectStore) -> ImportedRows:
    """Read a JSON export of Label Studio, of tasks that `reelabel results --format label-studio` has written.

    Tasks without an answer are left out and counted. Tasks on which reviewers disagree, or whose job is not in the
    manifest, are rejected.

    Raises:
        ManifestError: The file is not such an export, no task has an answer, or the manifest cannot be read.
    """
    tasks = read_json(export)
    if not (isinstance(tasks, list) and tasks):
        raise ManifestError(f"{export} is no export of Label Studio: export the project as JSON.")
    given: dict[str, _Given] = {}
    unanswered = 0
    for number, task in enumerate(tasks, 1):
        data, annotations = (_part(task, name) for name in ("data", "annotations"))
        job_id = _part(data, "job_id")
        if not (is_text(job_id) and isinstance(annotations, list)):
            raise ManifestError(
                f"Task {number} of {export} is not one of `reelabel results --format label-studio`, or the export is "
                "not in the format JSON."
            )
        answers = _answers(annotations)
        if answers:
            known = given.setdefault(job_id, _Given(f"task {number}", [])).answers
            known += [answer for answer in answers if answer not in known]
        unanswered += not answers
    found = _answered_rows(export, given, _read_jobs(export, given, manifest, objects), manifest)
    if unanswered:
        found.notes.append(f"Left out {pluralize(unanswered, 'task')} without an answer.")
    return found


def read_fiftyone(export: Path, manifest: str, objects: ObjectStore) -> ImportedRows:
    """Read the samples.json of a LegacyFiftyOneDataset that `reelabel results --format fiftyone` began.

    A job's answer is the label in `ground_truth` of its frames. A frame that still has the manifest's answer does not
    contradict one that was corrected. Jobs without an answer are left out and counted; those whose frames have several
    are rejected, as are those of other manifests.

    Raises:
        ManifestError: The file is no such export, or the manifest cannot be read.
    """
    samples = _part(read_json(export), "samples")
    if not (isinstance(samples, list) and samples):
        raise ManifestError(f"{export} is no samples.json of FiftyOne: export the dataset as LegacyFiftyOneDataset.")
    frames: dict[str, _Given] = {}
    for number, sample in enumerate(samples, 1):
        job_id = _part(sample, "job_id")
        if not is_text(job_id):
            raise ManifestError(f"Sample {number} of {export} is not one of `reelabel results --format fiftyone`.")
        known = frames.setdefault(job_id, _Given(f"sample {number}", [])).answers
        label = _part(_part(sample, "ground_truth"), "label")
        if is_text(label) and label not in known:
            known.append(label)
    given = {job_id: each for job_id, each in frames.items() if each.answers}
    jobs = _read_jobs(export, given, manifest, objects)
    for job_id, each in given.items():
        changed = [answer for answer in each.answers if job_id not in jobs or answer != jobs[job_id].answer]
        given[job_id] = each._replace(answers=changed or each.answers)
    found = _answered_rows(export, given, jobs, manifest)
    if len(given) < len(frames):
        found.notes.append(f"Left out {pluralize(len(frames) - len(given), 'job')} without an answer.")
    return found


def _read_jobs(export: Path, job_ids: Collection[str], manifest: str, objects: ObjectStore) -> dict[str, Job]:
    if not job_ids:
        raise ManifestError(f"No job of {export} has an answer yet.")
    only = pl.Series("job_id", list(job_ids), dtype=pl.String)
    with open_jobs(manifest, objects, only=only, keep_going=True) as table:
        return {job.job_id: job for part in table.parts() for job in rows_to_jobs(part)}


def _answered_rows(export: Path, given: dict[str, _Given], jobs: dict[str, Job], manifest: str) -> ImportedRows:
    found = ImportedRows(source=export, columns=list(COLUMNS))
    for job_id, (place, answers) in given.items():
        found.add(place, partial(_answered, jobs.get(job_id), answers, manifest), job_id=job_id, given=answers)
    return found


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
        raise ValueError(f"it has different answers: {', '.join(map(quoted, answers))}")
    return _row(job) | {"answer": answers[0]}


def _row(job: Job) -> dict[str, Any]:
    """Return a job's row in its manifest."""
    cells = {name: getattr(job, name, None) for name in COLUMNS}
    if job.messages is not None:
        cells |= dict.fromkeys(REPLACED["messages"])
        if parse_messages(json.loads(job.messages)).system_prompt is not None:
            cells["system_prompt"] = None  # a column may have it, too, but not both
    elif job.media:
        cells |= {"video_uri": None, "video_uris": [medium.uri for medium in job.media]}
    return {name: list(cell) if isinstance(cell, tuple) else cell for name, cell in cells.items()}
