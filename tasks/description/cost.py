"""Cost of describing a video in one run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from tasks.domain.record import Merge, column, merge_records

if TYPE_CHECKING:
    from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptionCost:
    """Counts, and milliseconds by step; all are 0 for steps that an earlier run has cached.

    Each field is a column of the table of descriptions.

    Attributes:
        frames_decoded: Frames output by decoders, to be embedded or to verify scene changes.
        frames_embedded: Frames given to the image encoder.
        bytes_fetched: Bytes of the video read.
        fetch_ms: Time waiting for the store.
        decode_ms: Time decoding, without `fetch_ms`.
        cache_write_ms: Time encoding and writing frame files and embedding files.
        cache_read_ms: Time looking up and reading them.
        embed_ms: Time of the image encoder; of shared requests, the video's share.
        scenes_ms: Time detecting scene changes.
        describe_ms: Time comparing with the banks.
    """

    frames_decoded: int = field(default=0, metadata=column(Merge.SUM))
    frames_embedded: int = field(default=0, metadata=column(Merge.SUM))
    bytes_fetched: int = field(default=0, metadata=column(Merge.SUM, bits=64))
    fetch_ms: float = field(default=0.0, metadata=column(Merge.SUM))
    decode_ms: float = field(default=0.0, metadata=column(Merge.SUM))
    cache_write_ms: float = field(default=0.0, metadata=column(Merge.SUM))
    cache_read_ms: float = field(default=0.0, metadata=column(Merge.SUM))
    embed_ms: float = field(default=0.0, metadata=column(Merge.SUM))
    scenes_ms: float = field(default=0.0, metadata=column(Merge.SUM))
    describe_ms: float = field(default=0.0, metadata=column(Merge.SUM))

    def __add__(self, other: Self) -> Self:
        """Sum two costs."""
        return merge_records(self, other)

    def by_stage(self) -> dict[str, float]:
        """Return the milliseconds of each stage, by its name, such as `cache write`."""
        return {
            name.removesuffix("_ms").replace("_", " "): value
            for name, value in asdict(self).items()
            if name.endswith("_ms")
        }
