"""What the description of a video cost in one run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from tasks.domain.record import Merge, column, merge_records

if TYPE_CHECKING:
    from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptionCost:
    """Counts, and milliseconds by step; all are 0 for what an earlier run has left in the cache.

    Each field is a column of the table of descriptions.

    Attributes:
        frames_decoded: Frames output by decoders, to be embedded or to check changes of scene.
        frames_embedded: Frames given to the image encoder.
        bytes_fetched: Bytes of the video read.
        fetch_ms: Waiting for the store.
        decode_ms: Decoding, without `fetch_ms`.
        cache_write_ms: Encoding and writing frame files and embedding files.
        cache_read_ms: Looking up and reading them.
        embed_ms: The image encoder's time, of requests that videos share their part.
        scenes_ms: Finding changes of scene.
        describe_ms: Comparing with the banks.
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
