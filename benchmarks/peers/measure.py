"""All peers in turn, on the same videos of one S3 server."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.peers.cases import FRAMES
from benchmarks.peers.environment import peer_python
from benchmarks.peers.scripts.job import FrameJob
from benchmarks.peers.watch import Run, run_script
from reelabel.cores import usable_cores
from reelabel.errors import ReelabelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from benchmarks.peers.cases import FrameCase, Peer
    from benchmarks.peers.counter import CountingRelay, Traffic
    from infra.settings import StoreSettings
    from reelabel.sources.object_store import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All runs of one peer on one case.

    Attributes:
        peer: The peer.
        case: The case.
        runs: One a round; empty where the peer was not run.
        traffic: What each has read from the store.
        why: Why there are no runs, or how one ended that failed.
    """

    peer: Peer
    case: FrameCase
    runs: tuple[Run, ...] = field(default=(), repr=False)
    traffic: tuple[Traffic, ...] = ()
    why: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether every run ended well."""
        return bool(self.runs) and not self.why

    def middle(self, value: Callable[[Run], float]) -> float:
        """Return the median of the runs."""
        return median(map(value, self.runs))

    @property
    def read_bytes(self) -> float:
        """Median of the bytes that came from the store."""
        return median(each.received_bytes for each in self.traffic)

    @property
    def given(self) -> int:
        """Frames that the library handed to the script, in the last run."""
        return sum(row["given"] for row in self.runs[-1].rows)

    @property
    def faults(self) -> Mapping[str, int]:
        """Rows of the worst run that were lost, told twice, failed, or have another number of frames."""
        counts = [count_faults(run.rows, self.case.copies) for run in self.runs]
        return {name: max(each[name] for each in counts) for name in counts[0]} if counts else {}


def count_faults(rows: Iterable[Mapping[str, Any]], wanted: int, frames: int = FRAMES) -> dict[str, int]:
    """Count what is wrong with the rows of one run about `wanted` videos."""
    told = Counter(row["uri"] for row in rows)
    return {
        "lost": wanted - len(told),
        "doubled": sum(number - 1 for number in told.values()),
        "failed": sum(bool(row["error"]) for row in rows),
        "short": sum(not row["error"] and row["frames"] != frames for row in rows),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where and how peers are measured.

    Attributes:
        folder: Folder that keeps clips and environments.
        store: How the S3 server is reached.
        objects: The same.
        relay: Counts what it sends.
        logs: Folder for what the scripts print.
        rounds: Runs of each peer on each case.
        limit_s: Seconds after which a run is ended.
    """

    folder: Path
    store: StoreSettings
    objects: ObjectStore
    relay: CountingRelay
    logs: Path
    rounds: int
    limit_s: float
    _stored: set[str] = field(default_factory=set, init=False, repr=False)

    def measure(
        self,
        peers: Sequence[Peer],
        case: FrameCase,
        pythons: Mapping[str, Path | str | ReelabelError],
        on_run: Callable[[str], None],
    ) -> list[Outcome]:
        """Run all peers once a round; one that has failed is not run again."""
        uris = self._upload(case)
        runs: dict[str, list[tuple[Run, Traffic]]] = {peer.name: [] for peer in peers}
        why = {peer.name: peer.lack(case) or _unavailable(pythons[peer.name]) for peer in peers}
        for number in range(1, self.rounds + 1):
            for peer in peers:
                if not why[peer.name]:
                    on_run(f"{case.name}: {peer.name}, round {number} of {self.rounds}")
                    python = pythons[peer.name]
                    assert not isinstance(python, ReelabelError)
                    run, traffic = self._run(peer, python, case, uris)
                    runs[peer.name].append((run, traffic))
                    why[peer.name] = run.error
        return [
            Outcome(
                peer=peer,
                case=case,
                runs=tuple(run for run, _ in runs[peer.name]),
                traffic=tuple(traffic for _, traffic in runs[peer.name]),
                why=why[peer.name],
            )
            for peer in peers
        ]

    def _run(self, peer: Peer, python: Path | str, case: FrameCase, uris: list[str]) -> tuple[Run, Traffic]:
        before = self.relay.traffic
        with TemporaryDirectory(prefix="reelabel-") as folder:
            run = run_script(
                python,
                f"{peer.script}_frames",
                json.dumps(asdict(self._job(case, uris, folder))),
                limit_s=self.limit_s,
                log_path=self.logs / f"{peer.script}.log",
            )
        return run, self.relay.traffic.since(before)

    def _job(self, case: FrameCase, uris: list[str], folder: str) -> FrameJob:
        assert self.store.access_key_id
        assert self.store.secret_access_key
        return FrameJob(
            uris=uris,
            choice=case.choice,
            frames=FRAMES,
            start_s=case.start_s,
            end_s=case.end_s,
            fps=case.fps,
            is_whole=case.is_whole,
            endpoint=self.relay.url,
            key=self.store.access_key_id.get_secret_value(),
            secret=self.store.secret_access_key.get_secret_value(),
            cores=usable_cores(),
            folder=folder,
        )

    def _upload(self, case: FrameCase) -> list[str]:
        """Store the copies of a clip, unless they are there."""
        body = case.clip.make(self.folder).read_bytes()
        root_uri = f"{self.store.uri}/peers/{case.clip.name}-{case.copies}"
        uris = [f"{root_uri}/{number:05d}.mp4" for number in range(case.copies)]
        for uri in uris:
            if uri not in self._stored:
                self.objects.replace(uri, body)
                self._stored.add(uri)
        return uris


def pythons_of(peers: Iterable[Peer], folder: Path) -> dict[str, Path | str | ReelabelError]:
    """Return the interpreter of each peer by its name, or why there is none."""
    found: dict[str, Path | str | ReelabelError] = {}
    for peer in peers:
        try:
            found[peer.name] = peer_python(peer.environment, folder) if peer.environment else sys.executable
        except ReelabelError as error:
            found[peer.name] = error
    return found


def _unavailable(python: Path | str | ReelabelError) -> str:
    return str(python) if isinstance(python, ReelabelError) else ""
