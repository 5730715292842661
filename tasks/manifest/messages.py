"""Questions as OpenAI chat messages: one video and its text, in content parts."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import polars as pl

from reelabel.integrations.chat_messages import parse_messages, without_nulls
from tasks.manifest.schema import ROW, Fault, row_fault

# The columns that messages replace, in the order of `MessageContent`'s attributes.
_REPLACED = ("video_uri", "prompt", "system_prompt")
_QUESTION = pl.Struct(dict.fromkeys(_REPLACED, pl.String))


def messages_as_json(column: pl.Series) -> pl.Series:
    """Convert messages from lists of structs to JSON; fields that a part does not have are omitted.

    Values that JSON cannot represent become null, and are reported later if they are needed.
    """
    texts = [
        None if value is None else json.dumps(without_nulls(value), default=lambda _: None)
        for value in column.to_list()
    ]
    return pl.Series(column.name, texts, dtype=pl.String)


def fill_from_messages(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[Fault]]:
    """Fill `video_uri`, `prompt` and `system_prompt` of rows that have messages.

    Args:
        frame: The manifest's columns, with `messages` as JSON, and row numbers as `ROW`.

    Returns:
        The frame, and the faults of its messages; rows with a fault are unchanged.
    """
    broken: dict[str, list[tuple[int, object]]] = defaultdict(list)
    if frame["messages"].null_count() == len(frame):
        return frame, []
    questions: list[dict[str, str | None] | None] = [None] * len(frame)
    rows = frame.select(ROW, "job_id", "messages", *_REPLACED).with_row_index("place").drop_nulls("messages")
    for row in rows.iter_rows(named=True):
        try:
            questions[row["place"]] = _question(row)
        except ValueError as error:
            broken[f"messages: {error}."].append((row[ROW], row["job_id"]))
    faults = [row_fault(rule, "job_id", found) for rule, found in broken.items()]
    asked = pl.Series("asked", questions, dtype=_QUESTION)
    given = [pl.coalesce(asked.struct.field(name), pl.col(name)).alias(name) for name in _REPLACED]
    return frame.with_columns(given), faults


def _question(row: dict[str, Any]) -> dict[str, str | None]:
    try:
        messages = json.loads(row["messages"])
    except (ValueError, RecursionError):  # the latter if nested too deeply
        raise ValueError("not JSON") from None
    question = parse_messages(messages)
    found = {name: getattr(question, name) for name in _REPLACED}
    twice = [name for name in _REPLACED if found[name] is not None and row[name] is not None]
    if twice:
        raise ValueError(f"{' and '.join(twice)} given both in messages and in a column; leave one out")
    return found
