"""The log of an engine's process."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from infra.logs import json_copy
from reelabel.disk import disk_errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def engine_log(path: Path, *, as_json: bool) -> Iterator[IO[bytes]]:
    """Yield a file for the output of a process, which is added to a log, with `as_json` as lines of JSON.

    Raises:
        DiskFullError: The log's disk is full.
    """
    with disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        # It may quote prompts and paths.
        log = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")
    with log, os.fdopen(json_copy(os.dup(log.fileno()), logger="engine"), "wb") if as_json else log as output:
        yield output
