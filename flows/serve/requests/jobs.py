"""Validates the job and the video of a request by the rules of manifests."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, get_args

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from flows.serve.errors import RequestError, invalid
from infra.settings.types import SettingsSection
from infra.text_bounds import MAX_INLINE
from reelabel.errors import InternalError
from tasks.manifest.check import check_row
from tasks.manifest.digests import job_of
from tasks.manifest.schema import JOB_COLUMNS, QUESTION

if TYPE_CHECKING:
    from tasks.domain import Job

# Id of a request's only job; it is in no table.
JOB_ID = "request"


class VideoRequest(SettingsSection):
    """The video of a request, or a segment of it."""

    video_uri: str | None = Field(
        None,
        description="As in a manifest; leave it out to upload the video.",
        json_schema_extra={"maxLength": MAX_INLINE},
    )
    start_s: float | None = Field(None, description="Start of the segment, in seconds.")
    end_s: float | None = Field(None, description="End of the segment, in seconds.")

    @field_validator("*", mode="before")
    @classmethod
    def _check_is_no_truth(cls, value: object, info: ValidationInfo) -> object:
        """Refuse true and false as 1 and 0."""
        kind = cls.model_fields[info.field_name or ""].annotation
        kinds = {kind, *get_args(kind)}
        if isinstance(value, bool) and bool not in kinds and kinds & {int, float}:
            raise PydanticCustomError("float_type", "must be a number")
        return value


def job_from(values: dict[str, Any], *, upload: str | None, questions: bool = True) -> Job:
    """Validate the values of a job, by column, like a manifest's row.

    Args:
        values: Values by column of a manifest.
        upload: Path of the uploaded video, if any.
        questions: Whether the job has a question.

    Raises:
        RequestError: They are invalid, or name no video or two.
    """
    uri = values.get("video_uri")
    if (uri is None) == (upload is None):
        why = "Pass a video_uri, or upload a video" if uri is None else "Pass a video_uri or an upload, not both"
        raise invalid(f"{why}.")
    row = {name: None for name in JOB_COLUMNS if name != "media"} | values
    row |= {"job_id": JOB_ID, "video_uri": upload or uri, "choices": values.get("choices")}
    if faults := check_row(row, questions=questions):
        raise invalid(" ".join(faults))
    return job_of(row | ({} if questions else QUESTION))


def refuse_job(code: str, message: str, upload: str | None) -> RequestError:
    """Return the error of a failed job, without the path of an upload, which the client does not know."""
    text = message.replace(upload, "the upload") if upload else message
    is_ours = code == InternalError.code
    status = HTTPStatus.INTERNAL_SERVER_ERROR if is_ours else HTTPStatus.UNPROCESSABLE_ENTITY
    return RequestError(text, code=code, status=status)
