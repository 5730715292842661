"""What `docker compose up` would start, by the schema of compose files, and by starting its S3 server."""

import json
import subprocess
import sysconfig
from pathlib import Path

import pytest
import yaml

from infra.embedded.processes import free_port
from infra.settings import Settings, StoreSettings
from infra.settings.sections import ShardSettings
from reelabel.errors import ReelabelError
from reelabel.sources.object_store import ObjectStore
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


def test_every_port_is_bound_to_loopback_unless_told(compose):
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]

    assert len(ports) == 3
    assert all(port.startswith("${REELABEL_BIND:-127.0.0.1}:") for port in ports)


def test_every_name_that_is_used_is_declared(compose):
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


def test_every_variable_of_ours_is_a_setting(compose):
    variables = {
        name.removesuffix("_FILE").removeprefix("REELABEL_").lower()
        for service in compose["services"].values()
        for name in service.get("environment", {})
        if name.startswith("REELABEL_")
    }

    for name in variables:
        section, _, field = name.partition("_")
        assert field in Settings.model_fields[section].annotation.model_fields, name


def test_decoding_is_split_from_the_gpus_and_every_part_names_the_same_model(compose):
    parts = [compose["services"][name]["environment"] for name in ("prepare", "cpu-worker", "gpu-worker")]

    assert {part["REELABEL_RUN_EXECUTOR"] for part in parts} == {"${REELABEL_RUN_EXECUTOR:-remote}"}
    assert {part["REELABEL_PREFECT_WORK_POOL"] for part in parts} == {"${REELABEL_PREFECT_WORK_POOL:-cpu}"}
    assert all("REELABEL_MODEL_NAME" in part for part in parts)


def test_workers_have_longer_than_a_lease_to_hand_their_shards_back(compose):
    for name in ("cpu-worker", "gpu-worker"):
        period = compose["services"][name]["stop_grace_period"]
        assert int(period.removesuffix("s")) > ShardSettings().lease_s


def test_the_s3_server_takes_the_keys_of_its_secret_and_no_others(compose, tmp_path):
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
    objects = ObjectStore(StoreSettings.model_validate(store | keys))
    with weed(arguments, tmp_path):
        wait_until_stored(objects, "s3://frames/cache/x", b"x")

        assert objects.read("s3://frames/cache/x") == b"x"
        with pytest.raises(ReelabelError, match="denies access"):
            ObjectStore(StoreSettings.model_validate(store | keys | {"secret_access_key": "guess"})).read(
                "s3://frames/x"
            )
