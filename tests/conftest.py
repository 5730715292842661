"""Fixtures for real services, started only if a test uses them."""

from __future__ import annotations

import gc
import os
import secrets
import signal
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import hypothesis
import psycopg
import pytest
from sqlalchemy.engine import make_url

from infra.database.connect import Role, connected
from infra.embedded import ServiceName, running, start
from infra.embedded.home import Home
from infra.embedded.postgres import Postgres
from infra.settings import DatabaseSettings, Settings
from reelabel.pool.decode_pool import DecodePool
from reelabel.sources.object_store import ObjectStore
from sql.roles import create_roles
from tasks.model.identity import TINY_ENCODER, TINY_MODEL
from tests.chaos.gate import Gate
from tests.databases import Databases
from tests.shared import common_folder, locked, made_once
from tests.unfinished import OUT_OF_TIME, UnfinishedSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from sqlalchemy import Engine

    from infra.settings import StoreSettings

_TEMPLATE = "template_reelabel"
_SLOWEST_FILES = 10
_DEADLINE = "_TESTS_BEGIN_UNTIL"
_FIRST_GROUP = "long-waits"
_LAST = ("tests/benchmarks/", "tests/tools/")

# How fast a machine is decides no test.
_PROPERTIES = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("any-machine", _PROPERTIES)
hypothesis.settings.load_profile("any-machine")
# Readline sets these in pytest's process and workers inherit them; consoles would keep that width.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)
# Threads of PyTorch that wait for work would otherwise spin on the cores that other processes need.
os.environ["OMP_WAIT_POLICY"] = "passive"
# `nohup` and a shell's `&` leave these ignored, and what tests start would inherit that.
for _signal, _usual in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(_signal) == signal.SIG_IGN:
        signal.signal(_signal, _usual)
