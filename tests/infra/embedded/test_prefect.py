import json
import os
import signal
import urllib.error
import urllib.request

import pytest
from pydantic import SecretStr

from infra.embedded import ServiceName, start, status, stop
from infra.health import check_prefect
from infra.login import login_headers
from infra.settings import Settings

WANTED = frozenset({ServiceName.PREFECT, ServiceName.WORKER})


@pytest.fixture
def settings(tmp_path):
    yield Settings(home=tmp_path / "home", prefect={"work_pool": "some pool"})
    stop(tmp_path / "home")


def _pids(settings):
    return {service.name: service.pid for service in status(settings.home) if service.is_running}


def _online_workers(prefect):
    headers = {"Content-Type": "application/json"} | login_headers(prefect.auth_string)
    url = f"{prefect.api_url}/work_pools/some%20pool/workers/filter"
    request = urllib.request.Request(url, b"{}", headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return [worker["name"] for worker in json.load(answer) if worker["status"] == "ONLINE"]


def test_server_page_and_worker_are_there_ask_for_a_login_and_start_again_after_a_kill(settings):
    first = start(settings, wanted=WANTED)
    api_url = first.prefect.api_url

    with urllib.request.urlopen(api_url.removesuffix("/api"), timeout=10) as page:
        assert b"<html" in page.read()
    for login in (None, SecretStr("admin:wrong")):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            _online_workers(first.prefect.model_copy(update={"auth_string": login}))
    wrong = {"api_url": api_url, "auth_string": "admin:wrong"}
    assert "HTTP 401" in check_prefect(Settings(prefect=wrong)).detail
    assert check_prefect(first).ok
    (first_worker,) = _online_workers(first.prefect)
    before = _pids(settings)
    assert set(before) == WANTED
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)

    again = start(settings, wanted=WANTED)

    assert set(_online_workers(again.prefect)) > {first_worker}
    assert not set(before.values()) & set(_pids(settings).values())


def test_a_worker_that_knows_other_addresses_is_replaced(settings, tmp_path):
    start(settings, wanted=WANTED)
    before = _pids(settings)

    elsewhere = settings.model_copy(update={"store": settings.store.model_copy(update={"uri": tmp_path.as_uri()})})
    start(elsewhere, wanted=WANTED)

    after = _pids(settings)
    assert after[ServiceName.PREFECT] == before[ServiceName.PREFECT]
    assert after[ServiceName.WORKER] != before[ServiceName.WORKER]
