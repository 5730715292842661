import base64

import pytest

from infra.settings import StoreSettings
from reelabel.errors import ConfigurationError, ObjectTooLargeError, VideoRefusedError
from reelabel.sources.object_info import redact_uri, scheme_of
from reelabel.sources.object_store import ObjectStore

DATA = bytes(range(256))
ENCODED = base64.b64encode(DATA).decode()


@pytest.fixture
def store():
    return ObjectStore(StoreSettings())


@pytest.mark.parametrize(
    "uri",
    [
        pytest.param(f"data:video/mp4;base64,{ENCODED}", id="base64"),
        pytest.param(f"data:;BASE64,{ENCODED[:40]}\n{ENCODED[40:]}", id="wrapped lines"),
        pytest.param("data:," + "".join(f"%{byte:02X}" for byte in DATA), id="percent"),
        pytest.param(f"data:video/mp4;base64,{ENCODED.replace('+', '%2B')}", id="percent in base64"),
    ],
)
def test_inline_bytes_are_described_read_and_downloaded(store, tmp_path, uri):
    info = store.stat(uri)

    assert info.size_bytes == 256
    assert store.read(uri, fingerprint=info.fingerprint) == DATA
    assert store.read_range(uri, start=250, size=10, fingerprint=info.fingerprint) == DATA[250:]
    assert store.download(uri, tmp_path / "video", fingerprint=info.fingerprint, max_bytes=256) == 256
    assert (tmp_path / "video").read_bytes() == DATA


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        pytest.param("data:video/mp4", "no comma", id="no comma"),
        pytest.param("data:;base64,A", "is not valid base64", id="incomplete byte"),
        pytest.param("data:;base64,$$$$", "is not valid base64", id="invalid characters"),
    ],
)
def test_a_uri_that_cannot_be_decoded_is_refused(store, uri, message):
    with pytest.raises(VideoRefusedError, match=message):
        store.stat(uri)


@pytest.mark.parametrize("max_bytes", [255, 10])
def test_more_bytes_than_allowed_are_refused_and_shown_shortened(store, max_bytes):
    with pytest.raises(ObjectTooLargeError, match=r"AAEC.*\.\.\. \(366 characters\)") as raised:
        store.read(f"data:video/mp4;base64,{ENCODED}", max_bytes=max_bytes)
    assert len(raised.value.message) < 200


def test_inline_bytes_cannot_be_written(store):
    with pytest.raises(ConfigurationError, match="is read-only"):
        store.replace("data:,x", b"")


@pytest.mark.parametrize(
    ("uri", "scheme"),
    [("s3://b/k", "s3"), ("data:,x", "data"), ("a:b.mp4", None), ("/data:/x", None), ("HTTP://h", "HTTP")],
)
def test_a_scheme_is_distinguished_from_a_path_with_a_colon(uri, scheme):
    assert scheme_of(uri) == scheme


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("https://me:secret@host:8/a/b.mp4?X-Signature=abc#t=1", "https://host:8/a/b.mp4?..."),
        ("s3://bucket/a?b", "s3://bucket/a?b"),
        ("data:,short", "data:,short"),
        ("HTTPS://me:secret@host/a?key=abc", "HTTPS://host/a?..."),
        ("ftp://me:secret@host/a", "ftp://host/a"),
        (r"http://me:secret\@host/a", "http://..."),
        ("http://me:secret@[host/a", "http://..."),
    ],
)
def test_a_message_shows_no_secret(uri, shown):
    assert redact_uri(uri) == shown
