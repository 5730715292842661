"""Sixteen frames of each of many videos, whole or cut out of an hour, and of videos that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.media.clips import FPS, BenchClip
from benchmarks.peers.measure import Case, count_faults
from benchmarks.peers.scripts.job import FrameJob

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.peers.measure import Bench, Rows
    from reelabel.sources.object_store import ObjectStore

FRAMES = 16
SHORT_S, LONG_S, FILM_S = _LENGTHS_S = (32, 600, 3600)  # the shortest has 16 keyframes
_SEGMENT_S = 30
_DIRTY_EVERY, _DIRTY_FIRST = 50, 7
_LEAST_RATIO = 3.0


@dataclass(frozen=True, kw_only=True)
class FrameCase(Case):
    """Sixteen frames, `keyframes` or `uniform`, of a part of each of some copies of a clip on the store.

    Attributes:
        is_dirty: Whether some of the videos cannot be read.
    """

    clip: BenchClip
    copies: int
    choice: str
    start_s: float
    end_s: float
    is_dirty: bool = False

    kind = "frames"

    @property
    def wants(self) -> str:
        return self.choice

    @property
    def least_ratio(self) -> float:
        """More than 1 where keyframes of long clips are asked for."""
        is_long = self.clip.length_s == LONG_S and self.is_whole and not self.is_dirty
        return _LEAST_RATIO if self.choice == "keyframes" and is_long else 1.0

    def figures(self, rows: Rows) -> dict[str, int]:
        """Count the frames that the library handed to the script."""
        return {"given": sum(row["given"] for row in rows)}

    @property
    def folder_name(self) -> str:
        """Name of the folder on the store; each case of videos of its own has one."""
        return f"{self.clip.name}-{self.copies}{'-dirty' * self.is_dirty}"

    @property
    def file_names(self) -> list[str]:
        """Names of the videos; one of a dirty case in fifty is broken, one stalls, and one is gone."""
        names = [f"{number:05d}" for number in range(self.copies)]
        if self.is_dirty:
            names = [
                f"{name}-broken" if number % _DIRTY_EVERY == _DIRTY_FIRST else name for number, name in enumerate(names)
            ]
            names[1], names[2] = f"{names[1]}-stalls", f"{names[2]}-gone"
        return [f"{name}.mp4" for name in names]

    @property
    def is_whole(self) -> bool:
        return self.end_s - self.start_s == self.clip.length_s

    def faults(self, rows: Rows) -> dict[str, int]:
        """Count rows that were lost, reported twice, failed though their video is whole, or lack frames.

        A video that is broken, gone or stalls should fail.
        """
        counts = count_faults(rows, self.copies)
        bad = [row for row in rows if any(word in row["id"] for word in ("-broken", "-gone", "-stalls"))]
        short = sum(not row["error"] and row["frames"] != FRAMES for row in rows if row not in bad)
        silent = sum(not row["error"] for row in bad)
        return counts | {"failed": counts["failed"] - len(bad) + silent, "short": short, "silent": silent}


def frame_cases(shorts: int, longs: int, films: int) -> list[FrameCase]:
    """Return the cases, for numbers of clips of 32 s, of 600 s and of an hour."""
    clips = {length_s: BenchClip(width_px=640, height_px=360, gop=60, length_s=length_s) for length_s in _LENGTHS_S}
    lengths = zip(_LENGTHS_S, (shorts, longs, films), ("32 s", "600 s", "1 h"), strict=True)
    whole = [(clips[length_s], copies, name) for length_s, copies, name in lengths if copies]
    cases = [
        FrameCase(
            name=f"{choice}, {copies} of {name}",
            clip=clip,
            copies=copies,
            choice=choice,
            start_s=0,
            end_s=clip.length_s,
        )
        for choice in ("keyframes", "uniform")
        for clip, copies, name in whole
    ]
    if films:
        name = f"uniform, 30 s out of {films} of 1 h"
        start_s, clip = FILM_S / 2, clips[FILM_S]
        end_s = start_s + _SEGMENT_S
        cases.append(FrameCase(name=name, clip=clip, copies=films, choice="uniform", start_s=start_s, end_s=end_s))
    return cases


def dirty_case(shorts: int) -> FrameCase:
    """Return the case of clips of which one in fifty is broken, one is missing, and one stops in the middle."""
    return FrameCase(
        name=f"uniform, {shorts} of 32 s, some broken",
        clip=BenchClip(width_px=640, height_px=360, gop=60, length_s=SHORT_S),
        copies=shorts,
        choice="uniform",
        start_s=0,
        end_s=SHORT_S,
        is_dirty=True,
    )


class FrameVideos:
    """Uploads videos below a URI, each once, from clips that a folder keeps."""

    def __init__(self, folder: Path, objects: ObjectStore, root_uri: str) -> None:
        self._folder, self._objects, self._root_uri = folder, objects, root_uri
        self._stored: set[str] = set()

    def job(self, case: Case, bench: Bench, folder: str) -> FrameJob:
        """Store the videos of a case; return a script's job, which may store something in the folder."""
        assert isinstance(case, FrameCase)
        uris = [f"{self._root_uri}/{case.folder_name}/{name}" for name in case.file_names]
        body = case.clip.make(self._folder).read_bytes()
        for uri in uris:
            if uri not in self._stored and "gone" not in uri:
                # Its index is at the end of the file, and lost with it.
                self._objects.replace(uri, body[: len(body) // 2] if "broken" in uri else body)
            self._stored.add(uri)
        return FrameJob(
            uris=uris,
            choice=case.choice,
            frames=FRAMES,
            start_s=case.start_s,
            end_s=case.end_s,
            fps=FPS,
            is_whole=case.is_whole,
            folder=folder,
            **bench.reach(),
        )
