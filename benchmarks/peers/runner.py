"""`python -m benchmarks peers`: services of its own, a relay that counts, and what is asked of everyone."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.console import PROGRESS
from benchmarks.peers.cases import OURS, PEERS, dirty_case, frame_cases
from benchmarks.peers.counter import CountingRelay
from benchmarks.peers.frames import FrameVideos
from benchmarks.peers.measure import Bench, pythons_of
from benchmarks.services import ALL, own_services
from infra.embedded import ServiceName, export
from reelabel.sources.object_store import ObjectStore
from tasks.database.schema import prepare_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from benchmarks.peers.cases import Case, FrameCase
    from benchmarks.peers.measure import Outcome
    from infra.settings import Settings


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
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

    def questions(self, count: int) -> list[Outcome]:
        """Ask so many questions, or a few more."""
        from benchmarks.peers.questions import ShapeQuestions  # noqa: PLC0415 - imports much

        with self._bench(ALL) as (bench, settings):
            prepare_database(settings.database)
            asked = ShapeQuestions(count, self.folder, ObjectStore(settings.store), settings)
            store = asked.settings.store.model_copy(update={"endpoint_url": bench.relay.url, "ca_file": None})
            own = export(asked.settings.model_copy(update={"store": store}))
            return self._measure(bench, [(asked.case, asked.ask(bench))], own)

    def _frames(self, cases: Sequence[FrameCase]) -> list[Outcome]:
        with self._bench(frozenset({ServiceName.S3})) as (bench, settings):
            videos = FrameVideos(self.folder, ObjectStore(settings.store), f"{settings.store.uri}/peers")
            return self._measure(bench, [(case, videos.ask(case, bench)) for case in cases], None)

    def _measure(
        self, bench: Bench, asked: Sequence[tuple[Case, Callable[[str], Any]]], own: Mapping[str, str] | None
    ) -> list[Outcome]:
        peers = [OURS, *(peer for peer in PEERS if peer.script in self.names)]
        with PROGRESS.status("Making environments; the first time takes minutes") as status:
            pythons = pythons_of(peers, self.folder)
            return [
                outcome
                for case, ask in asked
                for outcome in bench.measure(peers, case, pythons, ask=ask, on_run=status.update, variables=own)
            ]

    @contextmanager
    def _bench(self, services: frozenset[ServiceName]) -> Iterator[tuple[Bench, Settings]]:
        with own_services(services) as settings, TemporaryDirectory(prefix="reelabel-") as logs:
            assert settings.store.endpoint_url
            assert settings.store.ca_file
            with CountingRelay(settings.store.endpoint_url, settings.store.ca_file) as relay:
                yield (
                    Bench(store=settings.store, relay=relay, logs=Path(logs), rounds=self.rounds, limit_s=self.limit_s),
                    settings,
                )
