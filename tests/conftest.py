"""Real services for every test that asks for one; a test that asks for none starts none."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy.engine import make_url

from infra.database import Login
from infra.embedded import ServiceName, running, start
from infra.embedded.home import Home
from infra.embedded.postgres import Postgres
from infra.objects import ObjectStore
from infra.settings import DatabaseSettings, Settings
from sql.roles import OWNER, create_roles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.settings import StoreSettings

_TEMPLATE = "template_reelabel"


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of a Postgres and an S3 server that run as long as the tests do."""
    settings = Settings(home=tmp_path_factory.mktemp("home"))
    with running(settings, wanted=frozenset({ServiceName.POSTGRES, ServiceName.S3})) as started:
        yield started


@pytest.fixture(scope="session")
def prefect_services(services: Settings) -> Settings:
    """Settings with a Prefect server and a process worker, too; flow runs write to its `database.url`."""
    from sql.migrate import upgrade  # noqa: PLC0415

    upgrade(_url_of(services))
    return start(services, wanted=frozenset({ServiceName.PREFECT, ServiceName.WORKER}))


@pytest.fixture(scope="session")
def prefect_api(prefect_services: Settings) -> Iterator[str]:
    """URL of the Prefect API, which this process's Prefect client uses as well."""
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings  # noqa: PLC0415

    prefect = prefect_services.prefect
    assert prefect.auth_string is not None
    login = prefect.auth_string.get_secret_value()
    with temporary_settings({PREFECT_API_URL: prefect.api_url, PREFECT_API_AUTH_STRING: login}):
        yield str(prefect_services.prefect.api_url)


@pytest.fixture(scope="session")
def vllm_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of the API of a real vLLM server with the tiny model; see `tests.vllm_server` for its key."""
    from tests.vllm_server import serve_tiny_model  # noqa: PLC0415

    with serve_tiny_model(tmp_path_factory.mktemp("vllm")) as url:
        yield url


@pytest.fixture
def store_settings(services: Settings) -> StoreSettings:
    """The S3 server, and a prefix of the test's own as `uri`."""
    return services.store.model_copy(update={"uri": f"s3://frames/tests/{secrets.token_hex(6)}"})


@pytest.fixture
def objects(store_settings: StoreSettings) -> ObjectStore:
    """The object store of `store_settings`."""
    return ObjectStore(store_settings)


@pytest.fixture
def database_url(services: Settings, _template: str) -> Iterator[str]:
    """An administrator's URL of a migrated, empty database of the test's own."""
    name = f"test_{secrets.token_hex(6)}"
    _execute(services, f'CREATE DATABASE "{name}" TEMPLATE "{_template}" OWNER "{OWNER}"')
    yield _url_of(services, name)
    _execute(services, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(scope="session")
def _template(services: Settings) -> str:
    from sql.migrate import upgrade  # noqa: PLC0415

    _execute(services, f'CREATE DATABASE "{_TEMPLATE}"')
    with psycopg.connect(_url_of(services, _TEMPLATE)) as connection:
        create_roles(connection)
    upgrade(_url_of(services, _TEMPLATE))
    return _TEMPLATE


@pytest.fixture
def database(services: Settings, database_url: str) -> DatabaseSettings:
    """The logins of the test's own database: who writes rows, who reads them, and who owns the tables."""
    name = make_url(database_url).database
    logins = {login: getattr(services.database, login).get_secret_value() for login in Login}
    urls = {login: make_url(url).set(database=name) for login, url in logins.items()}
    return DatabaseSettings(**{login: url.render_as_string(hide_password=False) for login, url in urls.items()})


def _url_of(settings: Settings, database: str | None = None) -> str:
    """Give an administrator's URL."""
    assert settings.database.url is not None
    port = make_url(settings.database.url.get_secret_value()).port
    url = make_url(Postgres(Home(settings.home)).administrator_url(port or 0))
    return url.set(database=database or url.database).render_as_string(hide_password=False)


def _execute(settings: Settings, statement: str) -> None:
    with psycopg.connect(_url_of(settings), autocommit=True) as connection:
        connection.execute(statement)
