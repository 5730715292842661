"""What a user may say when starting a run: the command line's options and the Prefect form's fields."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Manifest = Annotated[
    str,
    Field(
        min_length=1,
        description="Parquet file of jobs, or a glob of such: a path, or s3://bucket/jobs/*.parquet.",
    ),
]
Dataset = Annotated[
    str | None,
    Field(description="Name under which job ids are unique; empty is the manifest's file name."),
]
NumFrames = Annotated[
    int | None,
    Field(ge=1, le=512, description="Frames shown to the model per video; empty takes the setting (16)."),
]
Model = Annotated[
    str | None,
    Field(description="Model folder or hub name; empty takes the setting, or the tiny model that ships."),
]
JobIds = Annotated[
    list[str],
    Field(description="Jobs to ask again, by id; those with a valid label are left alone unless forced."),
]
Failed = Annotated[bool, Field(description="Ask again every job that ended as a failure.")]
Force = Annotated[bool, Field(description="Ask again even where a valid label stands.")]
