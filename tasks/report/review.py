"""The least certain labels of a run, as tasks of Label Studio, with the frames that the model saw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from reelabel.errors import ConfigurationError
from tasks.domain.job import MAX_MEDIA
from tasks.manifest.label_studio import ANSWER
from tasks.report.jobs import least_certain, load_jobs

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from tasks.database.scope import Scope
    from tasks.report.jobs import JobCard, Sources

_FRAMES = "frames"


class ReviewTasks(NamedTuple):
    """What reviewers get.

    Attributes:
        tasks: As Label Studio imports them.
        changed: How many labels have none, since the manifest has another question under their ids, or none.
        bare: How many have no frames, which are no longer in the cache.
    """

    tasks: list[dict[str, Any]]
    changed: int
    bare: int


def label_studio_tasks(connection: Connection, scope: Scope, sources: Sources, *, limit: int) -> ReviewTasks:
    """Make a task of each of the labels of the lowest margins.

    Raises:
        ConfigurationError: The manifest cannot be read, or there is no label.
    """
    job_ids = least_certain(connection, scope, limit=limit)
    if not job_ids:
        raise ConfigurationError("This run has no labels to review; answers in words have no choices to correct.")
    cards, note = load_jobs(
        connection,
        scope,
        sources,
        selected=dict.fromkeys(job_ids, ()),
        before={},
        max_videos=len(job_ids) * MAX_MEDIA,
    )
    if note:
        raise ConfigurationError(note)
    tasks = [task for card in cards if (task := _task(card))]
    return ReviewTasks(tasks, len(job_ids) - len(tasks), sum(not task["data"][_FRAMES] for task in tasks))


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
        },
        "predictions": [
            {"model_version": card.row["spec_id"], "score": dict(card.choices).get(label), "result": [answer]}
        ],
    }
