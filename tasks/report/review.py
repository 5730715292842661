"""Exports the least certain labels of a run for reviewers, with the frames that the model saw."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, NamedTuple

from reelabel.errors import ConfigurationError
from tasks.domain.job import MAX_MEDIA
from tasks.manifest.importers.reviewed import ANSWER
from tasks.report.jobs import least_certain, load_jobs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from tasks.database.scope import Scope
    from tasks.report.frames import Frame
    from tasks.report.jobs import JobCard, Sources

_FRAMES = "frames"


class Uncertain(NamedTuple):
    """The labelled jobs to review, the lowest margin first."""

    jobs: list[JobCard]
    changed: int  # left out because the manifest has another question under their ids, or none
    bare: int  # without frames in the cache


def load_uncertain(connection: Connection, scope: Scope, sources: Sources, *, limit: int) -> Uncertain:
    """Load the labels with the lowest margins.

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
    jobs = [card for card in cards if card.job is not None and card.choices is not None]
    return Uncertain(jobs, len(job_ids) - len(jobs), sum(not _frames(card) for card in jobs))


def label_studio_task(card: JobCard) -> dict[str, Any]:
    """Return a job as Label Studio imports it, its label as a prediction."""
    assert card.job is not None
    label = card.row["label"]
    answer = {"from_name": ANSWER, "to_name": _FRAMES, "type": "choices", "value": {"choices": [label]}}
    return {
        "data": {
            "job_id": card.job_id,
            "prompt": card.job.prompt,
            "choices": [{"value": choice} for choice in card.job.choices],
            _FRAMES: [frame.image for frame in _frames(card)],
            "video": card.video,
            "margin": card.row["margin"],
        },
        "predictions": [{"model_version": card.row["spec_id"], "score": _confidence(card), "result": [answer]}],
    }


def fiftyone_samples(card: JobCard) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield each frame of a job as FiftyOne's `Sample.from_dict` takes it, without `filepath`, and as WebP."""
    assert card.job is not None
    for number, frame in enumerate(_frames(card)):
        sample = {
            "tags": [],
            "job_id": card.job_id,
            "frame": number,
            "time_s": frame.time_s,
            "prompt": card.job.prompt,
            "choices": list(card.job.choices),
            "prediction": _classification(card.row["label"], _confidence(card)),
            "ground_truth": _classification(card.job.answer) if card.job.answer else None,
            "margin": card.row["margin"],
            "video": card.video,
            "spec_id": card.row["spec_id"],
        }
        assert frame.image is not None
        yield sample, base64.b64decode(frame.image.partition(",")[2])


def _frames(card: JobCard) -> list[Frame]:
    return [frame for strip in card.strips for frame in strip.frames if frame.image]


def _confidence(card: JobCard) -> float | None:
    return dict(card.choices or ()).get(card.row["label"])


def _classification(label: str, confidence: float | None = None) -> dict[str, Any]:
    return {"_cls": "Classification", "label": label, "confidence": confidence}
