import time

import polars as pl
import pytest
import sqlalchemy
from pydantic import SecretStr
from sqlalchemy.engine import make_url

from infra.database.connect import Role, check_database, connect, connected, database_errors, require_writes
from infra.errors import DatabaseUnavailableError
from infra.processes import free_port
from infra.settings import DatabaseSettings
from reelabel.errors import ConfigurationError, DiskFullError, TransientError
from tasks.database.temp_table import copy_data_frames
from tests.chaos.gate import Gate


@pytest.fixture
def url(services):
    return make_url(services.database.url.get_secret_value())


def _connect(url):
    return connect(DatabaseSettings(url=SecretStr(url.render_as_string(hide_password=False))))


def test_a_database_is_reached_by_its_plain_url(url):
    assert check_database(_connect(url)).split(".")[0].isdigit()


def test_no_statement_is_left_prepared_in_a_session_that_a_pooler_may_lend_to_others(url):
    with _connect(url).connect() as connection:
        for number in range(20):
            connection.execute(sqlalchemy.text("SELECT :number"), {"number": number})

        assert connection.scalar(sqlalchemy.text("SELECT count(*) FROM pg_prepared_statements")) == 0


def test_a_wrong_password_is_a_configuration_error_and_never_printed(url):
    with pytest.raises(ConfigurationError, match=r"password authentication failed.*\[database\]") as raised:
        check_database(_connect(url.set(password="hunter2")))
    assert "hunter2" not in str(raised.value)


def test_a_missing_database_is_a_configuration_error(url):
    with pytest.raises(ConfigurationError, match=r'refuses the login: .*"nowhere" does not exist'):
        check_database(_connect(url.set(database="nowhere")))


def test_a_database_with_too_many_connections_is_unavailable(db, database):
    def execute(statement):
        with db.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(sqlalchemy.text(statement))

    execute(f"ALTER DATABASE {db.url.database} CONNECTION LIMIT 2")  # this administrator has one
    with connected(database) as first, connected(database) as second, first.connect():
        with pytest.raises(DatabaseUnavailableError, match="too many connections for database"):
            check_database(second)
        execute(f"ALTER DATABASE {db.url.database} CONNECTION LIMIT -1")
        assert check_database(second)


def test_a_database_that_a_login_may_not_connect_to_is_a_configuration_error(db, database):
    name = db.url.database
    with db.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for role in ("PUBLIC", "reelabel_reader"):
            connection.execute(sqlalchemy.text(f"REVOKE CONNECT ON DATABASE {name} FROM {role}"))

    refused = pytest.raises(ConfigurationError, match=r"refuses the login: .*permission denied")
    with connected(database, Role.READER) as reader, refused:
        check_database(reader)


def test_a_server_that_does_not_answer_is_unavailable(url):
    with pytest.raises(DatabaseUnavailableError, match="refused"):
        check_database(_connect(url.set(port=free_port())))


@pytest.mark.parametrize("text", ["mysql://user:hunter2@host/db", "hunter2", "postgresql://u:hunter2@host:port/db"])
def test_a_url_of_something_else_is_refused_without_printing_it(text):
    with pytest.raises(ConfigurationError, match=r"database\.url") as raised:
        connect(DatabaseSettings(url=SecretStr(text)))
    assert "hunter2" not in str(raised.value)


def test_a_connection_that_the_server_closed_is_replaced_transparently(url):
    engine = _connect(url)
    with engine.connect() as connection:
        pid = connection.scalar(sqlalchemy.text("SELECT pg_backend_pid()"))
    with _connect(url).connect() as other:
        other.execute(sqlalchemy.text("SELECT pg_terminate_backend(:pid, 2000)"), {"pid": pid})

    assert check_database(engine)


def test_a_connection_that_closes_at_once_is_unavailable_without_libpqs_guesses(url):
    gate = Gate(url.port)
    with gate.shut(), pytest.raises(DatabaseUnavailableError, match=r"closed the connection unexpectedly\. Check"):
        check_database(_connect(url.set(port=gate.port)))
    gate.close()


