"""`python -m benchmarks peers`: runs the comparison with separate services and a counting relay."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.harness import own_services, progress
from benchmarks.peers.counter import CountingRelay
from benchmarks.peers.decoded import DecodedFrames
from benchmarks.peers.frames import FrameVideos, dirty_case, frame_cases
from benchmarks.peers.measure import Bench, pythons_of
from benchmarks.peers.peer import OURS, PEERS
from reelabel.sources.object_store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.peers.descriptions import DescriptionVideos
    from benchmarks.peers.measure import Case, Outcome
    from benchmarks.peers.questions import QuestionVideos


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

    def frames(self, shorts: int, longs: int, films: int) -> list[Outcome]:
        return self._frames(frame_cases(shorts, longs, films))

    def dirty_frames(self, clips: int) -> list[Outcome]:
        return self._frames([dirty_case(clips)])

    def questions(self, models: Sequence[str], questions: int, *, dying: bool) -> list[Outcome]:
        """Ask so many questions, eight about each clip, and again with one of the eight reworded.

        Args:
            models: Any of `tiny` and `100m`.
            questions: Number of questions.
            dying: Instead of asking again, kill each when half is answered, and let it continue.
        """
        from benchmarks.peers.questions import QUESTIONS_PER_VIDEO, QuestionVideos  # noqa: PLC0415 - the engine's settings take seconds

        outcomes = []
        with self._bench() as bench:
            for model in models:
                count = questions // QUESTIONS_PER_VIDEO
                videos = QuestionVideos(model, count, self.folder, ObjectStore(bench.store), bench.store)
                with_engine = replace(bench, environment=videos.environment())
                outcomes += self._measure(with_engine, [videos.cases(dying=dying)], videos)
        return outcomes

    def descriptions(self, videos: int) -> list[Outcome]:
        """Describe so many clips, describe them by another bank, and search them by text."""
        from benchmarks.peers.descriptions import DescriptionVideos  # noqa: PLC0415 - as for questions

        with self._bench() as bench:
            videos_of = DescriptionVideos(videos, self.folder, ObjectStore(bench.store), bench.store)
            with_model = replace(bench, environment=videos_of.environment())
            return self._measure(with_model, [videos_of.cases()], videos_of)

    def _frames(self, cases: Sequence[Case]) -> list[Outcome]:
        with self._bench() as bench:
            videos = FrameVideos(self.folder, ObjectStore(bench.store), f"{bench.store.uri}/peers")
            return self._measure(bench, [[case] for case in cases], videos)

    def _measure(
        self,
        bench: Bench,
        sequences: Sequence[Sequence[Case]],
        videos: FrameVideos | QuestionVideos | DescriptionVideos,
    ) -> list[Outcome]:
        """Measure sequences of cases, each in a folder of its own."""
        kind = sequences[0][0].kind
        peers = [OURS, *(peer for peer in PEERS if peer.script in self.names and kind in peer.kinds)]
        with progress("Making environments, which takes minutes") as show:
            pythons = pythons_of(peers, self.folder)
            return [
                outcome
                for cases in sequences
                for outcome in bench.measure(
                    peers, cases, pythons, job=lambda case, folder: videos.job(case, bench, folder), on_run=show
                )
            ]

    @contextmanager
    def _bench(self) -> Iterator[Bench]:
        with own_services("s3") as settings, TemporaryDirectory(prefix="reelabel-") as logs:
            store = settings.store
            assert store.endpoint_url
            assert store.ca_file
            with CountingRelay(store.endpoint_url, store.ca_file) as relay:
                yield Bench(
                    store=store,
                    relay=relay,
                    logs=Path(logs),
                    rounds=self.rounds,
                    limit_s=self.limit_s,
                    counter=DecodedFrames(Path(logs)),
                )
