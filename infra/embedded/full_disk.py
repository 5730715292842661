"""The disk of the embedded services: what fails when it is full rarely says so."""

from __future__ import annotations

import os
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from typing import TYPE_CHECKING

from infra.embedded.home import Home, ServiceName
from infra.embedded.s3_server import s3_data, s3_endpoint
from infra.errors import DatabaseUnavailableError
from reelabel.disk import full_disk
from reelabel.errors import ConfigurationError, DiskFullError, ReelabelError, StoreUnavailableError, TransientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_MIB = 1024**2
_WAL_SEGMENT_MIB = 16
# What services write when they start: the first time their files, tables and pages, later next to nothing but WAL.
_NEEDED_AT_FIRST_MIB = {ServiceName.POSTGRES: 48, ServiceName.S3: 1, ServiceName.PREFECT: 80, ServiceName.WORKER: 1}
_NEEDED_MIB = {ServiceName.POSTGRES: _WAL_SEGMENT_MIB, ServiceName.S3: 1, ServiceName.PREFECT: 1, ServiceName.WORKER: 1}
_SIGNS = (b"o space left on device", b"isk quota exceeded")  # begun as the program does, with or without a capital
# The S3 server chooses the size of its volumes by that of the disk, between these.
_SMALLEST_VOLUME_MIB, _LARGEST_VOLUME_MIB = 64, 1024


@contextmanager
def full_disk_named(home: Path, *, starting: bool = False) -> Iterator[None]:
    """Convert errors of services to a DiskFullError if the disk of their data and logs is full.

    Where the body starts services, they fail with other errors than TransientError, too.
    """
    kinds = (TransientError, ConfigurationError, OSError) if starting else (TransientError,)
    try:
        yield
    except DiskFullError:
        raise
    except kinds as error:
        full = full_disk_behind(error, home)
        if full is None:
            raise
        raise full from error


def full_disk_behind(error: BaseException, home: Path) -> DiskFullError | None:
    """Return the DiskFullError that explains an error of an embedded service; None if the disk is not full."""
    cause = error.__cause__ if isinstance(error, ReelabelError) else error
    return full_disk([home], cause) or _full_for_s3(home, error) or _full_for_postgres(home, error)


def require_room(home: Home, starting: Iterable[ServiceName]) -> None:
    """Raise DiskFullError if services have no room to start; they would fail in as many ways as they have files."""
    needed_mib = sum((_NEEDED_MIB if (home.path / name).exists() else _NEEDED_AT_FIRST_MIB)[name] for name in starting)
    free_mib = _mib(home.path)[1]
    if free_mib < needed_mib:
        raise DiskFullError(
            f"The disk of {home.path} is full ({free_mib:,.1f} MiB free; the embedded services need {needed_mib:,} to "
            "start); free space, then run the same command again."
        )


def _full_for_postgres(home: Path, error: BaseException) -> DiskFullError | None:
    """Explain that Postgres ended for want of another WAL segment, so that it, and Prefect with it, seem to be gone."""
    if isinstance(error, ReelabelError) and not isinstance(error, DatabaseUnavailableError | ConfigurationError):
        return None
    if not Home(home).port(ServiceName.POSTGRES) or (free_mib := _mib(home)[1]) >= _WAL_SEGMENT_MIB:
        return None
    return DiskFullError(
        f"The disk of {home} is full ({free_mib:,.1f} MiB free; the embedded Postgres needs {_WAL_SEGMENT_MIB} for "
        "another WAL segment); free space, then run the same command again."
    )


def _full_for_s3(home: Path, error: BaseException) -> DiskFullError | None:
    """Explain that the S3 server cannot write another volume, which it says only in its log, and long before."""
    endpoint = s3_endpoint(Home(home).port(ServiceName.S3))
    if not isinstance(error, StoreUnavailableError) or error.failed_at != endpoint:
        return None
    free_mib, needed_mib = _s3_room(home)
    if s3_must_restart(home):
        return DiskFullError(
            f"The disk of {s3_data(home)} was full; restart the S3 server with `reelabel up`, then run the same "
            "command again."
        )
    if free_mib > needed_mib:
        return None
    return DiskFullError(
        f"The disk of {s3_data(home)} is full ({free_mib:,.1f} MiB free; the embedded S3 server needs "
        f"{needed_mib:,.0f} for another volume); free space, then run the same command again."
    )


def s3_must_restart(home: Path) -> bool:
    """Return whether the disk of the running S3 server was full since its start, and has room again.

    The databases of its metadata then refuse all writes until it is restarted, and only its log says so.
    """
    if not met_full_disk(Home(home).log(ServiceName.S3)):
        return False
    free_mib, needed_mib = _s3_room(home)
    return free_mib > needed_mib


def met_full_disk(log: Path) -> bool:
    """Return whether a service's log, which begins with its start, says that a disk was full."""
    try:
        with log.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as text:
            return any(text.find(sign) >= 0 for sign in _SIGNS)
    except (FileNotFoundError, ValueError):  # none, or an empty one
        return False


def _s3_room(home: Path) -> tuple[float, float]:
    """Return how many MiB are free for the S3 server, and how many it needs for another volume."""
    disk_mib, free_mib = _mib(s3_data(home))
    return free_mib, max(disk_mib / 100, 2 * _volume_mib(disk_mib))


def _mib(folder: Path) -> tuple[float, float]:
    """Return the size of a folder's disk, and what is free of it."""
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize / _MIB, found.f_bavail * found.f_frsize / _MIB


def _volume_mib(disk_mib: float) -> int:
    """Return the size of a volume: a hundredth of the disk, rounded up to a power of two."""
    power: int = 1 << max(0, int(disk_mib / 100) - 1).bit_length()
    return min(_LARGEST_VOLUME_MIB, max(_SMALLEST_VOLUME_MIB, power))
