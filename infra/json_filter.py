"""What a program prints as lines of JSON: `python -m infra.json_filter COMMAND...` runs it, and ends as it does.

Lines that are JSON objects pass unchanged, empty ones are left out, and any other becomes the message of a line. For
programs that cannot write JSON themselves, and for what libraries and the interpreter print past every log.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import PurePath
from typing import TYPE_CHECKING

from infra.json_logs import json_line, parsed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# A longer line is broken, so that a program without line breaks cannot fill the memory.
_LONGEST_BYTES = 1 << 16


def filter_command(logger: str) -> list[str]:
    """Return the command that filters its standard input into its standard output, under a logger's name."""
    return [sys.executable, "-P", "-m", "infra.json_filter", "--logger", logger]


@contextmanager
def json_lines(log: IO[bytes], *, logger: str) -> Iterator[IO[bytes]]:
    """Yield a file for the output of a child process, of which each line is written to a log as JSON.

    The log, which is closed here, is filtered by a process that ends when all who hold the file have ended.
    """
    with log:
        filtering = subprocess.Popen(  # noqa: S603 - our own command
            filter_command(logger), stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
        )
    threading.Thread(target=filtering.wait, name="json-filter", daemon=True).start()  # else it stays a zombie
    assert filtering.stdin is not None
    with filtering.stdin as lines:
        yield lines


def copy_lines(source: IO[bytes], target: int, *, logger: str) -> None:
    """Copy lines as JSON until the source ends; a target that is full or gone loses lines, but never stops the source.

    `logger` names the logger of lines that are not JSON.
    """
    for line in iter(lambda: source.readline(_LONGEST_BYTES), b""):
        text = line.decode(errors="replace").rstrip()
        if text:
            shown = text if parsed(text) else json_line(text, logger=logger)
            with suppress(OSError):
                _write_all(target, f"{shown}\n".encode())


def _write_all(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]


def run(command: list[str]) -> int:
    """Run a command, copy both of its outputs to standard output, and return its exit code."""
    with subprocess.Popen(  # noqa: S603 - what this process was asked to run
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        for number in _FORWARDED:
            signal.signal(number, lambda received, _: process.send_signal(received))
        assert process.stdout is not None
        copy_lines(process.stdout, 1, logger=PurePath(command[0]).name)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def main(arguments: list[str]) -> int:
    """Run a command, or filter standard input."""
    if arguments[:1] != ["--logger"]:
        return run(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):  # it ends when the program does
        signal.signal(number, signal.SIG_IGN)
    copy_lines(sys.stdin.buffer, 1, logger=arguments[1])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
