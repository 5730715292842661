"""The columns of a manifest."""

from __future__ import annotations

import polars as pl

from reelabel.sources.uri import INLINE_SCHEME, WEB_SCHEMES

REQUIRED: dict[str, pl.DataType] = {
    "job_id": pl.String(),
    "video_uri": pl.String(),
    "prompt": pl.String(),
    "choices": pl.List(pl.String()),
}
OPTIONAL: dict[str, pl.DataType] = {
    "start_s": pl.Float64(),
    "end_s": pl.Float64(),
    "messages": pl.String(),
    "system_prompt": pl.String(),
    "template": pl.String(),
    "examples": pl.String(),
    "answer": pl.String(),
    "task": pl.String(),
    "subtask": pl.String(),
}
COLUMNS = REQUIRED | OPTIONAL
# Additional column: a row's number in the manifest, from 0.
ROW = "row"

SCHEMES = ("s3", "file", *WEB_SCHEMES, INLINE_SCHEME)

REPLACED_BY_MESSAGES = frozenset({"video_uri", "prompt"})
# Columns that are copied to result rows; Postgres cannot store NUL.
STORED_TEXT = ("job_id", "answer", "task", "subtask")
# A Postgres index key must fit into a third of a page, together with dataset and spec.
LONGEST_ID_BYTES = 1024
