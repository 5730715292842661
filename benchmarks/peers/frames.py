"""The videos of frame cases on the store, and what scripts are asked about them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.peers.cases import FRAMES, FrameCase
from benchmarks.peers.scripts.job import FrameJob

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.peers.cases import Case
    from benchmarks.peers.measure import Bench
    from reelabel.sources.object_store import ObjectStore


class FrameVideos:
    """Uploads videos, each once."""

    def __init__(self, folder: Path, objects: ObjectStore, root_uri: str) -> None:
        """Upload nothing yet.

        Args:
            folder: Folder that keeps clips.
            objects: The store.
            root_uri: Where videos are put.
        """
        self._folder = folder
        self._objects = objects
        self._root_uri = root_uri
        self._stored: set[str] = set()

    def ask(self, case: Case, bench: Bench) -> Callable[[str], FrameJob]:
        """Store the videos of a case; return what makes a script's job, given its folder."""
        assert isinstance(case, FrameCase)
        uris = [f"{self._root_uri}/{case.folder_name}/{name}" for name in case.file_names]
        body = case.clip.make(self._folder).read_bytes()
        for uri in uris:
            if uri not in self._stored:
                self._store(uri, body)
        return partial(_job, case, uris, bench)

    def _store(self, uri: str, body: bytes) -> None:
        if "gone" not in uri:
            # Its index is at the end of the file, and lost with it.
            self._objects.replace(uri, body[: len(body) // 2] if "broken" in uri else body)
        self._stored.add(uri)


def _job(case: FrameCase, uris: list[str], bench: Bench, folder: str) -> FrameJob:
    return FrameJob(
        uris=uris,
        choice=case.choice,
        frames=FRAMES,
        start_s=case.start_s,
        end_s=case.end_s,
        fps=case.fps,
        is_whole=case.is_whole,
        folder=folder,
        **bench.reach(),
    )
