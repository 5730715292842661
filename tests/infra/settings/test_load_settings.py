import os

import pytest

from infra.settings import load_settings
from reelabel.errors import ConfigurationError


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("REELABEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("REELABEL_STOR_URI", "s3://a/b", "REELABEL_STOR_URI is not a setting; did you mean REELABEL_STORE_URI?"),
        ("REELABEL_FOO", "1", "REELABEL_FOO is not a setting"),
        ("REELABEL_CONFIG", "/usr", "REELABEL_CONFIG is /usr, which is a folder; name a file."),
        ("REELABEL_CONFIG", "/no/such.toml", "REELABEL_CONFIG is /no/such.toml, but that file does not exist."),
        ("REELABEL_STORE_URI", "ftp://x", "'ftp://x' has the wrong format; expected: s3://bucket/prefix"),
        (
            "REELABEL_STORE_URI",
            "",
            "'' has the wrong format; expected: s3://bucket/prefix or file:///folder; if unset, ",
        ),
        (
            "REELABEL_PREFECT_API_URL",
            "host:4200",
            "expected: The address of Prefect's API, http://host:port/api; if unset",
        ),
        ("REELABEL_REPORT_BASE_URL", "x", "such as https://reports.example.com"),
        ("REELABEL_MODEL_ENGINES", "two", "model.engines: 'two' must be a whole number or 'auto'. Fix"),
        ("REELABEL_HOME", "", "home: '' must name a folder; leave it out for .reelabel"),
        ("REELABEL_MODEL_DTYPE", "float8", "model.dtype: 'float8' must be 'auto', 'float32', 'bfloat16' or 'float16'"),
        ("REELABEL_MODEL_TEMPLATE", "Say yes.", "model.template: it must contain {prompt} and {choices}"),
        ("REELABEL_MODEL_TEMPLATE", "{prompt} {choices} {foo}", "no other placeholder"),
        ("REELABEL_MODEL_TEMPLATE", "{prompt", "not a valid template"),
        ("REELABEL_NIGHTLY_TIMEZONE", "Mars/One", "nightly.timezone: 'Mars/One' is not a time zone"),
        ("REELABEL_NIGHTLY_CRON", "0 2 * *", "nightly.cron: '0 2 * *' is not a cron schedule"),
        ("REELABEL_NIGHTLY_CRON", "every night", "nightly.cron: 'every night' is not a cron schedule"),
        ("REELABEL_WATCH_STARTS", "backfill", "watch.starts: 'backfill' must be 'classify' or 'describe'"),
        ("REELABEL_SAMPLING_NUM_FRAMES", "0", "sampling.num_frames: '0' must be at least 1"),
        ("REELABEL_SERVE_MAX_REQUESTS", "0", "serve.max_requests: '0' must be at least 1"),
        ("REELABEL_RETENTION_HISTORY_DAYS", "inf", "retention.history_days: 'inf' must be at most 36500"),
        ("REELABEL_PREFECT_AUTH_STRING", "hunter2", "prefect.auth_string: write the login as user:password"),
        ("REELABEL_PREFECT_AUTH_STRING", ":hunter2", "prefect.auth_string: write the login as user:password"),
        ("REELABEL_PREFECT_AUTH_STRING", "hunter2:", "prefect.auth_string: write the login as user:password"),
        ("REELABEL_STORE_VIDEO_ACCESS_KEY_ID", "hunter2", "video_secret_access_key must be set together"),
        ("REELABEL_STORE_VIDEO_SECRET_ACCESS_KEY", "hunter2", "video_secret_access_key must be set together"),
        ("REELABEL_RESULTS_EXPORT_FORMAT", "delta", "export_format delta needs export_uri, where runs are listed"),
        ("REELABEL_RESULTS_EXPORT_FORMAT", "iceberg", "'iceberg' must be parquet, delta or iceberg:CATALOG.NAMESPACE"),
        ("REELABEL_SERVER_URL", "http://me@gpu-1/v1", "server.url: 'http://me@gpu-1/v1' has the wrong format"),
        ("REELABEL_SERVE_ORIGINS", '["https://a.example/page"]', "serve.origins.0: 'https://a.example/page' has the"),
        ("REELABEL_SERVE_LOAD", "[]", "serve.load: [] must not be empty. Fix"),
        ("REELABEL_SERVE_LOAD", '["x"]', "serve.load.0: 'x' must be 'classify', 'analyze' or 'live'. Fix"),
        ("REELABEL_MODEL_ENGINE_ARGS", '{"seed": 1}', "seed must stay as Reelabel sets it; leave it out"),
        ("REELABEL_STORE_MAC_KEY", "hunter2", "store.mac_key: use at least 32 random characters"),
        ("REELABEL_SERVE_TOKEN", "hunter2", "serve.token: must have at least 16 characters"),
        ("REELABEL_STORE_MAC_KEY", "", "store.mac_key: use at least 32 random characters"),
        *(
            (f"REELABEL_{name}", "*.example.com", f'must be a list; write it as ["a", "b"] (JSON in REELABEL_{name}).')
            for name in ("WEB_ALLOW_HOSTS", "WEB_ALLOW_NETWORKS", "EXTRACT_ALLOW_ROOTS")
        ),
        ("REELABEL_WEB_ALLOW_HOSTS", "a,b", "web.allow_hosts: 'a,b' must be a list"),
        ("REELABEL_WEB_ALLOW_HOSTS", "", "web.allow_hosts: '' must be a list"),
        ("REELABEL_WEB_ALLOW_NETWORKS", '["10.1.0.5/16"]', "web.allow_networks.0: '10.1.0.5/16' is not a network"),
        ("REELABEL_WEB_ALLOW_NETWORKS", '["intranet"]', "web.allow_networks.0: 'intranet' is not a network"),
    ],
)
def test_a_wrong_variable_is_named(monkeypatch, name, value, message):
    monkeypatch.setenv(name, value)

    with pytest.raises(ConfigurationError) as raised:
        load_settings()

    assert message in raised.value.message
    assert "hunter2" not in raised.value.message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[store]\nurl = 's3://a/b'\n", "store.url: unknown setting; did you mean store.uri? Fix"),
        (b"[modle]\nname = 'x'\n", "modle: unknown setting; did you mean model?"),
        (b"[model]\nqqqqqq = 'x'\n", "model.qqqqqq: unknown setting; `reelabel config` lists the settings. Fix"),
        (
            b"[sampling]\nmin_frames = 4\n",
            "sampling.min_frames: unknown setting; `reelabel config` lists the settings.",
        ),
        (b"[describe]\nmethod = 'x'\n", "describe.method: unknown setting; `reelabel config` lists the settings."),
        (b"[home]\nx = 1\n", "home: "),
        (b"[web]\nallow_hosts = 'a'\n", "web.allow_hosts: 'a' must be a list"),
        (b"a = [", "reelabel.toml is not valid TOML in UTF-8: "),
        (b"\xff\xfe", "reelabel.toml cannot be read: 'utf-8' codec can't decode"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(tmp_path, content, message):
    (tmp_path / "reelabel.toml").write_bytes(content)

    with pytest.raises(ConfigurationError) as raised:
        load_settings()

    assert message in raised.value.message


def test_a_folder_in_place_of_the_file_is_named(tmp_path):
    (tmp_path / "reelabel.toml").mkdir()

    with pytest.raises(ConfigurationError, match=r"reelabel\.toml is a folder, where the settings file is expected"):
        load_settings()


def test_an_empty_name_of_the_file_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv("REELABEL_CONFIG", "")
    (tmp_path / "reelabel.toml").write_text("[sampling]\nfps = 3\n")

    assert load_settings().sampling.fps == 3


def test_a_list_is_json_in_the_environment(monkeypatch):
    monkeypatch.setenv("REELABEL_WEB_ALLOW_HOSTS", '["*.example.com"]')

    assert load_settings().web.allow_hosts == ("*.example.com",)


def test_a_table_of_a_variable_replaces_that_of_the_file(monkeypatch, tmp_path):
    (tmp_path / "reelabel.toml").write_text("[model]\nname = 'x'\nengine_args = {max_num_seqs = 64}\n")
    monkeypatch.setenv("REELABEL_MODEL_ENGINE_ARGS", '{"enforce_eager": true}')

    model = load_settings().model

    assert (model.name, model.engine_args) == ("x", {"enforce_eager": True})


def test_a_model_folder_is_resolved_from_any_working_folder(monkeypatch, tmp_path):
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("REELABEL_MODEL_NAME", "mine")

    assert load_settings().model.name == str(tmp_path / "mine")


@pytest.mark.parametrize("variable", ["REELABEL_MODEL_NAME", "REELABEL_DESCRIBE_MODEL", "REELABEL_DESCRIBE_TAGS"])
def test_a_name_below_the_home_of_an_unknown_user_stays_as_it_is(monkeypatch, variable):
    monkeypatch.setenv(variable, "~nobody-has-this-name/x")

    section, field = variable.removeprefix("REELABEL_").lower().split("_")
    assert getattr(getattr(load_settings(), section), field) == "~nobody-has-this-name/x"


def test_a_home_below_that_of_the_user_may_be_short(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("REELABEL_HOME", "~/reelabel")

    assert load_settings().home == tmp_path / "reelabel"
