"""Measures all peers in turn on cases, on the same videos of one S3 server."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from benchmarks.harness import about
from benchmarks.peers.environment import peer_python
from benchmarks.peers.watch import Run, run_script
from reelabel.cores import usable_cores
from reelabel.errors import ReelabelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from benchmarks.peers.counter import CountingRelay
    from benchmarks.peers.decoded import DecodedFrames
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
        kill_at_rows: At how many answered rows the run is killed, after which the next one continues it; 0 lets it end.
    """

    name: str
    kind: ClassVar[str]
    state: ClassVar[str] = ""
    kill_at_rows: int = 0

    @property
    def wants(self) -> str:
        """What a peer may lack."""
        raise NotImplementedError

    @property
    def is_race(self) -> bool:
        """Whether we should be first."""
        return True

    @property
    def least_ratio(self) -> float:
        """How many times as long as we the best tool should take."""
        return 1.0

    def faults(self, rows: Rows) -> dict[str, int]:
        """Count what is wrong with the rows of a run."""
        raise NotImplementedError

    def figures(self, rows: Rows) -> dict[str, int]:
        """Return what is counted of the rows of a run, by its heading."""
        raise NotImplementedError


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
    """All runs of one peer on one case.

    Attributes:
        peer: The peer.
        case: The case.
        runs: One a round; empty where the peer was not run.
        why: Why there are no runs, or how one ended that failed.
    """

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
        job: Callable[[Case, str], Place],
        on_run: Callable[[str], None],
    ) -> list[Outcome]:
        """Run all peers once a round on cases that follow each other; one that has failed is not run again.

        Cases of one state share a folder. `job` returns what a script is asked in a case, given its folder.
        """
        done: dict[tuple[str, Case], list[Run]] = {(peer.name, case): [] for peer in peers for case in cases}
        why = {
            (peer.name, case): peer.lack(case.wants) or _unavailable(pythons[peer.name])
            for peer in peers
            for case in cases
        }
        for number in range(1, self.rounds + 1):
            for peer in peers:
                able = [case for case in cases if not why[peer.name, case]]
                python = pythons[peer.name]
                if not able or isinstance(python, ReelabelError):
                    continue
                say = about(f"{peer.name}, round {number} of {self.rounds}", on_run)
                for case, run in self._follow(peer, able, python, job=job, say=say):
                    done[peer.name, case].append(run)
                    why[peer.name, case] = "" if case.kill_at_rows else run.error
        return [
            Outcome(
                peer=peer,
                case=case,
                runs=tuple(done[peer.name, case]),
                why=why[peer.name, case] or ("" if done[peer.name, case] else "its run before this one has failed"),
            )
            for case in cases
            if not case.kill_at_rows
            for peer in peers
        ]

    def _follow(
        self,
        peer: Peer,
        cases: Sequence[Case],
        python: Path | str,
        *,
        job: Callable[[Case, str], Place],
        say: Callable[[str], None],
    ) -> Iterator[tuple[Case, Run]]:
        """Run a peer on cases that follow each other, until one fails that was not killed."""
        with TemporaryDirectory(prefix="reelabel-") as root:
            for case in cases:
                say(case.name)
                folder = Path(root) / (case.state or "only")
                folder.mkdir(exist_ok=True)
                run = self._run(python, f"{case.kind}.{peer.script}", job(case, str(folder)), case.kill_at_rows)
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
