"""What the rows of jobs show: videos and images."""

from __future__ import annotations

import polars as pl

from tasks.domain import ONE_VIDEO, MediaCounts
from tasks.manifest.schema import ROW

# Videos of each row with media; null for a row with one video.
_COUNT_VIDEOS = pl.col("media").list.eval(pl.element().struct.field("kind") == "video").list.sum()


# All that a row shows, as one text; for a row with one video, its URI.
ALL_URIS = pl.coalesce(pl.col("media").list.eval(pl.element().struct.field("uri")).list.join("\n"), "video_uri")


def most_media(rows: pl.DataFrame) -> MediaCounts:
    """Return the most videos and images that one of some jobs shows."""
    if rows["media"].null_count() == len(rows):
        return ONE_VIDEO
    most = rows.select(videos=_COUNT_VIDEOS, images=pl.col("media").list.len() - _COUNT_VIDEOS).max()
    return ONE_VIDEO.larger(MediaCounts(*most.row(0)))


def media_of(part: pl.DataFrame) -> pl.DataFrame:
    """Return each row and what it shows: `row`, `kind` and `uri`, in the order of the rows, and shown in a row."""
    single = part.filter(pl.col("media").is_null())
    shown = part.select(ROW, "media").drop_nulls("media").explode("media").unnest("media")
    alone = single.select(ROW, kind=pl.lit("video"), uri="video_uri")
    return pl.concat([alone, shown]).sort(ROW, maintain_order=True) if len(shown) else alone


def videos_of(part: pl.DataFrame) -> pl.DataFrame:
    """Return each row and the videos that it shows: as of `media_of`, without images."""
    return media_of(part).filter(pl.col("kind") == "video")
