import os

import pytest
from prefect.blocks.system import Secret

from infra.settings import load_settings
from reelabel.errors import ConfigurationError
from reelabel.seal import Seal


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith(("REELABEL_", "PREFECT_API"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_a_secret_is_read_from_the_file_that_its_variable_names(monkeypatch, tmp_path):
    (tmp_path / "url").write_text("postgresql://me:hunter2@db/x\n")
    (tmp_path / "reelabel.toml").write_text('[database]\nurl = "postgresql://other/y"\npool_size = 3\n')
    monkeypatch.setenv("REELABEL_DATABASE_URL_FILE", str(tmp_path / "url"))

    database = load_settings().database

    assert database.url.get_secret_value() == "postgresql://me:hunter2@db/x"
    assert database.pool_size == 3
    assert "hunter2" not in repr(database)


def test_only_secrets_have_a_file_variable_and_all_of_them_do(monkeypatch, tmp_path):
    (tmp_path / "secret").write_text("s" * 32)
    names = ("DATABASE_READER_URL", "STORE_ACCESS_KEY_ID", "STORE_SECRET_ACCESS_KEY", "STORE_MAC_KEY", "SERVER_API_KEY")
    for name in names:
        monkeypatch.setenv(f"REELABEL_{name}_FILE", str(tmp_path / "secret"))
    assert load_settings().server.api_key.get_secret_value() == "s" * 32
    assert load_settings().store.seal == Seal(b"s" * 32)

    monkeypatch.setenv("REELABEL_STORE_URI_FILE", str(tmp_path / "secret"))
    with pytest.raises(ConfigurationError, match="REELABEL_STORE_URI_FILE is not a setting"):
        load_settings()


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"REELABEL_SERVER_API_KEY_FILE": "/no/such"}, "SERVER_API_KEY_FILE: cannot read /no/such: No such file"),
        ({"REELABEL_SERVER_API_KEY_FILE": "/"}, "SERVER_API_KEY_FILE: cannot read /: Is a directory"),
        ({"REELABEL_SERVER_API_KEY": "prefect://key"}, "but Prefect is not configured; set prefect.api_url"),
    ],
)
def test_a_secret_that_cannot_be_loaded_is_named(monkeypatch, variables, said):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=said):
        load_settings()


def test_a_secret_is_loaded_from_a_prefect_block(monkeypatch, prefect_services, prefect_api):
    Secret(value="hunter2").save("server-key")
    monkeypatch.setenv("REELABEL_PREFECT_API_URL", prefect_api)
    monkeypatch.setenv("REELABEL_PREFECT_AUTH_STRING", prefect_services.prefect.auth_string.get_secret_value())
    monkeypatch.setenv("REELABEL_SERVER_API_KEY", "prefect://server-key")
    assert load_settings().server.api_key.get_secret_value() == "hunter2"

    monkeypatch.setenv("REELABEL_SERVER_API_KEY", "prefect://nothing")
    with pytest.raises(
        ConfigurationError, match=r"server\.api_key is prefect://nothing, but Prefect has no Secret block"
    ):
        load_settings()
