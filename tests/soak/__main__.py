"""Run everything on one machine for an hour; print what was asked for, what is wrong, and how processes have grown."""

import argparse
import os
import signal
import sys
import time
from contextlib import closing
from pathlib import Path
from tempfile import mkdtemp

import psutil
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.soak.load import Load
from tests.soak.machine import Machine
from tests.soak.memory import Sampler
from tests.soak.reconcile import reconcile

_CONSOLE = Console()
_END_S = 30


def main():
    """Soak a machine with the options of the command line; return 1 if something is wrong."""
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # so that nothing is left running
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="how long")
    parser.add_argument("--seed", type=int, default=1, help="seed of what is asked for")
    options = parser.parse_args()
    folder = Path(mkdtemp(prefix="soak-"))
    temporary = folder / "temporary"
    temporary.mkdir()
    os.environ["TMPDIR"] = str(temporary)  # of whatever is started, and of nothing else
    _CONSOLE.print(f"Logs are in {folder}.")
    with closing(Machine(folder)) as machine:
        sampler, load = Sampler(machine), Load(machine, seed=options.seed)
        sampler.start()
        _wait(60 * options.minutes)
        load.end()
        sampler.end()
        counted, wrong = reconcile(machine, load)
        running = [psutil.Process(pid) for pids in machine.processes().values() for pid in pids]
    wrong += [f"{growth.name} has grown" for growth in sampler.growth() if not growth.is_flat]
    _, left = psutil.wait_procs(running, timeout=_END_S)
    wrong += [f"process {process.pid} is left" for process in left]
    wrong += [f"temporary folder {path.name} is left" for path in temporary.glob("reelabel-*")]
    _show(counted, sampler.growth(), wrong, minutes=options.minutes)
    return 1 if wrong else 0


def _wait(seconds):
    with Progress(console=_CONSOLE, transient=True) as progress:
        for _ in progress.track(range(round(seconds)), description="Soaking"):
            time.sleep(1)


def _show(counted, growths, wrong, *, minutes):
    table = Table("asked for and found", "number")
    for name, number in counted.items():
        table.add_row(name, f"{number:,}")
    _CONSOLE.print(table)
    table = Table("process", "MiB early", "MiB late", "descriptors early", "descriptors late", "flat")
    for name, early, late, is_flat in growths:
        numbers = [f"{number:,.0f}" for number in (early[0], late[0], early[1], late[1])]
        table.add_row(name, *numbers, "yes" if is_flat else "NO")
    _CONSOLE.print(table)
    for each in wrong[:20]:
        _CONSOLE.print(f"WRONG: {each}", style="red", soft_wrap=True)
    _CONSOLE.print(f"{minutes:g} minutes, {len(wrong)} errors.")


if __name__ == "__main__":
    sys.exit(main())
