"""S3 over TLS: a server is refused unless the configured CA signed its certificate for that host."""

import json
from dataclasses import replace
from functools import cache

import pytest

from infra.processes import free_port
from infra.settings import StoreSettings
from reelabel.errors import ConfigurationError
from reelabel.sources import s3
from reelabel.sources.object_store import ObjectStore
from tests.certificates import Authority
from tests.weed import wait_until_stored, weed

URI = "s3://frames/cache/x"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def store(authority, tmp_path_factory):
    """Settings of an S3 server whose certificate is for 127.0.0.1, and for no name."""
    folder, port = tmp_path_factory.mktemp("s3"), free_port()
    certificate, key = authority.sign("s3", "127.0.0.1")
    keys = {"accessKey": "some-key", "secretKey": "some-secret"}
    identity = {"name": "reelabel", "actions": ["Admin"], "credentials": [keys]}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    (folder / "data").mkdir()
    arguments = ["server", "-dir=data", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", f"-s3.port={port}"]
    arguments += ["-s3.config=s3.json", "-s3.iam=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    arguments += [f"-s3.cert.file={certificate}", f"-s3.key.file={key}", "-master.telemetry=false"]
    settings = StoreSettings(
        uri="s3://frames/cache",
        endpoint_url=f"https://127.0.0.1:{port}",
        access_key_id="some-key",
        secret_access_key="some-secret",
        ca_file=authority.certificate,
        max_attempts=1,
    )
    with weed(arguments, folder):
        wait_until_stored(ObjectStore(settings), URI, b"frames")
        yield settings


def test_the_configured_ca_is_trusted(store):
    assert ObjectStore(store).read(URI) == b"frames"


def test_a_server_with_complete_settings_ignores_the_profile_of_the_user(store, monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "nowhere")
    monkeypatch.setattr(s3, "_loader", cache(s3._loader.__wrapped__))

    assert ObjectStore(replace(store, max_attempts=2)).read(URI) == b"frames"


def test_without_it_no_request_is_sent(store):
    with pytest.raises(ConfigurationError, match=r"CERTIFICATE_VERIFY_FAILED.*store\.ca_file"):
        ObjectStore(replace(store, ca_file=None)).read(URI)


def test_another_ca_is_not_trusted(store, tmp_path):
    stranger = Authority(tmp_path, "Test authority")

    with pytest.raises(ConfigurationError, match="CERTIFICATE_VERIFY_FAILED"):
        ObjectStore(replace(store, ca_file=stranger.certificate)).read(URI)


def test_a_certificate_for_another_host_is_not_accepted(store):
    elsewhere = store.endpoint_url.replace("127.0.0.1", "localhost")

    with pytest.raises(ConfigurationError, match=r"doesn.t match|mismatch"):
        ObjectStore(replace(store, endpoint_url=elsewhere)).read(URI)


def test_a_ca_file_that_cannot_be_read_is_named(store, tmp_path):
    (tmp_path / "empty.pem").write_text("nothing")

    for path in (tmp_path / "gone.pem", tmp_path / "empty.pem"):
        with pytest.raises(ConfigurationError, match=f"store.ca_file {path} cannot be used"):
            ObjectStore(replace(store, ca_file=path)).read(URI)


def test_no_setting_disables_verification():
    with pytest.raises(ValueError, match="Unexpected keyword argument"):
        StoreSettings(verify=False)