def test_statement_errors_pass_through_unchanged(url):
    missing = sqlalchemy.text('SELECT * FROM "no such table"')
    with pytest.raises(sqlalchemy.exc.ProgrammingError), database_errors(), _connect(url).connect() as connection:
        connection.execute(missing)


def interrupt():
    raise KeyboardInterrupt


def divide_by_zero(connection):
    connection.execute(sqlalchemy.text("SELECT 1 / 0"))


def test_an_interrupt_is_not_lost_where_the_cleanup_of_a_connection_fails(url):
    def body(connection):
        try:
            interrupt()
        finally:
            divide_by_zero(connection)

    with pytest.raises(KeyboardInterrupt), database_errors(), _connect(url).connect() as connection:
        body(connection)


def test_an_error_after_an_interrupt_passes_through(url):
    try:
        interrupt()
    except KeyboardInterrupt:
        with pytest.raises(sqlalchemy.exc.DataError), database_errors(), _connect(url).connect() as connection:
            divide_by_zero(connection)


def test_a_read_only_server_is_unavailable(url):
    engine = _connect(url)

    def pid():
        with engine.connect() as connection:
            return connection.scalar(sqlalchemy.text("SELECT pg_backend_pid()"))

    def write():
        with database_errors(), engine.begin() as connection:
            connection.execute(sqlalchemy.text("CREATE TABLE written (n int)"))

    def fail_over():
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text("SET default_transaction_read_only = on"))
            connection.commit()

    for use in (write, lambda: require_writes(engine)):
        fail_over()
        before = pid()
        with pytest.raises(
            DatabaseUnavailableError,
            match=r"Postgres is read-only: .* a login that may write",
        ):
            use()
        assert pid() != before  # another server may answer now
        require_writes(engine)


def test_an_error_in_the_middle_of_a_copy_is_reported(url):
    engine = _connect(url.update_query_dict({"options": "-c statement_timeout=50"}))

    def slow_frames():
        yield pl.DataFrame({"n": [1]})
        time.sleep(0.2)
        yield pl.DataFrame({"n": [2]})

    table = sqlalchemy.Table("copied", sqlalchemy.MetaData(), sqlalchemy.Column("n"), prefixes=["TEMPORARY"])

    def copy():
        with database_errors(), engine.begin() as connection:
            connection.execute(sqlalchemy.text("CREATE TEMPORARY TABLE copied (n int)"))
            copy_data_frames(connection, table, slow_frames())

    with pytest.raises(DatabaseUnavailableError, match=r"statement timeout.*\); raise statement_timeout of"):
        copy()


@pytest.mark.parametrize("limit", ["idle_in_transaction_session_timeout", "transaction_timeout"])
def test_a_session_that_the_servers_limits_end_is_tried_again(url, limit):
    engine = _connect(url.update_query_dict({"options": f"-c {limit}=50"}))

    def pause_in_a_transaction():
        with database_errors(), engine.begin() as connection:
            pid = connection.scalar(sqlalchemy.text("SELECT pg_backend_pid()"))
            with _connect(url).connect() as other:
                while other.scalar(sqlalchemy.text("SELECT 1 FROM pg_stat_activity WHERE pid = :pid"), {"pid": pid}):
                    other.rollback()
            connection.execute(sqlalchemy.text("SELECT 1"))

    with pytest.raises(DatabaseUnavailableError, match=r"Postgres failed: .*(timeout|closed the connection)"):
        pause_in_a_transaction()
    assert check_database(_connect(url))


def test_a_server_with_a_full_disk_is_named_and_waited_for(db):
    statement = "DO $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$"

    disk_full = pytest.raises(DiskFullError, match="disk of Postgres is full: could not extend file")
    with disk_full as caught, database_errors(), db.begin() as connection:
        connection.execute(sqlalchemy.text(statement))
    assert isinstance(caught.value, TransientError)
