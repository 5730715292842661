"""What `docker compose up` would start: checked against the schema, and by starting its S3 server."""

import json
import subprocess
import sysconfig
from pathlib import Path

import psycopg
import pytest
import yaml
from psycopg.errors import InsufficientPrivilege
from sqlalchemy.engine import make_url

from infra.embedded import ServiceName, running
from infra.embedded.home import Home
from infra.embedded.postgres import Postgres, postgres_folder
from infra.processes import free_port
from infra.settings import SECRETS_VARIABLE, DatabaseSettings, Settings, ShardSettings, StoreSettings
from infra.settings.types import fields_of
from reelabel.errors import ReelabelError
from reelabel.sources.object_store import ObjectStore
from tasks.database.schema import prepare_database
from tests.weed import wait_until_stored, weed

ROOT = Path(__file__).parents[3]
SCRIPTS = Path(sysconfig.get_path("scripts"))


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((ROOT / "compose.yaml").read_text())


def test_the_file_follows_the_schema_and_the_linter_finds_nothing():
    for command in (
        [SCRIPTS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml"],
        [SCRIPTS / "yamllint", "--strict", "--config-file", "infra/yamllint.yaml", "compose.yaml", "infra"],
    ):
        found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
        assert found.returncode == 0, found.stdout + found.stderr


def test_every_port_is_bound_to_loopback_by_default(compose):
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]

    assert len(ports) == 3
    assert all(port.startswith("${REELABEL_BIND:-127.0.0.1}:") for port in ports)


def test_every_name_in_use_is_declared(compose):
    for name, service in compose["services"].items():
        assert set(service.get("secrets", [])) <= set(compose["secrets"]), name
        assert set(service.get("depends_on", {})) <= set(compose["services"]), name
        assert {v.partition(":")[0] for v in service.get("volumes", []) if v[0] != "."} <= set(compose["volumes"]), name
        for variable, value in service.get("environment", {}).items():
            if variable.endswith("_FILE"):
                assert value.removeprefix("/run/secrets/") in service["secrets"], (name, variable)


def test_images_are_named_by_exact_tags(compose):
    tags = [service["image"].rpartition(":")[2] for service in compose["services"].values()]

    assert all(any(digit in tag for digit in "0123456789") and tag != "latest" for tag in tags)


def test_every_reelabel_variable_is_a_setting(compose):
    variables = {
        name.removeprefix("REELABEL_").lower()
        for service in compose["services"].values()
        for name in service.get("environment", {})
        if name.startswith("REELABEL_") and name != SECRETS_VARIABLE
    } | {name.removeprefix("reelabel_") for name in compose["secrets"] if name.startswith("reelabel_")}

    for name in variables:
        section, _, field = name.partition("_")
        assert field in fields_of(Settings.model_fields[section].annotation), name


def test_decoding_is_separate_from_the_gpus_and_all_parts_name_the_same_model(compose):
    parts = [compose["services"][name]["environment"] for name in ("prepare", "cpu-worker", "gpu-worker")]

    assert {part["REELABEL_RUN_EXECUTOR"] for part in parts} == {"${REELABEL_RUN_EXECUTOR:-remote}"}
    assert {part["REELABEL_PREFECT_WORK_POOL"] for part in parts} == {"${REELABEL_PREFECT_WORK_POOL:-cpu}"}
    assert all({"REELABEL_MODEL_NAME", "REELABEL_DESCRIBE_MODEL"} <= part.keys() for part in parts)


def test_workers_have_more_time_than_a_lease_to_release_their_shards(compose):
    for name in ("cpu-worker", "gpu-worker"):
        period = compose["services"][name]["stop_grace_period"]
        assert int(period.removesuffix("s")) > ShardSettings().lease_s


def test_only_the_preparation_owns_the_tables_and_only_postgres_knows_its_superuser(compose):
    users = {name: set(service.get("secrets", ())) for name, service in compose["services"].items()}

    assert {name for name, secrets in users.items() if "postgres_password" in secrets} == {"postgres"}
    owners = {name for name, secrets in users.items() if "reelabel_database_owner_url" in secrets}
    assert owners == {"postgres", "prepare"}


