import sys
from pathlib import Path

from infra.embedded import export
from infra.settings import Settings


def test_settings_survive_an_export_to_the_environment(tmp_path, monkeypatch):
    settings = Settings(
        home=tmp_path,
        database={"url": "postgresql://u:p@host/db"},
        store={"uri": "s3://bucket/prefix", "secret_access_key": "secret"},
        prefect={"api_url": "http://host/api"},
        extract={"timeout_s": 7.5},
        model={"engine_args": {"max_num_seqs": 3}, "template": "{prompt}\n{choices}"},
    )
    (tmp_path / "reelabel.toml").write_text("[extract]\ntimeout_s = 1\n")
    (tmp_path / "reelabel_server_api_key").write_text("of another machine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REELABEL_SECRETS_DIR", ".")

    for name, value in export(settings).items():
        monkeypatch.setenv(name, value)

    assert Settings() == settings


def test_the_environment_excludes_foreign_modules_and_finds_prefect():
    environment = export(Settings(home=Path("relative"), prefect={"api_url": "http://host/api"}))

    assert environment["PYTHONSAFEPATH"] == "1"
    assert environment["PREFECT_API_URL"] == "http://host/api"
    assert Path(environment["REELABEL_HOME"]).is_absolute()


def test_the_python_of_another_environment_stays_the_link_by_which_it_finds_its_packages(tmp_path):
    python = tmp_path / "python"
    python.symlink_to(sys.executable)

    assert export(Settings(model={"python": python}))["REELABEL_MODEL_PYTHON"] == str(python)


def test_unset_settings_are_not_exported():
    assert "REELABEL_DATABASE_URL" not in export(Settings())
