import json
import os
import re
import signal
import subprocess
import sys
from datetime import timedelta
from uuid import UUID

import prefect
import pytest
from sqlalchemy import func, insert

from infra.database.connect import connect
from infra.embedded import ServiceName, export, running
from infra.settings import DatabaseSettings, PrefectSettings, Settings
from reelabel_engine.protocol import EngineConfig
from sql.migrate import downgrade
from tasks.database.live_tables import LIVE_SESSION
from tasks.model.engine.process import EngineProcess
from tasks.model.warm_engines import WarmEngines
from tasks.results.overview import list_runs
from tasks.results.runs import cancel_run, open_run, update_run
from tests import stub_engine
from tests.command_line import reelabel, reelabel_process
from tests.http_server import Handler, serve
from tests.killed import folder_of_a_killed_run
from tests.results.rows import FACTS, SPEC

_NOBODY = "http://127.0.0.1:1/api"
# Of the user, for other programs.
_FOREIGN = {
    "HTTP_PROXY": "http://127.0.0.1:1",
    "HTTPS_PROXY": "http://127.0.0.1:1",
    "ALL_PROXY": "socks5://127.0.0.1:1",
    "AWS_PROFILE": "nowhere",
    "PGSERVICE": "nowhere",
    "PGHOSTADDR": "127.0.0.2",
    "PREFECT_PROFILE": "nowhere",
    "PREFECT_API_KEY": "of another server",
}


def test_status_shows_runs_with_their_rate_and_remaining_time(database_url, prefect_services):
    database = DatabaseSettings(url=database_url)
    engine = connect(database)
    run_id, scheduled_with = UUID("01990000-0001-7000-8000-000000000000"), UUID("01990000-0002-7000-8000-000000000000")
    open_run(engine, run_id=scheduled_with, spec=SPEC, facts=FACTS)
    cancel_run(engine, scheduled_with)
    facts = {"dataset": "animals", "manifest_uri": "m.parquet", "kind": "classify", "host": "h"}
    facts |= {"jobs_total": 1200, "jobs_skipped": 200, "shards_total": 10}
    open_run(engine, run_id=run_id, spec=SPEC, facts=facts)
    update_run(engine, run_id, jobs_labelled=240, jobs_failed=10, shards_done=2)
    listed, _ = list_runs(engine, limit=5)
    engine.dispose()

    settings = prefect_services.model_copy(update={"database": database})
    shown = reelabel(os.environ | export(settings) | {"COLUMNS": "160"}, "status").stdout

    assert (listed.jobs, listed.ended, listed.state) == (1000, 250, "running")
    assert abs(listed.remaining_s - 3 * listed.elapsed_s) < 1e-6
    for cell in (
        "01990000-0001 ",
        "01990000-0002 ",
        f"classify animals by {SPEC.model.name}",
        "running",
        "250 of 1,000",
        "2 of 10",
    ):
        assert cell in shown


class PrefectWithoutDatabase(Handler):
    """Answers as Prefect does whose database is gone."""

    def do_GET(self):
        is_version = self.path == "/api/admin/version"
        self.respond(*(200, json.dumps(prefect.__version__).encode()) if is_version else (500,))

    def do_POST(self):
        self.read_body()
        self.respond(500)


def test_a_prefect_server_that_fails_hides_nothing_but_its_schedules(tmp_path):
    with serve(PrefectWithoutDatabase) as server:
        settings = Settings(home=tmp_path, prefect={"api_url": f"{server.url}/api"})
        shown = reelabel(os.environ | export(settings) | {"COLUMNS": "160"}, "status")

    assert shown.returncode == 0, shown.stderr
    assert f"Prefect at {server.url}/api answers with an internal error (HTTP 500)" in shown.stdout
    assert "No runs are shown, because Postgres is stopped." in shown.stdout


def test_status_shows_the_live_sessions_that_a_service_has_left_behind(database_url, tmp_path):
    settings = Settings(database=DatabaseSettings(url=database_url), home=tmp_path)
    engine = connect(settings.database)
    with engine.begin() as connection:
        for minutes in (0, 2):
            seen_at = func.now() - timedelta(minutes=minutes)
            row = {"session_id": UUID(int=minutes << 96), "model": "m", "config": {}, "versions": {}, "host": "camera"}
            connection.execute(insert(LIVE_SESSION).values(row | {"seen_at": seen_at, "frames_kept": 7}))
    engine.dispose()

    shown = reelabel(os.environ | export(settings) | {"COLUMNS": "160"}, "status").stdout

    assert re.search(r"00000000 +camera +open +7 +0 ", shown)
    assert re.search(r"00000002 +camera +lost +7 +0 ", shown)
    assert "  reelabel report --session 00000002" in shown
    assert "--session 00000000" not in shown


