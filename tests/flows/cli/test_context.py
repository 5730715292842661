"""What Prefect's client raises becomes one sentence."""

import httpx
import pytest
from prefect.exceptions import PrefectHTTPStatusError

from flows.cli import context
from flows.cli.context import prefect_ready, startup_errors
from infra.doctor import Check
from infra.settings import Settings
from reelabel.errors import ConfigurationError, DiskFullError, StoreUnavailableError


def test_a_prefect_server_that_has_lost_its_database_is_named_with_the_way_out(monkeypatch, tmp_path):
    monkeypatch.setattr(context, "check_prefect", lambda _settings: Check(name="prefect", ok=True, detail="here"))
    monkeypatch.setattr(context, "export", lambda _settings: {})
    monkeypatch.setattr(context, "_QUIET", {})
    monkeypatch.setattr(context, "_AT_ONCE", {})
    settings = Settings(home=tmp_path, prefect={"api_url": "http://127.0.0.1:1/api"})
    request = httpx.Request("GET", "http://127.0.0.1:1/api/flows")
    failed = PrefectHTTPStatusError("Server error", request=request, response=httpx.Response(500, request=request))

    with pytest.raises(ConfigurationError) as raised, prefect_ready(settings, patient=False):
        raise failed

    assert raised.value.message.startswith(
        "Prefect at http://127.0.0.1:1/api answers with an internal error (HTTP 500)"
    )
    assert "developer.mozilla" not in raised.value.message


def test_a_full_disk_at_the_start_is_no_wrong_setting():
    with pytest.raises(ConfigurationError), startup_errors():
        raise StoreUnavailableError("It is away.")
    with pytest.raises(DiskFullError), startup_errors():
        raise DiskFullError("It is full.")