@pytest.mark.system
def test_a_new_postgres_gets_a_login_for_each_part_with_only_the_rights_of_its_role(compose, tmp_path):
    secrets = tmp_path / "secrets"
    subprocess.run([ROOT / "infra" / "docker" / "make_secrets.sh", secrets], check=True, timeout=60)
    settings = Settings(home=tmp_path / "home")
    with running(settings, wanted=frozenset({ServiceName.POSTGRES})):
        home = Home(settings.home)
        server, port = Postgres(home), home.port(ServiceName.POSTGRES)
        psql = [postgres_folder() / "psql", server.administrator_url(port), "--no-psqlrc", "-v", "ON_ERROR_STOP=1"]
        for script in _first_scripts(compose):
            here = script.read_text().replace("/run/secrets", str(secrets))
            subprocess.run([*psql, "--file", "-"], input=here, text=True, check=True, timeout=60)
        ours = {
            name: make_url((secrets / name).read_text()).set(host="127.0.0.1", port=port, drivername="postgresql")
            for name in (
                "reelabel_database_url",
                "reelabel_database_reader_url",
                "reelabel_database_owner_url",
                "prefect_database_url",
            )
        }
        urls = {name: url.render_as_string(hide_password=False) for name, url in ours.items()}
        prepare_database(
            DatabaseSettings(url=urls["reelabel_database_url"], owner_url=urls["reelabel_database_owner_url"])
        )

        for url in urls.values():
            assert _refusal(url, "CREATE ROLE mine") is InsufficientPrivilege
            assert _refusal(url, "SELECT * FROM pg_authid") is InsufficientPrivilege
        spec = "INSERT INTO reelabel.spec (spec_id, body) VALUES ('s', '{}')"
        assert _refusal(urls["reelabel_database_url"], spec) is None
        assert _refusal(urls["reelabel_database_url"], "DROP TABLE reelabel.result") is InsufficientPrivilege
        assert _refusal(urls["reelabel_database_reader_url"], "SELECT * FROM reelabel.spec") is None
        assert _refusal(urls["reelabel_database_reader_url"], spec) is InsufficientPrivilege
        assert _refusal(urls["prefect_database_url"], "CREATE TABLE public.mine ()") is None
        for name in ("reelabel_database_url", "reelabel_database_reader_url", "reelabel_database_owner_url"):
            other_url = ours[name].set(database="prefect").render_as_string(hide_password=False)
            assert _refusal(other_url, "SELECT 1") is psycopg.OperationalError


def _first_scripts(compose):
    """Return the files that Postgres' image runs with an empty data folder, in its order."""
    volumes = [volume.split(":") for volume in compose["services"]["postgres"]["volumes"]]
    scripts = {parts[1]: ROOT / parts[0] for parts in volumes if parts[1].startswith("/docker-entrypoint-initdb.d/")}
    return [scripts[name] for name in sorted(scripts)]


def _refusal(url, statement):
    try:
        with psycopg.connect(url) as connection:
            connection.execute(statement)
    except psycopg.Error as error:
        return type(error)
    return None


def test_the_s3_server_accepts_only_the_keys_of_its_secret(compose, tmp_path):
    identities = tmp_path / "s3.json"
    credentials = [{"accessKey": "some-key", "secretKey": "some-secret"}]
    entry = {"name": "reelabel", "actions": ["Admin"], "credentials": credentials}
    identities.write_text(json.dumps({"identities": [entry]}))
    (tmp_path / "data").mkdir()
    port = free_port()
    here = {
        "-dir=/data": f"-dir={tmp_path / 'data'}",
        "-s3.config=/run/secrets/s3_identities": f"-s3.config={identities}",
        "-s3.port=8333": f"-s3.port={port}",
        "-s3.ip.bind=0.0.0.0": "-s3.ip.bind=127.0.0.1",
    }
    arguments = [here.pop(argument, argument) for argument in compose["services"]["s3"]["command"]]
    assert not here
    store = {"uri": "s3://frames/cache", "endpoint_url": f"http://127.0.0.1:{port}", "max_attempts": 1}
    keys = {"access_key_id": "some-key", "secret_access_key": "some-secret"}
    objects = ObjectStore(StoreSettings(**store | keys))
    with weed(arguments, tmp_path):
        wait_until_stored(objects, "s3://frames/cache/x", b"x")

        assert objects.read("s3://frames/cache/x") == b"x"
        with pytest.raises(ReelabelError, match="denies access"):
            ObjectStore(StoreSettings(**store | keys | {"secret_access_key": "guess"})).read("s3://frames/x")
