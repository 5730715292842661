"""Every command and flow names a database of another version and what to do."""

import pytest
import sqlalchemy

from flows.cli.rows.audit import audit
from flows.cli.rows.results import results
from flows.cli.status.page import status
from flows.extract import extract
from flows.infer import infer
from flows.maintain import apply_retention
from flows.runs import backfill, classify
from infra.database.connect import connected
from infra.embedded import export
from infra.settings import StoreSettings, load_settings
from reelabel.errors import ConfigurationError
from sql.migrate import downgrade, head
from tasks.database.schema import check_schema, prepare_database
from tasks.demo.clips import make_demo

# Each stops at the database: before a model is loaded, and before Prefect is asked for anything.
STARTS = {
    "classify": lambda manifest: classify.fn(manifest=manifest),
    "backfill": lambda manifest: backfill.fn(manifest=manifest, ids=["a"]),
    "maintain": lambda _: list(apply_retention(load_settings(), dry_run=True)),
}
READS = {
    "audit": lambda _: audit(),
    "results": lambda _: results(),
    "extract": lambda _: extract.fn(),
    "infer": lambda _: infer.fn(),
}


@pytest.fixture(scope="module")
def demo_manifest(tmp_path_factory):
    folder = tmp_path_factory.mktemp("versions")
    make_demo(folder, seed=1, clips=1).write_parquet(folder / "m.parquet")
    return str(folder / "m.parquet")


@pytest.fixture
def settings(services, database, tmp_path, monkeypatch):
    """Settings of a database and a store of our own, which the environment holds, too."""
    store = StoreSettings(uri=tmp_path.as_uri())
    settings = services.model_copy(update={"database": database, "store": store, "home": tmp_path / "home"})
    for name, value in export(settings).items():
        monkeypatch.setenv(name, value)
    return settings


@pytest.fixture
def behind(settings, database_url):
    """A database without the newest migration, and a login that may not upgrade it."""
    downgrade(database_url, "-1")
    return settings


@pytest.fixture
def ahead(settings, database_url):
    """A database that a newer version has upgraded."""
    engine = sqlalchemy.create_engine(sqlalchemy.make_url(database_url).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("UPDATE reelabel_version SET version_num = '9999'"))
    engine.dispose()
    return settings


@pytest.mark.parametrize("use", [*STARTS.values(), *READS.values()], ids=[*STARTS, *READS])
def test_a_database_one_version_ahead_is_left_to_the_newer_version(ahead, demo_manifest, use):  # noqa: ARG001
    with pytest.raises(
        ConfigurationError, match=f"schema 9999, which is unknown to this version, whose schema is {head()}; upgrade"
    ):
        use(demo_manifest)


@pytest.mark.parametrize("use", READS.values(), ids=list(READS))
def test_commands_that_only_read_say_how_to_upgrade_a_database(behind, demo_manifest, use):  # noqa: ARG001
    with pytest.raises(
        ConfigurationError, match=f"this version needs schema {head()}; run `reelabel database upgrade`"
    ):
        use(demo_manifest)


@pytest.mark.parametrize("use", STARTS.values(), ids=list(STARTS))
def test_a_login_that_may_not_upgrade_a_database_is_told_which_may(behind, demo_manifest, use, monkeypatch):
    monkeypatch.setenv("REELABEL_DATABASE_OWNER_URL", behind.database.url.get_secret_value())

    with pytest.raises(ConfigurationError, match=r"the login may not upgrade it; set database\.owner_url"):
        use(demo_manifest)


def test_a_login_with_the_rights_upgrades_a_database(behind):
    prepare_database(behind.database)

    with connected(behind.database) as engine:
        check_schema(engine)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("behind", "run `reelabel database upgrade`"),
        ("ahead", "schema 9999, which is unknown to this version, whose schema is 0001_"),
    ],
)
def test_status_shows_services_and_what_is_wrong_with_the_database(request, capsys, state, message):
    request.getfixturevalue(state)

    status()

    shown = " ".join(capsys.readouterr().out.split())
    assert message in shown
    assert "postgres" in shown
