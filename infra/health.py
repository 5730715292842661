"""What `reelabel doctor` looks at: each part in place, and what to do where one is not."""

from __future__ import annotations

import http.client
import importlib
import platform
import secrets
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from infra import database, embedded
from infra.errors import ReelabelError
from infra.objects import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from infra.settings import Settings

_MODULES = ("av", "numpy", "pyarrow", "polars", "boto3", "sqlalchemy", "psycopg", "alembic", "prefect", "pebble")
_NEEDED_FREE_BYTES = 2 * 1024**3
_OLDEST_PYTHON = (3, 11)
_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What.
        ok: Whether it is as it should be.
        detail: What was found.
        advice: What to do; empty if `ok`.
    """

    name: str
    ok: bool
    detail: str
    advice: str = ""


def examine(settings: Settings) -> Iterator[Check]:
    """Look at everything, one check after the other, never raising.

    Args:
        settings: With the addresses of the embedded services filled in, if they run.
    """
    yield check_python()
    yield from (check_import(module) for module in _MODULES)
    yield check_ffmpeg()
    yield check_disk(settings.home)
    yield check_database(settings)
    yield check_store(settings)
    yield check_prefect(settings)
    yield from check_embedded(settings.home)


def check_python() -> Check:
    """Look at Python's version."""
    ok = sys.version_info[:2] >= _OLDEST_PYTHON
    return Check(
        name="python",
        ok=ok,
        detail=platform.python_version(),
        advice="" if ok else "Install Python 3.11 or later, and make the virtual environment anew.",
    )


def check_import(module: str) -> Check:
    """Import one package, as the work would."""
    name = f"import {module}"
    try:
        found = importlib.import_module(module)
    except Exception as error:  # noqa: BLE001 - a broken package may raise anything
        return Check(
            name=name,
            ok=False,
            detail=f"{type(error).__name__}: {error}",
            advice="Run pip install --force-reinstall reelabel.",
        )
    return Check(name=name, ok=True, detail=str(getattr(found, "__version__", "present")))


def check_ffmpeg() -> Check:
    """Look at the FFmpeg libraries that came with PyAV."""
    try:
        import av  # noqa: PLC0415 - the check is whether this works
    except ImportError as error:
        return Check(name="ffmpeg", ok=False, detail=str(error), advice="Run pip install --force-reinstall av.")
    versions = {library: ".".join(map(str, version)) for library, version in av.library_versions.items()}
    return Check(name="ffmpeg", ok=True, detail=", ".join(f"{library} {v}" for library, v in versions.items()))


def check_disk(home: Path) -> Check:
    """Look at the space that the embedded services may fill."""
    standing = next(path for path in (home.resolve(), *home.resolve().parents) if path.exists())
    free_bytes = shutil.disk_usage(standing).free
    ok = free_bytes >= _NEEDED_FREE_BYTES
    advice = f"Free at least {_NEEDED_FREE_BYTES / 1024**3:.0f} GiB there, or set home to another disk."
    detail = f"{free_bytes / 1024**3:.1f} GiB free at {standing}"
    return Check(name="disk", ok=ok, detail=detail, advice="" if ok else advice)


def check_database(settings: Settings) -> Check:
    """Connect to the database."""
    if settings.database.url is None:
        return _embedded_instead("database", "database.url")
    return _tried("database", lambda: f"Postgres {_database_version(settings)}")


def check_store(settings: Settings) -> Check:
    """Write one small object to the store and read it again."""
    uri = settings.store.uri
    if uri is None:
        return _embedded_instead("store", "store.uri")

    def write_and_read() -> str:
        store = ObjectStore(settings.store)
        probe_uri = f"{uri.rstrip('/')}/doctor/probe"
        written = secrets.token_bytes(16)
        store.replace(probe_uri, written)
        return f"{uri} can be written and read" if store.read(probe_uri) == written else f"{uri} is in use by others"

    return _tried("store", write_and_read)


def check_prefect(settings: Settings) -> Check:
    """Ask the Prefect API for its version."""
    if settings.prefect.api_url is None:
        return _embedded_instead("prefect", "prefect.api_url")
    try:
        version = _get(f"{settings.prefect.api_url.rstrip('/')}/admin/version")
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Check(
            name="prefect",
            ok=False,
            detail=f"{settings.prefect.api_url} does not answer: {error}",
            advice="Start the server, or correct prefect.api_url.",
        )
    return Check(name="prefect", ok=True, detail=f"{version} at {settings.prefect.api_url}")


def check_embedded(home: Path) -> Iterator[Check]:
    """Say which embedded services run; none has to."""
    if not home.exists():
        return
    for service in embedded.status(home):
        at = f" at {service.address}" if service.address else ""
        detail = f"runs as process {service.pid}{at}" if service.is_running else "does not run; started when needed"
        yield Check(name=f"embedded {service.name}", ok=True, detail=f"{detail} (log: {service.log})")


def _database_version(settings: Settings) -> str:
    engine = database.connect(settings.database)
    try:
        return database.check_database(engine)
    finally:
        engine.dispose()


def _tried(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name=name, ok=True, detail=look())
    except ReelabelError as error:
        # Our errors end with what to do: nothing is left to advise.
        return Check(name=name, ok=False, detail=error.code, advice=error.message)


def _embedded_instead(name: str, setting: str) -> Check:
    return Check(name=name, ok=True, detail=f"{setting} is not set: commands start an embedded one")


def _get(url: str) -> str:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", parts.path)
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise http.client.HTTPException(f"HTTP {answer.status} {answer.reason}")
        return answer.read().decode().strip('"')
    finally:
        connection.close()
