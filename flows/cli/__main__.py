"""The entry point of the command `reelabel`.

It imports nothing before it handles Ctrl-C: the commands and their options take half a second to import.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal

from infra.signals import EXIT_CODE


def main() -> None:
    """Run a command; Ctrl-C before it begins ends the process silently."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:  # a shell may have it ignored
        # Not an exception, which an import might catch, or leave half done.
        signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_CODE))
    # Imported modules stay in memory, and traversing them is useless: collect rarely, and not at the end.
    gc.set_threshold(10_000, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)
    from flows.cli.main import main as run_command  # noqa: PLC0415 - see the module

    run_command()


if __name__ == "__main__":
    main()
