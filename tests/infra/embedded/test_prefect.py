import json
import os
import signal
import urllib.error
import urllib.request
from contextlib import ExitStack
from dataclasses import replace
from urllib.parse import quote

import httpx
import pytest
from pydantic import SecretStr
from sqlalchemy.engine import make_url

from infra.doctor import check_prefect
from infra.embedded import ServiceName, start, status, stop
from infra.embedded.prefect import basic_auth_headers
from infra.settings import DatabaseSettings, Settings
from tests.supervisor import halted_supervisor, taken_port

POOL = "some pool"  # its name is part of addresses
WANTED = frozenset({ServiceName.PREFECT, ServiceName.WORKER})


def test_pages_and_api_require_a_login_and_the_worker_is_online(prefect_services):
    prefect = prefect_services.prefect
    with urllib.request.urlopen(prefect.api_url.removesuffix("/api"), timeout=10) as page:
        assert b"<html" in page.read()

    for login in (None, SecretStr("admin:wrong")):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            _online_workers(prefect.model_copy(update={"auth_string": login}))
    wrong = {"api_url": prefect.api_url, "auth_string": "admin:wrong"}
    assert "HTTP 401" in check_prefect(Settings(prefect=wrong)).detail
    assert check_prefect(prefect_services).ok
    assert _online_workers(prefect)


@pytest.fixture
def settings(tmp_path):
    yield Settings(home=tmp_path / "home", prefect={"work_pool": POOL})
    stop(tmp_path / "home")


def _pids(settings):
    return {service.name: service.pid for service in status(settings.home) if service.is_running}


def _online_workers(prefect):
    headers = {"Content-Type": "application/json"} | basic_auth_headers(prefect.auth_string)
    url = f"{prefect.api_url}/work_pools/{quote(prefect.work_pool)}/workers/filter"
    request = urllib.request.Request(url, b"{}", headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return [worker["name"] for worker in json.load(answer) if worker["status"] == "ONLINE"]


@pytest.mark.system
def test_server_and_worker_restart_after_a_kill(settings):
    first = start(settings, wanted=WANTED)
    (first_worker,) = _online_workers(first.prefect)
    before = _pids(settings)
    assert set(before) == WANTED | {ServiceName.POSTGRES}
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)

    again = start(settings, wanted=WANTED)

    assert set(_online_workers(again.prefect)) > {first_worker}
    assert not set(before.values()) & set(_pids(settings).values())


def _pools(prefect):
    url = f"{prefect.api_url}/work_pools/filter"
    answer = httpx.post(url, json={}, headers=basic_auth_headers(prefect.auth_string), timeout=10)
    return [pool["name"] for pool in answer.raise_for_status().json()]


@pytest.mark.system
def test_a_server_survives_a_restart_of_its_postgres_with_its_data(settings):
    started = start(settings, wanted=WANTED)
    before = _pids(settings)
    os.kill(before[ServiceName.POSTGRES], signal.SIGKILL)

    start(settings, wanted=frozenset({ServiceName.POSTGRES}))

    assert _pids(settings)[ServiceName.PREFECT] == before[ServiceName.PREFECT]
    assert _pools(started.prefect) == ["some pool"]


@pytest.mark.system
def test_a_server_whose_postgres_moved_is_replaced_and_so_is_its_worker(settings):
    started = start(settings, wanted=WANTED)
    before = _pids(settings)
    with ExitStack() as taken:
        with halted_supervisor(settings.home):
            os.kill(before[ServiceName.POSTGRES], signal.SIGKILL)
            taken.enter_context(taken_port(make_url(started.database.url.get_secret_value()).port))
        moved = start(settings, wanted=WANTED)

    after = _pids(settings)
    assert not set(before.values()) & set(after.values())
    assert _online_workers(moved.prefect)


@pytest.mark.system
def test_results_go_to_the_users_postgres_although_prefect_uses_ours(settings):
    database = DatabaseSettings(url="postgresql://me:secret@database.invalid/results")
    started = start(settings.model_copy(update={"database": database}), wanted=frozenset({ServiceName.PREFECT}))

    assert started.database == database
    assert _pools(started.prefect) == []
    assert set(_pids(settings)) == {ServiceName.POSTGRES, ServiceName.PREFECT}


@pytest.mark.system
def test_a_worker_that_knows_other_addresses_is_replaced(settings, tmp_path):
    start(settings, wanted=WANTED)
    before = _pids(settings)

    changed = settings.model_copy(update={"store": replace(settings.store, uri=tmp_path.as_uri())})
    start(changed, wanted=WANTED)

    after = _pids(settings)
    assert after[ServiceName.PREFECT] == before[ServiceName.PREFECT]
    assert after[ServiceName.WORKER] != before[ServiceName.WORKER]


@pytest.mark.system
def test_a_worker_shares_no_temporary_folder_with_other_users_and_leaves_none(settings, tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    (temporary / "runner_storage").touch()  # as useless as another user's folder, also for root

    started = start(settings, wanted=WANTED)
    assert _online_workers(started.prefect)
    stop(settings.home)

    assert [path.name for path in temporary.iterdir()] == ["runner_storage"]
