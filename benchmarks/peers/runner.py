"""`python -m benchmarks peers`: services of its own, a relay that counts, and what is asked of everyone."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.console import PROGRESS
from benchmarks.peers.cases import OURS, PEERS, dirty_case, frame_cases
from benchmarks.peers.counter import CountingRelay
from benchmarks.peers.frames import FrameVideos
from benchmarks.peers.measure import Bench, pythons_of
from benchmarks.services import own_services
from infra.embedded import ServiceName
from reelabel.sources.object_store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.status import Status

    from benchmarks.peers.cases import FrameCase
    from benchmarks.peers.measure import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What is compared, and how often.

    Attributes:
        names: Scripts of the peers, beside ours.
        folder: Folder that keeps clips and environments.
        rounds: Runs of each peer on each case.
        limit_s: Seconds after which a run is ended.
    """

    names: Sequence[str]
    folder: Path
    rounds: int
    limit_s: float

    def frames(self, counts: tuple[int, int, int]) -> list[Outcome]:
        """Ask for frames of so many clips of 32 s, of 600 s and of an hour."""
        return self._frames(frame_cases(*counts))

    def dirty_frames(self, clips: int) -> list[Outcome]:
        """Ask for frames of clips of which some cannot be read."""
        return self._frames([dirty_case(clips)])

    def _frames(self, cases: Sequence[FrameCase]) -> list[Outcome]:
        peers = [OURS, *(peer for peer in PEERS if peer.script in self.names)]
        with self._bench() as (bench, videos), PROGRESS.status("Making environments, which takes minutes") as status:
            show = partial(_show, status)
            pythons = pythons_of(peers, self.folder)
            return [
                outcome
                for case in cases
                for outcome in bench.measure(peers, case, pythons, ask=videos.ask(case, bench), on_run=show)
            ]

    @contextmanager
    def _bench(self) -> Iterator[tuple[Bench, FrameVideos]]:
        with own_services(frozenset({ServiceName.S3})) as settings, TemporaryDirectory(prefix="reelabel-") as logs:
            store = settings.store
            assert store.endpoint_url
            assert store.ca_file
            videos = FrameVideos(self.folder, ObjectStore(store), f"{store.uri}/peers")
            with CountingRelay(store.endpoint_url, store.ca_file) as relay:
                yield Bench(store=store, relay=relay, logs=Path(logs), rounds=self.rounds, limit_s=self.limit_s), videos


def _show(status: Status, text: str) -> None:
    """Show progress: in place on a terminal, else line by line, so that a run that is cut short leaves something."""
    status.update(text)
    if not PROGRESS.is_terminal:
        PROGRESS.print(text, soft_wrap=True)
