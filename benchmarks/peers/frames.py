"""Sixteen frames of each of many videos, whole or cut out of an hour, and of videos that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.media.clips import FPS, BenchClip
from benchmarks.peers.measure import Case, count_faults
from benchmarks.peers.scripts.job import FrameJob
from reelabel.sources.object_store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.peers.measure import Bench, Rows
    from benchmarks.peers.peer import Peer
    from infra.settings import StoreSettings

FRAMES = 16
SHORT_S, LONG_S, FILM_S = _LENGTHS_S = (32, 600, 3600)  # the shortest has 16 keyframes
_SEGMENT_S = 30
_DIRTY_EVERY, _DIRTY_FIRST = 50, 7
_KEYFRAME_RATIO = 3.0  # of long clips


@dataclass(frozen=True, kw_only=True)
class FrameCase(Case):
    """Sixteen frames, `keyframes` or `uniform`, of a part of each of some copies of a clip on the store.

    Some of the videos of a dirty case cannot be read.
    """

    clip: BenchClip
    copies: int
    choice: str
    start_s: float
    end_s: float
    is_dirty: bool = False

    kind = "frames"

    def is_for(self, peer: Peer) -> bool:
        return super().is_for(peer) and (peer.has_keyframes or self.choice != "keyframes")

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
            for number in range(_DIRTY_FIRST, self.copies, _DIRTY_EVERY):
                names[number] += "-broken"
            names[1], names[2] = f"{names[1]}-stalls", f"{names[2]}-gone"
        return [f"{name}.mp4" for name in names]

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
    lengths = zip(_LENGTHS_S, (shorts, longs, films), ("32 s", "600 s", "1 h"), strict=True)
    whole = [(_clip(length_s), copies, name) for length_s, copies, name in lengths if copies]
    cases = [
        FrameCase(
            name=f"{choice}, {copies} of {name}",
            clip=clip,
            copies=copies,
            choice=choice,
            start_s=0,
            end_s=clip.length_s,
            least_ratio=_KEYFRAME_RATIO if (choice, clip.length_s) == ("keyframes", LONG_S) else 1.0,
        )
        for choice in ("keyframes", "uniform")
        for clip, copies, name in whole
    ]
    if films:
        name, start_s, clip = f"uniform, 30 s out of {films} of 1 h", FILM_S / 2, _clip(FILM_S)
        end_s = start_s + _SEGMENT_S
        cases.append(FrameCase(name=name, clip=clip, copies=films, choice="uniform", start_s=start_s, end_s=end_s))
    return cases


def dirty_case(shorts: int) -> FrameCase:
    """Return the case of clips of which one in fifty is broken, one is missing, and one stops in the middle."""
    name, clip = f"uniform, {shorts} of 32 s, some broken", _clip(SHORT_S)
    return FrameCase(name=name, clip=clip, copies=shorts, choice="uniform", start_s=0, end_s=SHORT_S, is_dirty=True)


def _clip(length_s: int) -> BenchClip:
    return BenchClip(width_px=640, height_px=360, gop=60, length_s=length_s)


class FrameVideos:
    """Uploads the videos of cases, each once, from clips that a folder keeps."""

    def __init__(self, cases: Sequence[FrameCase], folder: Path, store: StoreSettings) -> None:
        self.sequences = [[case] for case in cases]
        self.environment: dict[str, str] = {}
        self._folder, self._objects, self._root_uri = folder, ObjectStore(store), f"{store.uri}/peers"
        self._stored: set[str] = set()

    def job(self, case: FrameCase, bench: Bench, folder: str) -> FrameJob:
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
            is_whole=case.end_s - case.start_s == case.clip.length_s,
            folder=folder,
            **bench.reach(),
        )
