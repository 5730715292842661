"""Measures all peers in turn on cases, on the same videos of one S3 server."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from benchmarks.harness import about, own_services, progress
from benchmarks.peers.counter import CountingRelay
from benchmarks.peers.decoded import DecodedFrames
from benchmarks.peers.environment import peer_python
from benchmarks.peers.peer import OURS, PEERS
from benchmarks.peers.watch import Run, run_script
from reelabel.cores import usable_cores
from reelabel.errors import ReelabelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from benchmarks.peers.peer import Peer
    from benchmarks.peers.scripts.job import Place
    from infra.settings import StoreSettings

    Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a script is asked for in one run.

    Attributes:
        name: Name in tables.
        kind: Folder of the scripts.
        state: Name of the folder that the run shares with those before it, of the same peer and round.
        least_ratio: How many times as long as we the best tool should take.
        is_race: Whether we should be first; not where runs are killed, at which only what is left of them counts.
        kill_at_rows: At how many answered rows the run is killed, after which the next one continues it; 0 lets it end.
    """

    name: str
    kind: ClassVar[str]
    state: ClassVar[str] = "only"
    least_ratio: float = 1.0
    is_race: bool = True
    kill_at_rows: int = 0

    def is_for(self, peer: Peer) -> bool:
        """Return whether a peer can do it."""
        return peer.path(self.kind).exists()

    def faults(self, rows: Rows) -> dict[str, int]:
        """Count what is wrong with the rows of a run."""
        raise NotImplementedError

    def figures(self, rows: Rows) -> dict[str, int]:
        """Return what is counted of the rows of a run, by its heading."""
        raise NotImplementedError


class Videos(Protocol):
    """Videos on the store."""

    @property
    def sequences(self) -> Sequence[Sequence[Case]]:
        """Cases about them; those of a sequence follow each other."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of the scripts."""

    def job(self, case: Any, bench: Bench, folder: str) -> Place:  # noqa: ANN401 - of its own kind
        """Return what a script is asked in a case; the folder is for what it stores."""


