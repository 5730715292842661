"""The columns of a manifest, and of its jobs."""

from __future__ import annotations

import polars as pl

from infra.text_bounds import MAX_CHOICE, MAX_ID, MAX_INLINE, MAX_SCHEMA, MAX_TEXT
from reelabel.sources.object_info import CLOUD_SCHEMES, INLINE_SCHEME, WEB_SCHEMES

REQUIRED: dict[str, pl.DataType] = {
    "job_id": pl.String(),
    "video_uri": pl.String(),
    "prompt": pl.String(),
}
OPTIONAL: dict[str, pl.DataType] = {
    "choices": pl.List(pl.String()),
    "schema": pl.String(),
    "start_s": pl.Float64(),
    "end_s": pl.Float64(),
    "messages": pl.String(),
    "system_prompt": pl.String(),
    "template": pl.String(),
    "examples": pl.String(),
    "answer": pl.String(),
    "task": pl.String(),
    "subtask": pl.String(),
    "video_uris": pl.List(pl.String()),
}
COLUMNS = REQUIRED | OPTIONAL
# In place of several `video_uris`, or of `messages` with several videos or images: what such a job shows, in order.
MEDIA = pl.List(pl.Struct({"kind": pl.String(), "uri": pl.String()}))
# The columns of jobs: those of a manifest, with `video_uris` and `messages` resolved.
JOB_COLUMNS: dict[str, pl.DataType] = {name: kind for name, kind in COLUMNS.items() if name != "video_uris"} | {
    "media": MEDIA
}
# What a job that only describes its video lacks, with what stands in its place.
QUESTION: dict[str, object] = {"prompt": "", "choices": [], "schema": None, "system_prompt": None, "template": None}
QUESTION |= {"examples": None, "answer": None}
# Additional column: a row's number in the manifest, from 0.
ROW = "row"

SCHEMES = ("s3", "file", *CLOUD_SCHEMES, *WEB_SCHEMES, INLINE_SCHEME)

# The required columns that rows need not have where they have another one, by its name.
REPLACED = {"messages": frozenset({"video_uri", "prompt"}), "video_uris": frozenset({"video_uri"})}
# Characters of a text, or of each text of a list. Most URIs are shorter: see `tasks.manifest.check`.
MAX_CHARACTERS: dict[str, int] = {
    "job_id": MAX_ID,
    "video_uri": MAX_INLINE,
    "prompt": MAX_TEXT,
    "choices": MAX_CHOICE,
    "schema": MAX_SCHEMA,
    "messages": MAX_INLINE,
    "system_prompt": MAX_TEXT,
    "template": MAX_TEXT,
    "examples": MAX_TEXT,
    "answer": MAX_CHOICE,
    "task": MAX_ID,
    "subtask": MAX_ID,
    "video_uris": MAX_INLINE,
}
# A Postgres index key must fit into a third of a page, together with dataset and spec.
LONGEST_ID_BYTES = MAX_ID
