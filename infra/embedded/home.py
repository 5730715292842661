"""The folder of the embedded services: their data, passwords, logs, records and locks."""

from __future__ import annotations

import fcntl
import json
import secrets
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from infra.embedded.processes import Identity, is_supported
from infra.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


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
        process: Who it is; a later process with the same id is another.
        port: Where it listens on 127.0.0.1; 0 if nowhere.
        label: What tells this start from another one of the same service.
        leaves_behind: Files to remove after its end.
    """

    process: Identity
    port: int
    label: str
    leaves_behind: Sequence[str] = ()


class Home:
    """Paths below one folder; where it is made here, only its owner can enter it."""

    def __init__(self, path: Path) -> None:
        """Make the folder, or take the one that stands there.

        Raises:
            ConfigurationError: It cannot be made, or belongs to somebody else, or this is not Linux.
        """
        if not is_supported():
            raise ConfigurationError("Reelabel runs on Linux alone: it tells its processes apart by /proc.")
        self.path = path.resolve()
        try:
            for folder in (self.path, self.path / "logs", self.path / "run"):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigurationError(
                f"The folder {self.path} cannot be made or used ({error.strerror}); set home to one that is yours."
            ) from error

    def folder(self, service: ServiceName) -> Path:
        """Make and name the folder of a service's data."""
        folder = self.path / service
        folder.mkdir(exist_ok=True, mode=0o700)
        return folder

    def log(self, service: ServiceName) -> Path:
        """Name a service's log."""
        return self.path / "logs" / f"{service}.log"

    def secret(self, name: str, *, prefix: str = "") -> str:
        """Read a password, made when it is first asked for, with what it shall begin with."""
        path = self.secret_path(name)
        if not path.exists():
            _write_privately(path, prefix + secrets.token_hex(20))
        return path.read_text()

    def secret_path(self, name: str) -> Path:
        """Name the file of a password."""
        return self.path / f"{name}.secret"

    def record(self, service: ServiceName) -> Record | None:
        """Read who was started last; None if nobody, or if the record is damaged."""
        try:
            fields = json.loads(self._record_path(service).read_text())
            return Record(**{**fields, "process": Identity(**fields["process"])})
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def write_record(self, service: ServiceName, record: Record) -> None:
        """Write who was started."""
        _write_privately(self._record_path(service), json.dumps(asdict(record)))

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
        """Hold the lock under which services are started and stopped."""
        with (self.path / "start.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)

    @property
    def in_use_lock(self) -> Path:
        """Name the file that every command holds a shared lock on while it needs the services."""
        return self.path / "in-use.lock"

    @property
    def _kept(self) -> Path:
        return self.path / "kept"

    def _record_path(self, service: ServiceName) -> Path:
        return self.path / "run" / f"{service}.json"


def _write_privately(path: Path, text: str) -> None:
    """Replace a file by one that only its owner reads; nobody ever sees half of it."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    beside.touch(mode=0o600, exist_ok=False)
    beside.write_text(text)
    beside.replace(path)
