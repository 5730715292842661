"""The disk of the embedded services: what fails when it is full rarely says so."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from reelabel.disk import full_disk
from reelabel.errors import ConfigurationError, DiskFullError, ReelabelError, TransientError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def full_disk_named(home: Path, *, starting: bool = False) -> Iterator[None]:
    """Convert the error of a service to one that names the folder of its data and logs, if that disk is full.

    Args:
        home: The folder of the embedded services.
        starting: Whether the body starts them, which fails with other errors, too.

    Raises:
        DiskFullError: The disk is full.
    """
    kinds = (TransientError, ConfigurationError, OSError) if starting else (TransientError,)
    try:
        yield
    except DiskFullError:
        raise
    except kinds as error:
        full = full_disk([home], None if isinstance(error, ReelabelError) else error)
        if full is None:
            raise
        raise full from error
