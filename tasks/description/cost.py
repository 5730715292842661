"""Cost of describing a video in one run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tasks.domain.record import Merge, column, merge_records

if TYPE_CHECKING:
    from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptionCost:
    """Counts, and milliseconds by step; all are 0 for steps that an earlier run has cached.

    Each field is a column of the table of descriptions.
    """

    frames_decoded: int = column(
        Merge.SUM, "Frames output by decoders, to be embedded or to verify scene changes.", default=0
    )
    frames_embedded: int = column(Merge.SUM, "Frames given to the image encoder.", default=0)
    bytes_fetched: int = column(Merge.SUM, "Bytes of the video read.", default=0, bits=64)
    fetch_ms: float = column(Merge.SUM, "Time waiting for the store.", default=0.0)
    decode_ms: float = column(Merge.SUM, "Time decoding, without `fetch_ms`.", default=0.0)
    cache_write_ms: float = column(Merge.SUM, "Time encoding and writing frame files and embedding files.", default=0.0)
    cache_read_ms: float = column(Merge.SUM, "Time looking up and reading them.", default=0.0)
    embed_ms: float = column(
        Merge.SUM, "Time of the image encoder; of shared requests, the video's share.", default=0.0
    )
    scenes_ms: float = column(Merge.SUM, "Time detecting scene changes.", default=0.0)
    describe_ms: float = column(Merge.SUM, "Time comparing with the banks.", default=0.0)

    def __add__(self, other: Self) -> Self:
        return merge_records(self, other)

    def by_stage(self) -> dict[str, float]:
        """Return the milliseconds of each stage, by its name, such as `cache write`."""
        return {
            name.removesuffix("_ms").replace("_", " "): value
            for name, value in asdict(self).items()
            if name.endswith("_ms")
        }
