"""The folder of the embedded services, with their data, passwords, logs, records and locks."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TextIO

from infra.embedded.ownership import require_own
from infra.embedded.processes import Identity, is_supported
from reelabel.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


# What is left of a killed service takes a moment to end.
_RELEASED_WITHIN_S, _POLL_S = 5.0, 0.05


class ServiceName(StrEnum):
    """The services that Reelabel can start for itself."""

    POSTGRES = "postgres"
    S3 = "s3"
    PREFECT = "prefect"
    WORKER = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A service that was started.

    Attributes:
        process: Its process, distinguished from later ones with the same id.
        port: Its port on 127.0.0.1; 0 if it does not listen.
        label: Identifies its configuration; see `Service.label`.
        leaves_behind: Files to remove after it has ended.
        folder: The home folder it was started for, by device and inode: a copy of the folder has a copy of this record.
        path: The path of that folder at the start, below which the service looks for its files also if it is moved.
    """

    process: Identity
    port: int
    label: str
    leaves_behind: Sequence[str] = ()
    folder: Sequence[int] = ()
    path: str = ""


class Home:
    """The paths below the folder, which is created accessible to its owner only."""

    def __init__(self, path: Path) -> None:
        """Create the folder if it does not exist.

        Raises:
            ConfigurationError: The folder cannot be created or used, or this is not Linux.
        """
        if not is_supported():
            raise ConfigurationError("Reelabel runs on Linux only: it needs /proc to identify its processes.")
        self.path = path.resolve()
        try:
            for folder in (self.path, self.path / "logs", self.path / "run"):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigurationError(
                f"The folder {self.path} cannot be created or used ({error.strerror}); set REELABEL_HOME to a folder "
                "of yours."
            ) from error

    def require_private(self) -> None:
        """Check that other users cannot have put their own passwords, keys and records here.

        Raises:
            ConfigurationError: They can; see `require_own`.
        """
        require_own(self.path, postgres=self.path / ServiceName.POSTGRES)

    def folder(self, service: ServiceName) -> Path:
        """Return the data folder of a service, which is created if needed."""
        folder = self.path / service
        folder.mkdir(exist_ok=True, mode=0o700)
        return folder

    def log(self, service: ServiceName) -> Path:
        """Return the path of a service's log."""
        return self.path / "logs" / f"{service}.log"

    def secret(self, name: str, *, prefix: str = "") -> str:
        """Return a password, which is generated on first use and begins with `prefix`."""
        path = self.secret_path(name)
        if not path.exists():
            write_privately(path, prefix + secrets.token_hex(20))
        return path.read_text()

    def secret_path(self, name: str) -> Path:
        """Return the path of a password file."""
        return self.path / f"{name}.secret"

    def record(self, service: ServiceName) -> Record | None:
        """Return the record of a service's last start; None without one of this user and folder that is undamaged."""
        try:
            with self._record_path(service).open() as file:
                if os.fstat(file.fileno()).st_uid != os.geteuid():
                    return None
                fields = json.load(file)
            record = Record(**{**fields, "process": Identity(**fields["process"])})
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return record if list(record.folder) in ([], self._identity) else None

    def write_record(self, service: ServiceName, record: Record) -> None:
        """Record the start of a service."""
        placed = replace(record, folder=self._identity, path=str(self.path))
        write_privately(self._record_path(service), json.dumps(asdict(placed)))

    @property
    def is_kept(self) -> bool:
        """Whether the services outlive the commands that use them."""
        return self._kept.exists()

    def keep(self) -> None:
        """Let the services outlive the commands that use them."""
        self._kept.touch()

    def release(self) -> None:
        """Let the last command that uses the services stop them."""
        self._kept.unlink(missing_ok=True)

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Hold the lock for starting and stopping services."""
        with self._open_lock("start") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)

    @contextmanager
    def holding(self, service: ServiceName) -> Iterator[int]:
        """Hold the lock of a service, and yield its descriptor; the service inherits it, and holds it until it ends.

        So nobody starts it a second time on the same data who does not see its process.

        Raises:
            ConfigurationError: It is running elsewhere.
        """
        with self._open_lock(f"run/{service}") as file:
            deadline_s = time.monotonic() + _RELEASED_WITHIN_S
            while not _is_locked_now(file):
                if time.monotonic() > deadline_s:
                    raise ConfigurationError(
                        f"The embedded {service} of {self.path} is running where this process cannot see it, such as "
                        "in another container or on another machine; stop it there with `reelabel down`, or set "
                        "REELABEL_HOME to another folder."
                    )
                time.sleep(_POLL_S)
            yield file.fileno()

    def open_in_use_lock(self) -> TextIO:
        """Open the file on which every command holds a shared lock while it uses the services."""
        return self._open_lock("in-use")

    @property
    def _identity(self) -> list[int]:
        status = self.path.stat()
        return [status.st_dev, status.st_ino]

    @property
    def _kept(self) -> Path:
        return self.path / "kept"

    def _open_lock(self, name: str) -> TextIO:
        # Whoever can open a file can lock it. In a folder of another user, it may be a link to something else.
        return open(
            self.path / f"{name}.lock", "a", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o600)
        )

    def _record_path(self, service: ServiceName) -> Path:
        return self.path / "run" / f"{service}.json"


def _is_locked_now(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_privately(path: Path, text: str) -> None:
    """Write a file atomically, readable by its owner only."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    temporary.touch(mode=0o600, exist_ok=False)
    temporary.write_text(text)
    temporary.replace(path)
