"""The table that compares Reelabel with other tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.harness import Column, Table, Target
from benchmarks.peers.peer import OURS, PLAIN
from reelabel.cores import usable_cores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.peers.measure import Case, Outcome

_MEASURED = (
    Column("case", "case"),
    Column("peer", "peer"),
    Column("wall, s", "wall_s", ".2f"),
    Column("start", "start_s", ".2f"),
    Column("/ ours", "of_ours", ".2fx"),
    Column("CPU, s", "cpu_s", ".1f"),
    Column("read, MB", lambda row: row["read_bytes"] / 1e6 if "read_bytes" in row else None, ",.1f"),
    Column("decoded", "decoded", ","),
)
_RATED = (
    Column("memory, MB", lambda row: row["peak_bytes"] / 1e6 if "peak_bytes" in row else None, ",.0f"),
    Column("faults", "faults"),
    Column("lines", "lines"),
)
_NOTES = {
    "": "Medians of {rounds} rounds, in which all take turns; every script has the same {cores} cores. Wall is from "
    "the start of its process to its end, start is the part of it until its libraries and models were loaded, memory "
    "is the most that all its processes hold at once. Read is what came from the S3 server, decoded are frames that "
    "FFmpeg's decoders handed over. Lines are those of the "
    "script that hold code.",
    "given": "Given are the frames that the library handed over, from which the script took sixteen of each video.",
    "asked": "Asked are the questions that the run has asked the model.",
    "vectors": "Vectors are those of frames that the descriptions are of.",
    "right": "Right are the answers that are true.",
}


def report(outcomes: Sequence[Outcome], *, rounds: int) -> tuple[list[Table], list[Target]]:
    """Return the table, and for each case whether we are where we should be."""
    notes = " ".join(_NOTES[name] for name in ("", *counted_of(outcomes)))
    cases = dict.fromkeys(each.case for each in outcomes)
    targets = [Target(case.name, float(target_is_met(outcomes, case)), least=1) for case in cases]
    return [peer_table(outcomes, notes.format(rounds=rounds, cores=usable_cores()))], targets


def target_is_met(outcomes: Sequence[Outcome], case: Case) -> bool:
    """Return whether we are first in a case, or behind our fastest plain script by no more than our start.

    Where it is no race, it is enough that we lose nothing.
    """
    ours, others = _split(outcomes, case)
    if not ours.is_whole or any(ours.faults.values()):
        return False
    if not case.is_race:
        return True
    ours_s = ours.middle(lambda run: run.wall_s)
    tools = [wall_s(each) for each in others if each.is_whole and each.peer not in PLAIN]
    plain = [wall_s(each) for each in others if each.is_whole and each.peer in PLAIN]
    is_first = not tools or min(tools) >= case.least_ratio * ours_s
    return is_first and (not plain or ours_s - ours.middle(lambda run: run.start_s) <= min(plain))


def wall_s(outcome: Outcome) -> float:
    """Return the median time of a peer from the start of its process to its end."""
    return outcome.middle(lambda run: run.wall_s)


def peer_table(outcomes: Sequence[Outcome], note: str = "") -> Table:
    """Return a table with a row for each case and peer, ours first."""
    rows = []
    for case in dict.fromkeys(each.case for each in outcomes):
        ours, others = _split(outcomes, case)
        rows += [_row(each, ours) for each in (ours, *others)]
    counted = (Column(name, name, ",") for name in counted_of(outcomes))
    return Table("Reelabel and other tools, from S3", rows, (*_MEASURED, *counted, *_RATED), note)


def counted_of(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the headings of what is counted of rows."""
    return list(dict.fromkeys(name for each in outcomes for name in each.figures))


def _row(outcome: Outcome, ours: Outcome) -> dict[str, Any]:
    row: dict[str, Any] = {"case": outcome.case.name, "peer": outcome.peer.name, "faults": outcome.why}
    if not outcome.runs:
        return row
    faults = ", ".join(f"{number} {name}" for name, number in outcome.faults.items() if number) or "none"
    return row | {
        "wall_s": wall_s(outcome),
        "start_s": outcome.middle(lambda run: run.start_s),
        "of_ours": wall_s(outcome) / wall_s(ours) if outcome.is_whole and ours.is_whole else None,
        "cpu_s": outcome.middle(lambda run: run.cpu_s),
        "read_bytes": outcome.middle(lambda run: run.received_bytes),
        "decoded": outcome.runs[-1].decoded,
        **outcome.figures,
        "peak_bytes": outcome.middle(lambda run: run.peak_bytes),
        "faults": f"{faults}; {outcome.why}" if outcome.why else faults,
        "lines": outcome.peer.lines(outcome.case.kind),
        "runs": [run.figures() for run in outcome.runs],
    }


def _split(outcomes: Sequence[Outcome], case: Case) -> tuple[Outcome, list[Outcome]]:
    here = [each for each in outcomes if each.case == case]
    [ours] = [each for each in here if each.peer == OURS]
    return ours, [each for each in here if each.peer != OURS]
