"""Unexpected exceptions: one that is raised about one video or one question fails only that one."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from reelabel.disk import disk_errors, temporary_root
from reelabel.errors import InternalError, InvalidOptionError, ReelabelError

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOG = logging.getLogger("reelabel")


@contextmanager
def failing_alone(subject: str, *, stage: str = InternalError.stage) -> Iterator[None]:
    """Convert an unexpected exception into the failure of one job, and log its traceback.

    `subject` is what the body is about, such as `The video s3://bucket/a.mp4`. Raises InternalError instead of any
    exception that is not Reelabel's own, and of InvalidOptionError; DiskFullError instead of an error about a full
    disk.
    """
    try:
        with disk_errors(temporary_root()):
            yield
    except Exception as error:
        # A user's options were validated before any video was opened: an invalid one is our fault by now.
        if isinstance(error, ReelabelError) and not isinstance(error, InvalidOptionError):
            raise
        kind = type(error).__name__
        _LOG.error("%s failed with an unexpected %s:", subject, kind, exc_info=error)
        failed = InternalError(f"{subject} failed with an unexpected {kind}; the log says where. Please report it.")
        failed.stage = stage
        raise failed from error