def count_faults(rows: Rows, wanted: int) -> dict[str, int]:
    """Count what is wrong with the rows of one run about `wanted` videos."""
    reported = Counter(row["id"] for row in rows)
    return {
        "lost": wanted - len(reported),
        "doubled": sum(number - 1 for number in reported.values()),
        "failed": sum(bool(row["error"]) for row in rows),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All runs of one peer on one case, one a round; and why there are none, or how one ended that failed."""

    peer: Peer
    case: Case
    runs: tuple[Run, ...] = field(default=(), repr=False)
    why: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether every run ended well."""
        return bool(self.runs) and not self.why

    def middle(self, value: Callable[[Run], float]) -> float:
        """Return the median of the runs; of a peer that has failed, that of the failed run."""
        return median(map(value, self.runs if self.is_whole else self.runs[-1:]))

    @property
    def figures(self) -> Mapping[str, int]:
        return self.case.figures(self.runs[-1].rows) if self.runs else {}

    @property
    def faults(self) -> Mapping[str, int]:
        """Rows of the worst run that were lost, reported twice, failed or are wrong."""
        counts = [self.case.faults(run.rows) for run in self.runs]
        return {name: max(each[name] for each in counts) for name in counts[0]} if counts else {}


def compare(
    names: Sequence[str],
    folder: Path,
    makers: Iterable[Callable[[StoreSettings], Videos]],
    *,
    rounds: int,
    limit_s: float,
) -> list[Outcome]:
    """Compare the peers of these scripts with ours, with an S3 server and a relay before it of their own.

    Args:
        names: Scripts of the peers.
        folder: Keeps their environments.
        makers: Each uploads videos.
        rounds: Runs of each peer on each case.
        limit_s: Seconds after which a run is ended.
    """
    outcomes: list[Outcome] = []
    peers = [OURS, *(peer for peer in PEERS if peer.script in names)]
    with own_services("s3") as settings, TemporaryDirectory(prefix="reelabel-") as logs:
        store = settings.store
        assert store.endpoint_url
        assert store.ca_file
        with (
            CountingRelay(store.endpoint_url, store.ca_file) as relay,
            progress("Making environments, which takes minutes") as show,
        ):
            pythons = pythons_of(peers, folder)
            bench = Bench(store=store, relay=relay, logs=Path(logs), rounds=rounds, limit_s=limit_s)
            counted = replace(bench, counter=DecodedFrames(Path(logs)))
            for make in makers:
                videos = make(store)
                own = replace(counted, environment=videos.environment)
                for cases in videos.sequences:
                    outcomes += own.measure(peers, cases, pythons, videos=videos, on_run=show)
    return outcomes


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where and how peers are measured: the relay counts bytes, and the counter decoded frames."""

    store: StoreSettings
    relay: CountingRelay
    logs: Path
    rounds: int
    limit_s: float
    counter: DecodedFrames | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    def measure(
        self,
        peers: Sequence[Peer],
        cases: Sequence[Case],
        pythons: Mapping[str, Path | str | ReelabelError],
        *,
        videos: Videos,
        on_run: Callable[[str], None],
    ) -> list[Outcome]:
        """Run all peers once a round on cases that follow each other; one that has failed is not run again."""
        pairs = [(peer, case) for case in cases for peer in peers if case.is_for(peer)]
        done: dict[tuple[Peer, Case], list[Run]] = {pair: [] for pair in pairs}
        why = {(peer, case): _unavailable(pythons[peer.name]) for peer, case in pairs}
        for number in range(1, self.rounds + 1):
            for peer in peers:
                able = [case for case in cases if why.get((peer, case)) == ""]
                python = pythons[peer.name]
                if not able or isinstance(python, ReelabelError):
                    continue
                say = about(f"{peer.name}, round {number} of {self.rounds}", on_run)
                for case, run in self._follow(peer, able, python, videos, say):
                    done[peer, case].append(run)
                    why[peer, case] = "" if case.kill_at_rows else run.error
        return [
            Outcome(
                peer=peer,
                case=case,
                runs=tuple(done[peer, case]),
                why=why[peer, case] or ("" if done[peer, case] else "its run before this one has failed"),
            )
            for peer, case in pairs
            if not case.kill_at_rows
        ]

    def _follow(
        self, peer: Peer, cases: Sequence[Case], python: Path | str, videos: Videos, say: Callable[[str], None]
    ) -> Iterator[tuple[Case, Run]]:
        """Run a peer on cases that follow each other, until one fails that was not killed."""
        with TemporaryDirectory(prefix="reelabel-") as root:
            for case in cases:
                say(case.name)
                folder = Path(root) / case.state
                folder.mkdir(exist_ok=True)
                script = f"{case.kind}.{peer.script}"
                run = self._run(python, script, videos.job(case, self, str(folder)), case.kill_at_rows)
                say(f"{case.name}: {run.wall_s:.2f} s {run.error}")
                yield case, run
                if run.error and not case.kill_at_rows:
                    return

    def _run(self, python: Path | str, script: str, job: Place, kill_at_rows: int) -> Run:
        before = self.relay.traffic
        run = run_script(
            python,
            script,
            json.dumps(asdict(job)),
            limit_s=self.limit_s,
            kill_at_rows=kill_at_rows,
            log_path=self.logs / f"{script}.log",
            variables=self.environment,
            counter=self.counter,
        )
        traffic = self.relay.traffic.since(before)
        return replace(run, received_bytes=traffic.received_bytes, requests=traffic.requests)

    def reach(self) -> dict[str, Any]:
        """Return how a script reaches the S3 server, and the cores that it may use."""
        assert self.store.access_key_id
        assert self.store.secret_access_key
        return {
            "endpoint": self.relay.url,
            "key": self.store.access_key_id.get_secret_value(),
            "secret": self.store.secret_access_key.get_secret_value(),
            "cores": usable_cores(),
        }


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
