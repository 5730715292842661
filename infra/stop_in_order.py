"""Run a command of Prefect that starts flows, such as a worker, and at SIGTERM let its flows end in order.

On SIGTERM, Prefect kills the flows of a process worker at once, and those of a pod a moment after it has told them, so
that the leases of their shards would have to expire. Here the command is halted first, so that it neither kills flows
nor starts others; each flow is told, and has ended, before the command itself is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from infra.embedded.processes import Identity, descendants, start_ticks_of, wait_for_end
from infra.interrupts import GRACE_S

# What Prefect starts for each flow run: `python -m prefect.engine`.
_FLOW = b"prefect.engine"
_FLOWS_END_S = GRACE_S + 4.0  # flows end by themselves within GRACE_S


def run(command: list[str]) -> int:
    """Run a command to its end; return its exit code, or 128 plus the signal that ended it."""
    # A Prefect worker at SIGTERM sends itself SIGINT, so it would never end where a script has started it by `&`, for
    # which shells ignore SIGINT. That is reset for the worker, and a process group of its own keeps Ctrl-C from it.
    is_background = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    if is_background:
        signal.signal(signal.SIGINT, lambda *_: None)
    group = 0 if is_background else None
    child = subprocess.Popen(command, process_group=group)  # noqa: S603 - that of the container
    signal.signal(signal.SIGTERM, lambda *_: _stop(child))
    code = child.wait()
    return code if code >= 0 else 128 - code


def _stop(child: subprocess.Popen[bytes]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: None)  # it is on its way
    with suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGSTOP)
        flows = [Identity(pid=pid, start_ticks=start_ticks_of(pid)) for pid in descendants() if _is_flow(pid)]
        for flow in flows:
            with suppress(ProcessLookupError):
                os.kill(flow.pid, signal.SIGTERM)
        wait_for_end(flows, _FLOWS_END_S)
        os.kill(child.pid, signal.SIGCONT)
        os.kill(child.pid, signal.SIGTERM)


def _is_flow(pid: int) -> bool:
    try:
        return _FLOW in (Path("/proc") / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
