"""S3 answers that are cut off in the middle."""

from dataclasses import replace

import pytest

from reelabel.errors import DiskFullError, LoginRefusedError, StoreUnavailableError
from reelabel.options import S3Options
from reelabel.sources.object_store import ObjectStore

DATA = bytes(range(256)) * 2000
ATTEMPTS = 3


@pytest.fixture
def behind(store_gate, store_settings, objects):
    """The store behind the gate, and an object on it."""
    uri = f"{store_settings.uri}/broken/clip.mp4"
    objects.replace(uri, DATA)
    gated = {"endpoint_url": f"http://127.0.0.1:{store_gate.port}", "max_attempts": ATTEMPTS}
    return ObjectStore(replace(store_settings, **gated)), uri


def read(store, uri, _folder):
    return store.read(uri)


def read_range(store, uri, _folder):
    return store.read_range(uri, start=0, size=len(DATA), fingerprint=store.stat(uri).fingerprint)


def read_to_the_end(store, uri, _folder):
    return DATA[:1000] + store.read_range(uri, start=1000, size=1 << 20, fingerprint=store.stat(uri).fingerprint)


def download(store, uri, folder):
    assert store.download(uri, folder / "copy") == len(DATA)
    return (folder / "copy").read_bytes()


WAYS = pytest.mark.parametrize("way", [read, read_range, read_to_the_end, download])


@WAYS
@pytest.mark.parametrize("cuts", [0, 1, ATTEMPTS - 1])
def test_an_interrupted_answer_is_requested_again(way, cuts, behind, store_gate, tmp_path):
    store_gate.cut(cuts)

    assert way(*behind, tmp_path) == DATA
    assert store_gate.cuts_left == 0


@WAYS
def test_half_an_object_is_never_taken_for_a_whole_one(way, behind, store_gate, tmp_path):
    store_gate.cut(1000)

    with pytest.raises(StoreUnavailableError, match="did not respond for s3:"):
        way(*behind, tmp_path)
    assert store_gate.cuts_left == 1000 - ATTEMPTS
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (507, "XMinioStorageFull"),
        (507, "InsufficientStorage"),
        (403, "QuotaExceeded"),
        (400, "XMinioAdminBucketQuotaExceeded"),
    ],
)
def test_a_full_store_is_reported(behind, store_gate, status, code):
    store, uri = behind
    with (
        store_gate.refusing("PUT /", status, code),
        pytest.raises(DiskFullError, match=rf"is full: .* \({code}, HTTP {status}\)"),
    ):
        store.replace(uri, DATA)
    assert store.read(uri) == DATA


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [
        (400, "ExpiredToken", "the login has expired; log in again"),
        (403, "RequestTimeTooSkewed", "the clock of this machine is wrong; set it"),
    ],
)
def test_a_login_that_is_not_valid_now_is_named(behind, store_gate, status, code, reason):
    store, uri = behind

    refused = pytest.raises(LoginRefusedError, match=rf"denies access to {uri} \({code}\), as {reason}")
    with store_gate.refusing("GET /", status, code), refused:
        store.read(uri)


def test_credentials_that_cannot_be_had_are_named(monkeypatch, tmp_path):
    (tmp_path / "config").write_text("[default]\ncredential_process = false\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))

    with pytest.raises(LoginRefusedError, match=r"No S3 credentials for s3://b/a: .*\. Log in again"):
        ObjectStore(S3Options(region="eu-north-1")).stat("s3://b/a")
