"""Selection of a manifest's jobs, for the command line and the parameters of a deployment."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field


def _in_utc(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _read_time(value: object) -> object:
    # Pydantic would read a number as Unix time, such as 20261101, which is meant as a date.
    if isinstance(value, datetime):
        return value
    try:
        return datetime.fromisoformat(str(value))
    except ValueError:
        raise ValueError("not a time; write 2026-11-01 or 2026-11-01T02:00:00+01:00") from None


Time = Annotated[datetime, BeforeValidator(_read_time), AfterValidator(_in_utc)]


class Selection(BaseModel):
    """Jobs by outcome; a field left empty does not filter.

    `failed`, `missing`, `changed_video`, and `label` or `margin_below` select states; these and the jobs named by
    id are combined.
    `run`, `task`, `since`, `until` and `where` then filter the result. Without any state or id, they filter all jobs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    failed: bool = False
    """Failed jobs."""
    code: str | None = Field(None, max_length=100)
    """Failed jobs with this error code, such as video_missing."""
    missing: bool = False
    """Jobs without a result, or whose question has changed since."""
    changed_video: bool = False
    """Jobs whose video has changed since they were answered."""
    label: str | None = None
    """Jobs with this label."""
    margin_below: float | None = Field(None, gt=0, le=1)
    """Jobs whose two best choices differ by less than this in probability."""
    run: str | None = Field(None, max_length=40)
    """Only results of this run: its id, a prefix of it, or last."""
    task: str | None = None
    """Only jobs of this task."""
    since: Time | None = None
    """Only results at or after this time; UTC by default."""
    until: Time | None = None
    """Only results before this time; UTC by default."""
    where: str | None = Field(None, min_length=1, max_length=20_000)
    """Only jobs that match this SQL condition, such as entropy_nats > 1."""
    limit: int | None = Field(None, ge=1)
    """Maximum number of jobs to answer, in manifest order."""
    skip_unknown: bool = False
    """Ignore ids that are not in the manifest, instead of failing."""

    @property
    def by_failure(self) -> bool:
        return self.failed or self.code is not None

    @property
    def by_label(self) -> bool:
        return self.label is not None or self.margin_below is not None

    @property
    def names_states(self) -> bool:
        return self.by_failure or self.missing or self.changed_video or self.by_label

    @property
    def is_empty(self) -> bool:
        filters = (self.run, self.task, self.since, self.until, self.where)
        return not self.names_states and all(each is None for each in filters)
