import pytest
import sqlalchemy

from infra.database.connect import connected
from infra.settings import DatabaseSettings
from reelabel.errors import ConfigurationError
from sql.migrate import downgrade
from tasks.database.schema import check_schema, upgrade_schema


def test_a_database_without_tables_is_refused_until_it_is_upgraded(db, database_url):
    downgrade(database_url)
    with pytest.raises(ConfigurationError, match="has no Reelabel tables"):
        check_schema(db)

    upgrade_schema(db)

    check_schema(db)


@pytest.mark.parametrize("use", [check_schema, upgrade_schema])
def test_a_database_of_a_newer_version_is_left_alone(db, use):
    with db.begin() as connection:
        connection.execute(sqlalchemy.text("UPDATE reelabel_version SET version_num = '9999'"))

    with pytest.raises(
        ConfigurationError, match="has schema 9999, which is unknown to this version, whose schema is 0001_"
    ):
        use(db)


def test_a_wrong_password_is_explained(database_url):
    url = sqlalchemy.make_url(database_url).set(password="wrong").render_as_string(hide_password=False)
    refused = pytest.raises(ConfigurationError, match="password authentication failed")
    with connected(DatabaseSettings(url=url)) as db, refused:
        upgrade_schema(db)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_cannot_hold_every_text_is_refused(db, encoding):
    name = f"{db.url.database}_{encoding.lower()}"
    with db.connect().execution_options(isolation_level="AUTOCOMMIT") as administrator:
        statement = f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'"
        administrator.execute(sqlalchemy.text(statement))
        url = db.url.set(database=name).render_as_string(hide_password=False)
        with connected(DatabaseSettings(url=url)) as other:
            for use in (check_schema, upgrade_schema):
                with pytest.raises(ConfigurationError, match=f"{name} has the encoding {encoding}.* encoding UTF8"):
                    use(other)
        administrator.execute(sqlalchemy.text(f"DROP DATABASE {name}"))
