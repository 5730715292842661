"""The clips that a manifest's jobs are about, and a random sample of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from reelabel.segment import WHOLE, Segment
from tasks.manifest.media import videos_of
from tasks.manifest.schema import ROW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.manifest.table import JobTable

_SEED = 20_000
_CLIP = ("video_uri", "start_s", "end_s")
_TAGS = ("task", "subtask")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """The task and subtask of a job; None if it has none."""

    task: str | None = None
    subtask: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """A video, or a segment of one, that jobs are about.

    Attributes:
        tags: The different tags of its jobs.
        share: The part of its video that it stands for, if what is counted belongs to the video: 1 divided by the
            number of the video's clips.
    """

    uri: str
    segment: Segment = WHOLE
    tags: tuple[Tags, ...] = (Tags(),)
    share: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestClips:
    """The clips of a manifest, of which some are drawn.

    Attributes:
        drawn: The clips to look at, in random order, so that the first of them are a random sample as well.
        clips_by_tags: Number of clips with jobs of each task and subtask.
    """

    drawn: Sequence[Clip]
    clips: int
    videos: int
    jobs: int
    clips_by_tags: dict[Tags, int]


def draw_clips(jobs: JobTable, most: int | None = None) -> ManifestClips:
    """Draw some clips of a manifest at random, with a fixed seed, without replacement; None draws all."""
    tagged = pl.concat([_tagged(part) for part in jobs.parts()]).unique()
    clips = tagged.select(_CLIP).unique().sort(_CLIP, nulls_last=False)
    per_video = clips.group_by("video_uri").len("clips_of_video")
    order = np.random.default_rng(_SEED).permutation(len(clips))[:most]
    drawn = clips[order].with_row_index("number").join(per_video, on="video_uri", how="left")
    tags = pl.struct(*_TAGS).sort().alias("tags")
    rows = drawn.join(tagged, on=_CLIP, how="left", nulls_equal=True).group_by("number", *_CLIP, "clips_of_video")
    counts = tagged.group_by(_TAGS).len().sort(_TAGS)
    return ManifestClips(
        drawn=[_clip(row) for row in rows.agg(tags).sort("number").iter_rows(named=True)],
        clips=len(clips),
        videos=len(per_video),
        jobs=len(jobs),
        clips_by_tags={Tags(task=task, subtask=subtask): count for task, subtask, count in counts.iter_rows()},
    )


def _tagged(part: pl.DataFrame) -> pl.DataFrame:
    """Return the distinct clips of jobs with their tags; a start at 0 equals no start, and images are no clips."""
    start = pl.when(pl.col("start_s") != 0).then(pl.col("start_s")).alias("start_s")
    if part["media"].null_count() < len(part):
        part = part.drop("video_uri").join(videos_of(part).rename({"uri": "video_uri"}), on=ROW)
    return part.select(*_CLIP, *_TAGS).with_columns(start).unique()


def _clip(row: dict[str, object]) -> Clip:
    return Clip(
        uri=str(row["video_uri"]),
        segment=Segment.of(row["start_s"], row["end_s"]),  # type: ignore[arg-type]
        tags=tuple(Tags(**each) for each in row["tags"]),  # type: ignore[attr-defined]
        share=1 / int(str(row["clips_of_video"])),
    )
