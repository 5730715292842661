"""Full disks of the embedded services, whose errors rarely mention them."""

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
_SIGNS = (b"o space left on device", b"isk quota exceeded")  # without the first letter, whose case varies by program
# The S3 server chooses the size of its volumes by that of the disk, between these.
_SMALLEST_VOLUME_MIB, _LARGEST_VOLUME_MIB = 64, 1024


@contextmanager
def full_disk_named(home: Path, *, starting: bool = False) -> Iterator[None]:
    """Convert errors of services to a DiskFullError if the disk of their data and logs is full.

    With `starting`, the body starts services, which also fail with errors other than TransientError.
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
    if full := full_disk([home], error.__cause__ if isinstance(error, ReelabelError) else error):
        return full
    folder = Home(home)
    if isinstance(error, StoreUnavailableError) and error.failed_at == s3_endpoint(folder.port(ServiceName.S3)):
        if s3_must_restart(home):
            return DiskFullError(
                f"The disk of {s3_data(home)} was full; restart the S3 server with `reelabel up`, then run the same "
                "command again."
            )
        return _full_disk_error(
            s3_data(home), _s3_needed_mib(home), "the embedded S3 server needs", "for another volume"
        )
    # Postgres ends if it cannot write its WAL, and Prefect, which keeps its data there, fails with it.
    is_of_postgres = not isinstance(error, ReelabelError) or isinstance(
        error, DatabaseUnavailableError | ConfigurationError
    )
    if is_of_postgres and folder.port(ServiceName.POSTGRES):
        return _full_disk_error(home, _WAL_SEGMENT_MIB, "the embedded Postgres needs", "for another WAL segment")
    return None


def require_space(home: Home, starting: Iterable[ServiceName]) -> None:
    """Raise DiskFullError if services have no room to start; they would fail in as many ways as they have files."""
    needed_mib = sum((_NEEDED_MIB if (home.path / name).exists() else _NEEDED_AT_FIRST_MIB)[name] for name in starting)
    if full := _full_disk_error(home.path, needed_mib, "the embedded services need", "to start"):
        raise full


def s3_must_restart(home: Path) -> bool:
    """Return whether the disk of the running S3 server was full since its start, and has room again.

    The databases of its metadata then refuse all writes until it is restarted, which only its log shows.
    """
    return met_full_disk(Home(home).log(ServiceName.S3)) and _mib(s3_data(home))[1] > _s3_needed_mib(home)


def _full_disk_error(folder: Path, needed_mib: float, who: str, what_for: str) -> DiskFullError | None:
    if (free_mib := _mib(folder)[1]) >= needed_mib:
        return None
    return DiskFullError(
        f"The disk of {folder} is full ({free_mib:,.1f} MiB free; {who} {needed_mib:,.0f} {what_for}); free space, "
        "then run the same command again."
    )


def met_full_disk(log: Path) -> bool:
    """Return whether a service's log, which begins with its start, says that a disk was full."""
    try:
        with log.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as text:
            return any(text.find(sign) >= 0 for sign in _SIGNS)
    except (FileNotFoundError, ValueError):  # none, or an empty one
        return False


def _s3_needed_mib(home: Path) -> float:
    """Return how much the S3 server, which stops writing long before its disk is full, needs for another volume.

    The size of a volume is a hundredth of the disk, rounded up to a power of two.
    """
    disk_mib = _mib(s3_data(home))[0]
    power: int = 1 << max(0, int(disk_mib / 100) - 1).bit_length()
    return max(disk_mib / 100, 2 * min(_LARGEST_VOLUME_MIB, max(_SMALLEST_VOLUME_MIB, power)))


def _mib(folder: Path) -> tuple[float, float]:
    """Return the size of a folder's disk, and what is free of it."""
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize / _MIB, found.f_bavail * found.f_frsize / _MIB
