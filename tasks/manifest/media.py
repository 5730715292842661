"""The videos and images that rows show, from `video_uri`, `video_uris`, or OpenAI chat messages."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from infra.text_bounds import MAX_INLINE, too_long
from reelabel.integrations.chat_messages import parse_messages, without_nulls
from tasks.domain import ONE_VIDEO, MediaCounts
from tasks.manifest.rejects import VIOLATIONS, find_violations
from tasks.manifest.schema import MEDIA, ROW

# Null for a row with one video.
_COUNT_VIDEOS = pl.col("media").list.eval(pl.element().struct.field("kind") == "video").list.sum()


# The URIs of everything that a row shows, as one text.
ALL_URIS = pl.coalesce(pl.col("media").list.eval(pl.element().struct.field("uri")).list.join("\n"), "video_uri")


def max_media(rows: pl.DataFrame) -> MediaCounts:
    """Return the largest numbers of videos and of images that a job shows."""
    if rows["media"].null_count() == len(rows):
        return ONE_VIDEO
    largest = rows.select(videos=_COUNT_VIDEOS, images=pl.col("media").list.len() - _COUNT_VIDEOS).max()
    return ONE_VIDEO.larger(MediaCounts(*largest.row(0)))


def media_of(part: pl.DataFrame) -> pl.DataFrame:
    """Return `row`, `kind` and `uri` of every video and image, in the order of rows and of the media in each."""
    single = part.filter(pl.col("media").is_null())
    shown = part.select(ROW, "media").drop_nulls("media").explode("media").unnest("media")
    alone = single.select(ROW, kind=pl.lit("video"), uri="video_uri")
    return pl.concat([alone, shown]).sort(ROW, maintain_order=True) if len(shown) else alone


def videos_of(part: pl.DataFrame) -> pl.DataFrame:
    return media_of(part).filter(pl.col("kind") == "video")


# The columns that messages replace.
_REPLACED = ("video_uri", "prompt", "system_prompt")
_QUESTION = pl.Struct({**dict.fromkeys(_REPLACED, pl.String), "media": MEDIA})


def messages_as_json(column: pl.Series) -> pl.Series:
    """Convert messages from lists of structs to JSON; fields that a part does not have are omitted.

    Values that JSON cannot represent become null, and are reported later if they are needed.
    """
    texts = [
        None if value is None else json.dumps(without_nulls(value), default=lambda _: None)
        for value in column.to_list()
    ]
    return pl.Series(column.name, texts, dtype=pl.String)


def resolve_media(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Fill the columns of jobs from `messages`, as JSON, or `video_uris`; rows with a violation are unchanged.

    The column `media` is null unless a row shows more than one video, whose first is in `video_uri`. Also return the
    violations, as `VIOLATIONS`.
    """
    resolved, found = _fill_from_messages(frame.with_columns(media=pl.lit(None, dtype=MEDIA)))
    if frame["video_uris"].null_count() == len(frame):
        return resolved, found
    uris = pl.col("video_uris")
    # With messages, `_question` reports them.
    are_both = uris.is_not_null() & pl.col("video_uri").is_not_null() & pl.col("messages").is_null()
    both = find_violations(frame, [("video_uri and video_uris are both given; leave one out.", "job_id", are_both)])
    videos = uris.list.eval(pl.struct(kind=pl.lit("video"), uri=pl.element()))
    return resolved.with_columns(
        media=pl.when(uris.list.len() > 1).then(videos).otherwise("media"),
        video_uri=pl.coalesce("video_uri", uris.list.first()),
    ), pl.concat([found, both])


def _fill_from_messages(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    broken: list[tuple[int, str | None, str, None, int]] = []
    questions: list[dict[str, Any] | None] = [None] * len(frame)
    rows = frame.select(ROW, "job_id", "messages", *_REPLACED, "video_uris").with_row_index("place")
    for row in rows.drop_nulls("messages").iter_rows(named=True):
        try:
            questions[row["place"]] = _question(row)
        except ValueError as error:
            broken.append((row[ROW], row["job_id"], f"messages: {error}.", None, 1))
    found = pl.DataFrame(broken, schema=VIOLATIONS, orient="row")
    if frame["messages"].null_count() == len(frame):
        return frame, found
    parsed = pl.Series("question", questions, dtype=_QUESTION)
    columns = [pl.coalesce(parsed.struct.field(name), pl.col(name)).alias(name) for name in (*_REPLACED, "media")]
    return frame.with_columns(columns), found


def _question(row: dict[str, Any]) -> dict[str, Any]:
    if len(row["messages"]) > MAX_INLINE:
        raise ValueError(too_long(MAX_INLINE))
    try:
        messages = json.loads(row["messages"])
    except (ValueError, RecursionError):  # the latter if nested too deeply
        raise ValueError("not JSON") from None
    question = parse_messages(messages)
    media = [{"kind": kind, "uri": uri} for kind, uri in question.media]
    found = {"video_uri": question.videos[0], "prompt": question.prompt, "system_prompt": question.system_prompt}
    twice = [name for name in _REPLACED if found[name] is not None and row[name] is not None]
    twice += ["video_uris"] if row["video_uris"] is not None else []
    if twice:
        raise ValueError(f"{' and '.join(twice)} given both in messages and in a column; leave one out")
    return found | {"media": media if len(media) > 1 else None}
