"""Descriptions of clips of moving shapes: embedded by the demo's image-text model, tagged, and searched by text."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from benchmarks.peers.measure import Case, count_faults
from benchmarks.peers.questions import LENGTH_S, upload_clips
from benchmarks.peers.scripts.job import DescriptionJob
from reelabel_engine.environment import TORCHVISION_SHIM
from tasks.demo.actors import SHAPES
from tasks.demo.captions import SHAPE_BANK
from tasks.demo.clips import FPS
from tasks.demo.shapes import COLOURS
from tasks.model.identity import TINY_ENCODER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.peers.measure import Bench, Rows
    from infra.settings import StoreSettings

_FRAMES_PER_S = 1.6  # 16 for each chunk of ten seconds, as `describe` takes by default
_DIMENSIONS = 128
_OTHER_BANK = tuple(f"a picture of {text}" for text in SHAPE_BANK)
_SEARCHED = (*SHAPE_BANK, *(f"something {colour}" for colour in COLOURS))


@dataclass(frozen=True, kw_only=True)
class DescriptionCase(Case):
    """Tags of videos, or searches over them.

    Attributes:
        texts: The label set, or what is searched for.
        truths: The colour and the shape of each video, by URI.
    """

    videos: int
    texts: tuple[str, ...]
    is_search: bool = False
    truths: Mapping[str, tuple[str, str]] = field(default_factory=dict, repr=False, compare=False)

    kind = "descriptions"
    state = "described"

    def faults(self, rows: Rows) -> dict[str, int]:
        return count_faults(rows, len(self.texts) if self.is_search else self.videos)

    def figures(self, rows: Rows) -> dict[str, int]:
        if self.is_search:
            return {"right": sum(self._fits(row["id"], row["found"]) for row in rows)}
        vectors = sum(row["vectors"] for row in rows)
        return {"vectors": vectors, "right": sum(self._fits(row["tag"], row["id"]) for row in rows)}

    def _fits(self, text: str, uri: str) -> bool:
        return uri in self.truths and _fits(text, self.truths[uri])


class DescriptionVideos:
    """Makes and uploads clips once; asks for their tags, for tags of another bank, and for searches."""

    def __init__(self, videos: int, folder: Path, store: StoreSettings) -> None:
        # With the path, torchvision can be imported beside a CPU's torch.
        self.environment = {"PYTHONPATH": str(TORCHVISION_SHIM), "TOKENIZERS_PARALLELISM": "false"}
        uploaded = upload_clips(folder, videos, store)
        self._truths = {uri: (truths["colour"], truths["shape"]) for uri, truths in uploaded.items()}
        of = partial(DescriptionCase, videos=videos, truths=self._truths)
        searched = tuple(text for text in _SEARCHED if any(_fits(text, shown) for shown in self._truths.values()))
        self.sequences = [
            [
                of(name=f"{videos} clips described", texts=SHAPE_BANK),
                of(name="again, with another bank", texts=_OTHER_BANK),
                of(name=f"{len(searched)} searches", texts=searched, is_search=True),
            ]
        ]

    def job(self, case: DescriptionCase, bench: Bench, folder: str) -> DescriptionJob:
        table = Path(folder) / "videos.parquet"
        uris = list(self._truths)
        names = [uri.rpartition("/")[2].partition(".")[0] for uri in uris]
        pl.DataFrame({"job_id": names, "video_uri": uris}).write_parquet(table)
        return DescriptionJob(
            uris=uris,
            table=str(table),
            searched=case.is_search,
            texts=list(case.texts),
            choice="uniform",
            frames=round(_FRAMES_PER_S * LENGTH_S),
            start_s=0,
            end_s=LENGTH_S,
            is_whole=True,
            fps=FPS,
            model=str(TINY_ENCODER.resolve()),
            dimensions=_DIMENSIONS,
            folder=folder,
            **bench.reach(),
        )


def _fits(text: str, shown: Sequence[str]) -> bool:
    """Return whether a text names no colour and no shape but those that are shown."""
    return set(text.split()) & {*COLOURS, *SHAPES} <= set(shown)