def test_status_without_a_database_shows_the_services(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REELABEL_")}

    shown = reelabel(environment | {"REELABEL_HOME": str(tmp_path), "COLUMNS": "160"}, "status")

    assert shown.returncode == 0, shown.stderr
    assert re.search("postgres +stopped", shown.stdout)
    assert "Model: none is named\n" in shown.stdout


def test_results_in_another_folder_than_that_of_the_runs_start_nothing(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REELABEL_")}
    home = tmp_path / "home"

    shown = reelabel(environment | {"REELABEL_HOME": str(home)}, "results", "last")

    assert shown.returncode == 2
    assert f"No runs in {home}. Run this where you started the run, or set REELABEL_HOME." in shown.stderr
    assert not home.exists()


def test_status_tells_services_of_the_user_from_stopped_ones(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REELABEL_")}
    configured = {"REELABEL_HOME": str(tmp_path), "REELABEL_STORE_URI": f"file://{tmp_path}/store", "COLUMNS": "160"}

    shown = reelabel(environment | configured, "status").stdout

    assert re.search("s3 +your own", shown)
    assert re.search("postgres +stopped", shown)


def test_down_says_if_nothing_was_running(tmp_path):
    completed = reelabel(os.environ | {"REELABEL_HOME": str(tmp_path)}, "down")

    assert completed.returncode == 0
    assert completed.stdout == f"No services were running. Their data remains in {tmp_path}.\n"


@pytest.mark.system
def test_up_leaves_nothing_to_do_for_the_database(tmp_path):
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("REELABEL_")}
    environment = inherited | {"REELABEL_HOME": str(tmp_path), "COLUMNS": "160"}
    try:
        started = reelabel_process(environment | _FOREIGN, "up")
        shown = reelabel_process(environment, "status")
    finally:
        reelabel_process(environment, "down")
    with running(Settings(home=tmp_path), wanted=frozenset({ServiceName.POSTGRES})):
        without = reelabel_process(environment, "status").stdout

    assert (started.returncode, shown.returncode) == (0, 0), started.stderr + shown.stderr
    assert "Services are running." in started.stdout
    assert re.search(r"postgres +running", shown.stdout)
    assert "To start stopped services" not in shown.stdout
    assert re.search(r"worker +stopped", without)
    assert re.search(r"To start stopped services: .* up\n", without)
    assert "No failed or lost runs in the last 7 days." in shown.stdout
    assert "no Reelabel tables" not in started.stderr + shown.stdout


def test_up_says_whose_login_the_database_waits_for(services, database, tmp_path):
    downgrade(database.owner_url.get_secret_value())
    configured = {"database": database, "prefect": PrefectSettings(api_url=_NOBODY)}
    # In the tests' own home folder, it would have the services that they share outlive them.
    owner = services.model_copy(update={**configured, "home": tmp_path})
    writer = owner.model_copy(update={"database": DatabaseSettings(url=database.url)})

    left = folder_of_a_killed_run()

    refused = reelabel(os.environ | export(writer), "up")
    upgraded = reelabel(os.environ | export(owner), "up")

    assert refused.returncode == 0
    assert "has no Reelabel tables" in refused.stderr
    assert "the login may not upgrade it; set database.owner_url" in refused.stderr
    assert (upgraded.returncode, upgraded.stderr) == (0, "")
    shown = reelabel(os.environ | export(owner) | {"COLUMNS": "160"}, "status").stdout
    assert "no Reelabel tables" not in shown
    assert not left.exists()


@pytest.mark.system
@pytest.mark.parametrize("terminal", [{"TERM": "xterm", "FORCE_COLOR": "1"}, {}], ids=["terminal", "pipe"])
def test_status_refreshes_until_it_is_stopped(tmp_path, terminal):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REELABEL_")}
    environment |= {"REELABEL_HOME": str(tmp_path), **terminal}
    # Where the tests themselves run in the background, a shell has them ignore it.
    hearing = "import signal, runpy; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = hearing + "runpy.run_module('flows.cli.main', run_name='__main__')"
    watching = subprocess.Popen(
        [sys.executable, "-c", command, "status", "--watch"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    titles = 0
    for line in watching.stdout:
        titles += "postgres" in line
        if titles == 2:
            break
    watching.send_signal(signal.SIGINT)
    watching.stdout.read()

    assert watching.wait(timeout=30) == 130


def test_status_shows_an_engine_that_is_kept_and_down_ends_it(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REELABEL_")}
    environment |= {"REELABEL_HOME": str(tmp_path), "COLUMNS": "160"}
    engine = EngineProcess(
        EngineConfig(model="/models/tiny"),
        log_path=tmp_path / "engine.log",
        start_timeout_s=60,
        command=stub_engine.COMMAND,
        warm=WarmEngines.of(tmp_path, keep_s=600),
    )
    with engine:
        engine.wait_ready()

    assert re.search(r"; /models/tiny stays loaded for [56]\d\d s more\n", reelabel(environment, "status").stdout)
    assert reelabel(environment, "down").returncode == 0
    assert "stays loaded" not in reelabel(environment, "status").stdout
