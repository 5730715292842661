import os

import pytest

from infra.settings import load_settings
from reelabel.errors import ConfigurationError
from reelabel.seal import Seal


@pytest.fixture(autouse=True)
def secrets(monkeypatch, tmp_path):
    """An empty folder of secrets, which the settings read."""
    for name in [name for name in os.environ if name.startswith(("REELABEL_", "PREFECT_API"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "secrets"
    folder.mkdir()
    monkeypatch.setenv("REELABEL_SECRETS_DIR", str(folder))
    return folder


def test_a_secret_is_read_from_the_file_of_its_name(secrets, monkeypatch, tmp_path):
    (secrets / "reelabel_database_url").write_text("postgresql://me:hunter2@db/x\n")
    (tmp_path / "reelabel.toml").write_text(
        '[database]\nurl = "postgresql://other/y"\nreader_url = "postgresql://reader/y"\n'
    )

    database = load_settings().database

    assert database.url.get_secret_value() == "postgresql://me:hunter2@db/x"
    assert database.reader_url.get_secret_value() == "postgresql://reader/y"
    assert "hunter2" not in repr(database)
    monkeypatch.setenv("REELABEL_DATABASE_URL", "postgresql://variable/y")
    assert load_settings().database.url.get_secret_value() == "postgresql://variable/y"


def test_every_section_takes_secrets_from_files_and_other_files_are_ignored(secrets):
    for name in ("reelabel_store_mac_key", "reelabel_server_api_key", "postgres_password"):
        (secrets / name).write_text("s" * 32)

    assert load_settings().server.api_key.get_secret_value() == "s" * 32
    assert load_settings().store.seal == Seal(b"s" * 32)


@pytest.mark.parametrize("path", ["/no/such", "/etc/passwd"])
def test_a_folder_of_secrets_that_cannot_be_read_is_named(monkeypatch, path):
    monkeypatch.setenv("REELABEL_SECRETS_DIR", path)

    with pytest.raises(ConfigurationError, match=f"REELABEL_SECRETS_DIR, which is {path}, cannot be read"):
        load_settings()


def test_a_wrong_secret_is_named_but_not_shown(secrets):
    (secrets / "reelabel_store_mac_key").write_text("hunter2")

    with pytest.raises(ConfigurationError, match=r"store\.mac_key: use at least 32 random characters") as raised:
        load_settings()

    assert "hunter2" not in raised.value.message
