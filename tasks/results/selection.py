"""Which jobs of a manifest a user means, in words: the same for the command line and the form."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field


def _in_utc(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _read_time(value: object) -> object:
    # Digits alone would be taken for seconds since 1970, where a date is meant.
    if isinstance(value, datetime):
        return value
    try:
        return datetime.fromisoformat(str(value))
    except ValueError:
        raise ValueError("it is no time; write 2026-11-01, or 2026-11-01T02:00:00+01:00") from None


Time = Annotated[datetime, BeforeValidator(_read_time), AfterValidator(_in_utc)]


class Selection(BaseModel):
    """Jobs by how they ended; what is left empty leaves none out.

    `failed`, `missing`, and `label` or `margin_below` choose states, which add up, and with them the jobs that are
    named by id. `run`, `task`, `since`, `until` and `where` then leave out all others. Where no state and no id is
    given, every job is chosen.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    failed: Annotated[bool, Field(description="Jobs that ended as a failure.")] = False
    code: Annotated[
        str | None, Field(max_length=100, description="Only failures of this code, such as video_missing.")
    ] = None
    missing: Annotated[bool, Field(description="Jobs that have not ended, or whose question has changed since.")] = (
        False
    )
    label: Annotated[str | None, Field(description="Jobs with this label.")] = None
    margin_below: Annotated[
        float | None,
        Field(gt=0, le=1, description="Jobs whose two most probable choices lie closer together than this."),
    ] = None
    run: Annotated[
        str | None, Field(max_length=40, description="Only what this run wrote: its id, its beginning, or last.")
    ] = None
    task: Annotated[str | None, Field(description="Only jobs of this task.")] = None
    since: Annotated[Time | None, Field(description="Only what ended at this time or later; UTC unless it says.")] = (
        None
    )
    until: Annotated[Time | None, Field(description="Only what ended before this time; UTC unless it says.")] = None
    where: Annotated[
        str | None,
        Field(min_length=1, max_length=20_000, description="Only jobs for which this SQL holds, as: entropy_nats > 1."),
    ] = None
    limit: Annotated[int | None, Field(ge=1, description="Ask at most so many, the first of the manifest.")] = None
    skip_unknown: Annotated[
        bool, Field(description="Pass over ids that are not in the manifest, instead of stopping.")
    ] = False

    @property
    def by_failure(self) -> bool:
        """Whether failed jobs are meant."""
        return self.failed or self.code is not None

    @property
    def by_label(self) -> bool:
        """Whether labelled jobs are meant."""
        return self.label is not None or self.margin_below is not None

    @property
    def names_states(self) -> bool:
        """Whether jobs are meant by how they ended."""
        return self.by_failure or self.missing or self.by_label

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing about which jobs are meant."""
        filters = (self.run, self.task, self.since, self.until, self.where)
        return not self.names_states and all(each is None for each in filters)
