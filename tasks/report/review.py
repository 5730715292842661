"""The least certain labels of a run, as tasks of Label Studio, with the frames that the model saw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.domain.job import MAX_MEDIA
from tasks.manifest.label_studio import ANSWER, JOB, row_of_job
from tasks.report.jobs import least_certain, load_jobs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from tasks.database.scope import Scope
    from tasks.report.jobs import JobCard, Sources

_FRAMES = "frames"
_JOBS_AT_ONCE = 16  # whose frames are held in memory


def label_studio_tasks(
    connection: Connection, scope: Scope, sources: Sources, *, limit: int
) -> Iterator[dict[str, Any]]:
    """Yield a task for each of the jobs of the lowest margins, of which the manifest still has the question.

    A task proposes the label of the run, and carries the row of the manifest, so that an export of Label Studio can
    become a manifest with answers (`tasks.manifest.label_studio`).
    """
    every = least_certain(connection, scope, limit=limit)
    for start in range(0, len(every), _JOBS_AT_ONCE):
        job_ids = every[start : start + _JOBS_AT_ONCE]
        cards, _ = load_jobs(
            connection,
            scope,
            sources,
            selected=dict.fromkeys(job_ids, ()),
            before={},
            max_videos=len(job_ids) * MAX_MEDIA,
        )
        yield from filter(None, map(_task, cards))


def _task(card: JobCard) -> dict[str, Any] | None:
    if card.job is None or card.choices is None:
        return None
    label = card.row["label"]
    answer = {"from_name": ANSWER, "to_name": _FRAMES, "type": "choices", "value": {"choices": [label]}}
    return {
        "data": {
            "job_id": card.job_id,
            "prompt": card.job.prompt,
            "choices": [{"value": choice} for choice in card.job.choices],
            _FRAMES: [frame.image for strip in card.strips for frame in strip.frames if frame.image],
            "video": card.video,
            "margin": card.row["margin"],
            JOB: row_of_job(card.job),
        },
        "predictions": [
            {"model_version": card.row["spec_id"], "score": dict(card.choices).get(label), "result": [answer]}
        ],
    }
