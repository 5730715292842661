"""The home folder of the embedded services: their data, passwords, logs and ports, and the check of its owner.

Its files decide which servers commands trust and what these run: anyone who can write to it can act as its user, even
as root. So it is used only if it belongs to that user, with everything in it.
"""

from __future__ import annotations

import os
import pwd
import secrets
import socket
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from infra.processes import end_marked, is_own_peer, is_supported
from reelabel.errors import ConfigurationError

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable, Iterator, Mapping, Sequence

# Exit code of a supervisor if another one holds the lock that cannot be reached from here.
IS_ELSEWHERE = 3
_SOCKET = "supervisor.sock"
_UNPRIVILEGED_USER = "nobody"
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ENTERED_BY_OTHERS = stat.S_IXGRP | stat.S_IXOTH


class ServiceName(StrEnum):
    POSTGRES = "postgres"
    S3 = "s3"
    PREFECT = "prefect"
    WORKER = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """How to start a service. Passwords belong in its environment, not in its arguments.

    Attributes:
        command: An absolute path and its arguments.
        environment: All its environment variables.
        cleanup_paths: Files outside its folder that it does not remove if it is killed.
    """

    command: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    folder: Path | None = None
    umask: int = -1
    cleanup_paths: Iterable[str] = ()


class Service(Protocol):
    """An embedded service: what it runs and when it is ready. The supervisor starts and ends it."""

    name: ServiceName
    needs: Sequence[ServiceName]
    stop_signal: signal.Signals

    def launch(self, port: int) -> Command:
        """Prepare the service's folder, and return how to start it on `port`."""

    def is_ready(self, port: int) -> bool: ...
    def config_hash(self) -> str:
        """Identify the configuration of this start; a running service with another one is replaced."""


class Home:
    """The paths below the folder, which is created accessible to its owner only."""

    def __init__(self, path: Path) -> None:
        if not is_supported():
            raise ConfigurationError("Reelabel runs on Linux only: it needs /proc to identify its processes.")
        self.path = path.resolve()
        try:
            for folder in (self.path, self.path / "logs", self.run):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigurationError(
                f"The folder {self.path} cannot be created or used ({error.strerror}); set REELABEL_HOME to a folder "
                "of yours."
            ) from error

    @property
    def run(self) -> Path:
        return self.path / "run"

    def require_private(self) -> None:
        """Refuse a folder in which other users can have put passwords, keys and sockets; see `require_own`."""
        require_own(self.path, postgres=self.path / ServiceName.POSTGRES)

    def folder(self, service: ServiceName) -> Path:
        folder = self.path / service
        folder.mkdir(exist_ok=True, mode=0o700)
        return folder

    def marker(self, service: ServiceName) -> str:
        """Return what marks the processes of a service, as the value of `MARKER` in their environment."""
        return f"{service}:{self.path}"

    def kill_leftovers(self) -> None:
        """Kill processes that services left behind when their supervisor was killed."""
        end_marked(*map(self.marker, ServiceName))

    def log(self, service: str) -> Path:
        return self.path / "logs" / f"{service}.log"

    def secret(self, name: str, *, prefix: str = "") -> str:
        """Return a password, which is generated on first use and begins with `prefix`."""
        path = self.secret_path(name)
        if not path.exists():
            write_privately(path, prefix + secrets.token_hex(20))
        return path.read_text()

    def secret_path(self, name: str) -> Path:
        return self.path / f"{name}.secret"

    def port(self, service: ServiceName) -> int:
        """Return the port of a service's last start; 0 if it was never started."""
        with suppress(FileNotFoundError, ValueError):  # ValueError: damaged
            return int(self._port_path(service).read_text())
        return 0

    def write_port(self, service: ServiceName, port: int) -> None:
        write_privately(self._port_path(service), str(port))

    def connect(self) -> socket.socket | None:
        """Connect to the supervisor; None if there is none of this user."""
        connection = socket.socket(socket.AF_UNIX)
        try:
            with self._socket_path() as path:
                connection.connect(path)
        except OSError:
            connection.close()
            return None
        if not is_own_peer(connection):
            connection.close()
            return None
        return connection

    def listen(self) -> socket.socket:
        """Listen as the supervisor, which holds the lock, to processes of this user."""
        self.remove_socket()
        listening = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            with self._socket_path() as path:
                listening.bind(path)
        finally:
            os.umask(before)
        listening.listen()
        return listening

    def remove_socket(self) -> None:
        (self.run / _SOCKET).unlink(missing_ok=True)

    def open_lock(self) -> int:
        """Open the file whose lock the supervisor holds, so that there is one only, also across containers."""
        # In a folder of another user, it may be a link to something else.
        return os.open(self.run / "supervisor.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)

    @contextmanager
    def _socket_path(self) -> Iterator[str]:
        """Yield a path of the socket that is short enough for a socket, however long the folder's path is."""
        folder = os.open(self.run, os.O_PATH | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{folder}/{_SOCKET}"
        finally:
            os.close(folder)

    def _port_path(self, service: ServiceName) -> Path:
        return self.run / f"{service}.port"


def network() -> str:
    """Identify this process's network: a port of 127.0.0.1 in another container is another port."""
    return str(Path("/proc/self/ns/net").readlink())


def write_privately(path: Path, text: str) -> None:
    """Write a file atomically, readable by its owner only."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    temporary.touch(mode=0o600, exist_ok=False)
    temporary.write_text(text)
    temporary.replace(path)


def require_own(home: Path, *, postgres: Path) -> None:
    """Check that a home folder, its contents and the targets of its links are this user's, and that no other can write.

    The folder of Postgres may also belong to the user as whom Postgres runs.
    """
    data = postgres / "data"
    pending = [(home, {os.geteuid()}, True)]
    while pending:
        path, owners, is_exposed = pending.pop()
        if path == postgres and os.geteuid() == 0:
            owners = {*owners, unprivileged_user().pw_uid}
        with suppress(FileNotFoundError):  # removed meanwhile, or a link to nothing
            status = path.lstat()
            _require_owner(path, status, owners)
            if stat.S_ISLNK(status.st_mode):
                status, is_exposed = path.stat(), True
                _require_owner(path, status, owners)
            elif stat.S_ISDIR(status.st_mode) and path != data:  # which Postgres itself checks
                is_entered = is_exposed and bool(status.st_mode & _ENTERED_BY_OTHERS)
                pending += [(inner, owners, is_entered) for inner in path.iterdir()]
            if is_exposed and status.st_mode & _WRITABLE_BY_OTHERS:
                raise ConfigurationError(
                    f"Other users can write to {path}, which this command would trust; run chmod go-w {path}, or set "
                    "REELABEL_HOME to a folder of yours."
                )


def unprivileged_user() -> pwd.struct_passwd:
    return pwd.getpwnam(_UNPRIVILEGED_USER)


def _require_owner(path: Path, status: os.stat_result, owners: set[int]) -> None:
    if status.st_uid not in owners:
        raise ConfigurationError(
            f"{path} belongs to {_name_of(status.st_uid)}, not to {_name_of(os.geteuid())}; run this command as that "
            "user, or set REELABEL_HOME to a folder of yours."
        )


def _name_of(user_id: int) -> str:
    try:
        return f"the user {pwd.getpwuid(user_id).pw_name}"
    except KeyError:
        return f"the user with the id {user_id}"