# Every test uses the demo's models unless it names others; commands have none of their own.
os.environ |= {"REELABEL_MODEL_NAME": str(TINY_MODEL), "REELABEL_DESCRIBE_MODEL": str(TINY_ENCODER)}
# What Prefect keeps in its home must not outlive a session of tests; workers inherit this one.
if "PYTEST_XDIST_WORKER" not in os.environ:
    _prefect_home = tempfile.TemporaryDirectory(prefix="prefect-home-", ignore_cleanup_errors=True)
    os.environ["PREFECT_HOME"] = _prefect_home.name


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Report failures at once in the process that prints; xdist's workers print nothing."""
    if (minutes := config.getoption("minutes")) is not None and not hasattr(config, "workerinput"):
        os.environ[_DEADLINE] = str(time.time() + 60 * minutes)  # workers inherit it
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal and not hasattr(config, "workerinput"):
        config.pluginmanager.register(UnfinishedSession(terminal))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--minutes`, so that a slow machine runs fewer tests instead of none to their end."""
    parser.addoption("--minutes", type=float, help="begin no test later than this; list those that were left out")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Leave out a test for which `--minutes` has no time, before its fixtures start anything."""
    if time.time() > float(os.environ.get(_DEADLINE, "inf")):
        pytest.skip(OUT_OF_TIME)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Run the tests of a file in one worker process, so that what they share is made once, and files in their order."""
    from xdist.scheduler import LoadGroupScheduling  # noqa: PLC0415 - where there are workers

    class ByGroupOrFile(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            scope = super()._split_scope(nodeid)
            return nodeid.partition("::")[0] if scope == nodeid else scope

    config.option.loadscopereorder = False
    return ByGroupOrFile(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test that needs a service, for `make unit`."""
    if "services" in getattr(item, "fixturenames", ()):
        item.add_marker("service")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what mostly waits and what users run, and make --dist loadgroup respect groups.

    pytest-xdist 3.8 ignores them with pytest 9.2 (pytest-xdist issue 1386). A test's own group takes precedence over
    that of its module.
    """
    items.sort(key=lambda item: (item.nodeid.startswith(_LAST), _group_of(item) != _FIRST_GROUP))
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        group = _group_of(item)
        if group and "@" not in item.nodeid.rpartition("]")[2]:
            item._id = type(item.id).parse(f"{item.nodeid}@{group}")


def _group_of(item: pytest.Item) -> str | None:
    marker = item.get_closest_marker("xdist_group")
    return marker.args[0] if marker else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Look for no garbage in what collecting makes, which is kept to the end: it would take half of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the slowest test files, summed over all workers and including fixtures."""
    spent_s: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                spent_s[report.nodeid.partition("::")[0]] += report.duration
    if len(spent_s) == 1:
        return
    terminalreporter.section(f"slowest {_SLOWEST_FILES} files of {spent_s.total():.0f} s")
    for name, seconds in spent_s.most_common(_SLOWEST_FILES):
        terminalreporter.line(f"{seconds:7.1f} s  {name}")


@pytest.fixture(autouse=True)
def _ordinary_priority() -> Iterator[None]:
    """Fail a test that leaves its process at another priority: what is started later would inherit it."""
    before = os.sched_getscheduler(0)
    yield
    assert os.sched_getscheduler(0) == before, "an encoder has left a real-time priority: use own_scheduling"


@pytest.fixture(autouse=True)
def _own_environment() -> Iterator[None]:
    """Fail a test that leaves settings in the environment: later tests would use services that have stopped."""
    before = _settings_in_environment()
    yield
    assert _settings_in_environment() == before


def _settings_in_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(("REELABEL_", "PREFECT_"))}


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of a Postgres and an S3 server shared by all workers."""
    settings = Settings(home=common_folder(tmp_path_factory) / "home")
    with running(settings, wanted=frozenset({ServiceName.POSTGRES, ServiceName.S3})) as started:
        _forgo_fsync(started)
        yield started


@pytest.fixture(scope="session")
def prefect_services(services: Settings) -> Settings:
    """`services` plus a Prefect server and a process worker, whose flow runs use `database.url`.

    All workers share them: tests that inspect flow runs other than their own belong to the group `prefect`.
    """
    from sql.migrate import upgrade  # noqa: PLC0415

    with locked(services.home / "upgrade.lock"):
        upgrade(_url_of(services))
    return start(services, wanted=frozenset({ServiceName.PREFECT, ServiceName.WORKER}))


@pytest.fixture(scope="session")
def separate_services(
    prefect_services: Settings,
    _new_database: Callable[[], AbstractContextManager[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[], AbstractContextManager[Settings]]:
    """`prefect_services` with a separate database, S3 prefix and home for each call."""

    @contextmanager
    def separate() -> Iterator[Settings]:
        with _new_database() as name:
            yield prefect_services.model_copy(
                update={
                    "home": tmp_path_factory.mktemp("home"),
                    "database": _logins(prefect_services, name),
                    "store": replace(prefect_services.store, uri=f"{prefect_services.store.uri}/{name}"),
                }
            )

    return separate


@pytest.fixture(scope="module")
def own_services(separate_services: Callable[[], AbstractContextManager[Settings]]) -> Iterator[Settings]:
    """Separate services for each module."""
    with separate_services() as settings:
        yield settings


@pytest.fixture(scope="session")
def prefect_api(prefect_services: Settings) -> Iterator[str]:
    """URL of the Prefect API, also configured for the Prefect client of this process."""
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings  # noqa: PLC0415

    prefect = prefect_services.prefect
    assert prefect.auth_string is not None
    login = prefect.auth_string.get_secret_value()
    with temporary_settings({PREFECT_API_URL: prefect.api_url, PREFECT_API_AUTH_STRING: login}):
        yield str(prefect_services.prefect.api_url)


@pytest.fixture(scope="session")
def vllm_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """API URL of a real vLLM server with the tiny model, shared by all workers; its key is `tests.vllm_server.KEY`."""
    from tests.vllm_server import serve_tiny_model  # noqa: PLC0415

    with serve_tiny_model(common_folder(tmp_path_factory)) as url:
        yield url


@pytest.fixture(scope="session")
def stub_server() -> Iterator[str]:
    """API URL of a server without a model, in this process: see `tests.stub_server`."""
    from tests.stub_server import serve_stub  # noqa: PLC0415

    with serve_stub() as url:
        yield url


@pytest.fixture(scope="module")
def pool() -> Iterator[DecodePool]:
    """One decoding process for each module."""
    with DecodePool(processes=1, timeout_s=60, memory_mib=2048) as pool:
        yield pool


@pytest.fixture
def store_settings(services: Settings) -> StoreSettings:
    """Settings of the S3 server, with a separate prefix for each test as `uri`."""
    return replace(services.store, uri=f"s3://frames/tests/{secrets.token_hex(6)}")


@pytest.fixture
def objects(store_settings: StoreSettings) -> ObjectStore:
    """The object store of `store_settings`."""
    return ObjectStore(store_settings)


@pytest.fixture
def store_gate(store_settings: StoreSettings) -> Iterator[Gate]:
    """A proxy before the S3 server, which speaks plain HTTP and can make requests fail."""
    gate = Gate(urlsplit(store_settings.endpoint_url).port, authority=store_settings.ca_file)
    yield gate
    gate.close()


@pytest.fixture
def database_url(services: Settings, _new_database: Callable[[], AbstractContextManager[str]]) -> Iterator[str]:
    """Administrator URL of a migrated, empty database for each test."""
    with _new_database() as name:
        yield _url_of(services, name)


@pytest.fixture
def db(database_url: str) -> Iterator[Engine]:
    """SQLAlchemy engine for the test's database, as its administrator."""
    with connected(DatabaseSettings(url=database_url)) as db:
        yield db


@pytest.fixture(scope="session")
def _template(services: Settings) -> str:
    from sql.migrate import upgrade  # noqa: PLC0415

    def make() -> str:
        _execute(services, f'CREATE DATABASE "{_TEMPLATE}"')
        with psycopg.connect(_url_of(services, _TEMPLATE)) as connection:
            create_roles(connection)
        upgrade(_url_of(services, _TEMPLATE))
        return _TEMPLATE

    return made_once(services.home / "template.json", make)


@pytest.fixture
def database(services: Settings, database_url: str) -> DatabaseSettings:
    """Logins of the test's database: writer, reader and owner."""
    return _logins(services, make_url(database_url).database)


@pytest.fixture(scope="session")
def _new_database(services: Settings, _template: str) -> Iterator[Callable[[], AbstractContextManager[str]]]:
    """A function that lends a database for as long as its context; all are made over one connection."""
    with psycopg.connect(_url_of(services), autocommit=True) as administrator:
        databases = Databases(
            administrator, _template, lambda name: _url_of(services, name), services.home / "template.use"
        )
        yield databases.lend
        databases.close()


def _logins(services: Settings, database: str | None) -> DatabaseSettings:
    logins = {login: getattr(services.database, login).get_secret_value() for login in Role}
    urls = {login: make_url(url).set(database=database) for login, url in logins.items()}
    return DatabaseSettings(**{login: url.render_as_string(hide_password=False) for login, url in urls.items()})


def _url_of(settings: Settings, database: str | None = None) -> str:
    """Return an administrator's URL."""
    assert settings.database.url is not None
    port = make_url(settings.database.url.get_secret_value()).port
    url = make_url(Postgres(Home(settings.home)).administrator_url(port or 0))
    return url.set(database=database or url.database).render_as_string(hide_password=False)


def _forgo_fsync(settings: Settings) -> None:
    """Do not make Postgres wait for the disk, so that databases are created three times as fast; none is kept."""
    for setting in ("fsync", "full_page_writes"):
        _execute(settings, f"ALTER SYSTEM SET {setting} = off")
    _execute(settings, "SELECT pg_reload_conf()")


def _execute(settings: Settings, statement: str) -> None:
    with psycopg.connect(_url_of(settings), autocommit=True) as connection:
        connection.execute(statement)
