"""A request's job: a row of a manifest, by the manifest's own rules."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import polars as pl

from flows.serve.answers import RequestRefusedError
from tasks.manifest.check import check_rows
from tasks.manifest.digests import job_of
from tasks.manifest.schema import COLUMNS, ROW

if TYPE_CHECKING:
    from tasks.domain import Job

# Of the only job of a request; it is in no table.
JOB_ID = "request"


def job_from(values: dict[str, Any], *, upload: str | None, questions: bool = True) -> Job:
    """Check the values of a job as a manifest's row is checked.

    Args:
        values: By column of a manifest.
        upload: Path of its video, if that was uploaded.
        questions: Whether it asks something.

    Raises:
        RequestRefusedError: They break rules, which the message names, or name no video, or two.
    """
    uri = values.get("video_uri")
    if (uri is None) == (upload is None):
        why = "Name a video_uri, or upload a video" if uri is None else "Upload a video or name a video_uri, not both"
        raise _refuse(f"{why}.")
    row = dict.fromkeys(COLUMNS) | values | {"job_id": JOB_ID, "video_uri": upload or uri}
    frame = pl.DataFrame({name: [row[name]] for name in COLUMNS}, schema=COLUMNS).with_row_index(ROW)
    checked, faults = check_rows(frame, questions=questions)
    if faults:
        raise _refuse(" ".join(fault.rule for fault in faults))
    return job_of(checked.drop(ROW).row(0, named=True))


def _refuse(message: str) -> RequestRefusedError:
    return RequestRefusedError(message, code="invalid_request", status=HTTPStatus.UNPROCESSABLE_ENTITY)
