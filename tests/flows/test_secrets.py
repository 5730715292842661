"""A whole run, and then a search for its secrets in everything that it left behind."""

import re
from pathlib import Path

import polars as pl
import psycopg
import pytest
from sqlalchemy.engine import make_url

from infra.embedded.home import Home
from infra.embedded.postgres import Postgres
from reelabel.sources.object_store import ObjectStore
from tasks.demo.clips import make_demo
from tests.command_line import reelabel, reelabel_process
from tests.vllm_server import KEY


@pytest.fixture
def secrets(own_services, services):
    """Every secret of the services, and one that only the settings hold, by its name."""
    database, store = own_services.database, own_services.store
    logins = {name: getattr(database, name).get_secret_value() for name in ("url", "reader_url", "owner_url")}
    keys = {"access key": store.access_key_id, "secret key": store.secret_access_key, "seal key": store.mac_key}
    return (
        {name: make_url(url).password for name, url in logins.items()}
        | {name: key.get_secret_value() for name, key in keys.items()}
        | {"prefect": own_services.prefect.auth_string.get_secret_value().partition(":")[2]}
        | {path.name: path.read_text() for path in services.home.glob("postgres*.secret")}
        | {"server key": KEY}
    )


@pytest.fixture
def environment(served, prefect_api, tmp_path):
    """Settings with two secrets in files."""
    variables, folder = dict(served), tmp_path / "secrets"
    folder.mkdir()
    for name in ("REELABEL_DATABASE_URL", "REELABEL_STORE_SECRET_ACCESS_KEY"):
        (folder / name.lower()).write_text(variables.pop(name))
    return variables | {"REELABEL_SECRETS_DIR": str(folder), "REELABEL_PREFECT_API_URL": prefect_api}


@pytest.mark.system
def test_a_whole_run_leaves_no_secret_in_logs_rows_artifacts_or_pages(
    environment, secrets, own_services, services, tmp_path
):
    root = f"{own_services.store.uri}/secrets"
    jobs = make_demo(tmp_path, seed=5, clips=2, uri_prefix=root)
    gone = jobs.head(1).with_columns(job_id=pl.lit("gone"), video_uri=pl.lit(f"{root}/gone.mp4"))
    pl.concat([jobs, gone]).write_parquet(tmp_path / "manifest.parquet")
    objects = ObjectStore(own_services.store)
    for path in tmp_path.glob("*.mp4"):
        objects.replace(f"{root}/{path.name}", path.read_bytes())

    run = reelabel_process(environment, "classify", str(tmp_path / "manifest.parquet"), "--dataset", "secrets")
    chosen = ["--dataset", "secrets", "--failed", "--manifest", str(tmp_path / "manifest.parquet")]
    commands = [["config"], ["doctor"], ["results", "last", "--format", "json"], ["backfill", *chosen, "--dry-run"]]
    runs = [run, *(reelabel(environment, *command) for command in commands)]

    assert "Reconciled: 7 jobs" in run.stdout, run.stderr
    assert "<h1" in Path(re.search(r"^Report: (.+)$", run.stdout, re.MULTILINE)[1]).read_text()
    assert [completed.stderr for completed in runs if "Traceback" in completed.stderr] == []
    ours = _rows(own_services.database.reader_url.get_secret_value(), schema="reelabel")
    prefects = _rows(_prefect_url(services.home), schema="public")
    written = "".join([*(completed.stdout + completed.stderr for completed in runs), ours, prefects])
    assert [name for name, secret in secrets.items() if secret in written] == []
    assert services.home / "logs" / "prefect.log" in _files(services.home)
    for path in (*_files(services.home), *_files(own_services.home)):
        content = _content(path)
        assert [name for name, secret in secrets.items() if secret.encode() in content] == [], path


def _prefect_url(home: Path):
    return f"postgresql://{Postgres(Home(home)).create_database('prefect')}"


def _rows(url, *, schema):
    """Print every row of every table: of ours, or of Prefect's, with its logs, parameters and artifacts."""
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema]).fetchall()
        rows = [connection.execute(f'SELECT t::text FROM {schema}."{name}" t').fetchall() for (name,) in tables]
    assert sum(map(len, rows)) > 7
    return str(rows)


def _files(home: Path):
    """List the files of all services, such as their logs."""
    return [path for path in home.rglob("*") if path.is_file() and path.suffix != ".secret"]


def _content(path: Path):
    """Read a file, or nothing where its service has removed it meanwhile."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
