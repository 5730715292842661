"""The table that compares Reelabel with other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.console import OUT, figures_table, print_json
from benchmarks.peers.cases import FrameCase
from benchmarks.peers.peer import OURS, PLAIN
from benchmarks.plot import Panel, draw
from reelabel.cores import usable_cores

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from benchmarks.peers.cases import Case
    from benchmarks.peers.measure import Outcome

_MB = 1e6
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


def print_report(outcomes: Sequence[Outcome], *, rounds: int, as_json: bool, plot: str | None) -> int:
    """Print a table or JSON, and draw a chart; return 1 if a target is missed, else 0."""
    if as_json:
        print_json([record(outcome) for outcome in outcomes])
    else:
        OUT.print(peer_table(outcomes))
        notes = (_NOTES[name] for name in ("", *_counted(outcomes)))
        OUT.print(" ".join(notes).format(rounds=rounds, cores=usable_cores()))
    if plot:
        Path(plot).write_text(draw(list(panels(outcomes))))
    return int(not all(target_is_met(outcomes, case) for case in dict.fromkeys(each.case for each in outcomes)))


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


def peer_table(outcomes: Sequence[Outcome]) -> Table:
    """Return a table with a section for each case and a row for each peer."""
    counted = _counted(outcomes)
    measured = ("wall, s", "start", "/ ours", "CPU, s", "read, MB", "decoded")
    headings = ("", "", *measured, *counted, "memory, MB", "faults", "lines")
    table = figures_table("Reelabel and other tools, from S3", headings, names=2)
    for case in dict.fromkeys(each.case for each in outcomes):
        ours, others = _split(outcomes, case)
        for place, each in enumerate((ours, *others)):
            table.add_row("" if place else case.name, each.peer.name, *_cells(each, ours, counted))
        table.add_section()
    return table


def _counted(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the headings of what is counted of rows."""
    return list(dict.fromkeys(name for each in outcomes for name in each.figures))


def _cells(outcome: Outcome, ours: Outcome, counted: Sequence[str]) -> list[str]:
    if not outcome.runs:
        return [*[""] * (7 + len(counted)), outcome.why, ""]
    faults = ", ".join(f"{number} {name}" for name, number in outcome.faults.items() if number) or "none"
    ratio = f"{wall_s(outcome) / wall_s(ours):.2f}x" if outcome.is_whole and ours.is_whole else ""
    return [
        f"{wall_s(outcome):.2f}",
        f"{outcome.middle(lambda run: run.start_s):.2f}",
        ratio,
        f"{outcome.middle(lambda run: run.cpu_s):.1f}",
        f"{outcome.read_bytes / _MB:,.1f}",
        "not counted" if outcome.runs[-1].decoded is None else f"{outcome.runs[-1].decoded:,}",
        *(f"{outcome.figures[name]:,}" if name in outcome.figures else "" for name in counted),
        f"{outcome.middle(lambda run: run.peak_bytes) / _MB:,.0f}",
        f"{faults}; {outcome.why}" if outcome.why else faults,
        f"{outcome.peer.lines(outcome.case.kind)}",
    ]


def record(outcome: Outcome) -> dict[str, Any]:
    """Return what is printed as JSON."""
    runs = [
        {
            "wall_s": run.wall_s,
            "start_s": run.start_s,
            "cpu_s": run.cpu_s,
            "peak_bytes": run.peak_bytes,
            "read_bytes": traffic.received_bytes,
            "requests": traffic.requests,
            "decoded": run.decoded,
        }
        for run, traffic in zip(outcome.runs, outcome.traffic, strict=True)
    ]
    return {
        "case": outcome.case.name,
        "peer": outcome.peer.name,
        "runs": runs,
        "figures": dict(outcome.figures),
        "faults": dict(outcome.faults),
        "why": outcome.why,
        "lines": outcome.peer.lines(outcome.case.kind) if runs else None,
    }


def panels(outcomes: Sequence[Outcome]) -> Iterator[Panel]:
    """Yield a chart for each choice of frames: wall time by the length of the videos."""
    framed = [(each, each.case) for each in outcomes if isinstance(each.case, FrameCase)]
    for choice in dict.fromkeys(case.choice for _, case in framed):
        lines: dict[str, list[tuple[float, float]]] = {}
        for each, case in framed:
            if case.choice == choice and case.length_s and each.is_whole:
                lines.setdefault(each.peer.name, []).append((case.length_s, wall_s(each) / case.copies))
        if lines:
            yield Panel(f"Seconds for 16 frames of one video, by its length: {choice}", lines)


def _split(outcomes: Sequence[Outcome], case: Case) -> tuple[Outcome, list[Outcome]]:
    here = [each for each in outcomes if each.case == case]
    [ours] = [each for each in here if each.peer == OURS]
    return ours, [each for each in here if each.peer != OURS]
