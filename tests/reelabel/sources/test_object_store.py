import math
import os
import pickle
import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from infra.processes import free_port
from infra.settings import StoreSettings
from reelabel.errors import (
    ConfigurationError,
    ObjectChangedError,
    ObjectMissingError,
    ObjectTooLargeError,
    RangesIgnoredError,
    StoreUnavailableError,
)
from reelabel.options import S3Options, WebOptions
from reelabel.sources.cancel import Cancellation
from reelabel.sources.object_store import ObjectStore
from reelabel.sources.s3 import S3, _client
from tests.reelabel.sources.web_server import serving


@pytest.fixture(params=["s3", "folder"])
def root(request, tmp_path):
    """An empty place of a store, as a URI without a slash at its end."""
    if request.param == "folder":
        return (tmp_path / "a folder").as_uri()
    return request.getfixturevalue("store_settings").uri


@pytest.fixture
def store(root, request):
    """A store that reaches `root`; only S3 needs a server."""
    return request.getfixturevalue("objects") if root.startswith("s3://") else ObjectStore(StoreSettings())


def test_written_objects_are_read_and_described(store, root):
    store.replace(f"{root}/a/b.bin", b"frames")

    info = store.stat(f"{root}/a/b.bin")

    assert info.size_bytes == 6
    assert store.read(info.uri, fingerprint=info.fingerprint, max_bytes=6) == b"frames"


def test_an_object_is_downloaded_completely(store, root, tmp_path):
    store.replace(f"{root}/clip", b"x" * 3_000_000)

    assert store.download(f"{root}/clip", tmp_path / "clip") == 3_000_000
    assert (tmp_path / "clip").read_bytes() == b"x" * 3_000_000


def test_a_replaced_object_is_not_taken_for_the_one_described(store, root, tmp_path):
    store.replace(f"{root}/clip", b"first")
    seen = store.stat(f"{root}/clip").fingerprint
    store.replace(f"{root}/clip", b"another")

    with pytest.raises(ObjectChangedError, match="was replaced"):
        store.read(f"{root}/clip", fingerprint=seen)
    with pytest.raises(ObjectChangedError):
        store.download(f"{root}/clip", tmp_path / "clip", fingerprint=seen)
    assert not (tmp_path / "clip").exists()


def test_an_object_larger_than_allowed_is_refused_before_it_is_read(store, root):
    store.replace(f"{root}/clip", b"seven b")

    with pytest.raises(ObjectTooLargeError, match="the limit of 6 bytes"):
        store.read(f"{root}/clip", max_bytes=6)


@pytest.mark.parametrize(
    ("start", "size", "expected"),
    [
        pytest.param(0, 4, b"0123", id="first bytes"),
        pytest.param(3, 1, b"3", id="one byte"),
        pytest.param(6, 100, b"6789", id="to the end"),
        pytest.param(10, 5, b"", id="past the end"),
    ],
)
def test_a_part_of_an_object_is_read(store, root, start, size, expected):
    store.replace(f"{root}/clip", b"0123456789")
    fingerprint = store.stat(f"{root}/clip").fingerprint

    assert store.read_range(f"{root}/clip", start=start, size=size, fingerprint=fingerprint) == expected


def test_a_part_of_a_replaced_object_is_refused(store, root):
    store.replace(f"{root}/clip", b"first")
    seen = store.stat(f"{root}/clip").fingerprint
    store.replace(f"{root}/clip", b"another")

    with pytest.raises(ObjectChangedError, match="was replaced"):
        store.read_range(f"{root}/clip", start=0, size=2, fingerprint=seen)


def test_a_missing_object_is_named(store, root, tmp_path):
    store.replace(f"{root}/other", b"")
    for look in (store.stat, store.read, lambda uri: store.download(uri, tmp_path / "clip")):
        with pytest.raises(ObjectMissingError, match="missing"):
            look(f"{root}/missing")
    assert not (tmp_path / "clip").exists()


def test_one_of_many_writers_of_a_new_object_succeeds(store, root):
    uri = f"{root}/frames.arrow"
    contents = [bytes([number]) * 50_000 for number in range(8)]

    with ThreadPoolExecutor(8) as pool:
        wrote = list(pool.map(lambda data: store.write_new(uri, data), contents))

    assert wrote.count(True) == 1
    assert store.read(uri) == contents[wrote.index(True)]
    assert [info.uri for info in store.list(root)] == [uri]


def test_a_listing_covers_everything_below_a_folder_in_order_and_nothing_else(store, root):
    for name in ("in/b", "in/a", "in/deeper/c", "inside"):
        store.replace(f"{root}/{name}", name.encode())

    listed = list(store.list(f"{root}/in"))

    assert [info.uri for info in listed] == [f"{root}/in/{name}" for name in ("a", "b", "deeper/c")]
    assert listed == [store.stat(info.uri) for info in listed]
    assert list(store.list(f"{root}/nothing")) == []


def test_a_store_survives_pickling(store, root):
    store.replace(f"{root}/clip", b"same")

    assert pickle.loads(pickle.dumps(store)).read(f"{root}/clip") == b"same"


def test_a_file_is_read_as_it_was_listed_whatever_its_name(tmp_path):
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9 #?%41.mp4")).write_bytes(b"a video")
    store = ObjectStore()

    [info] = store.list(tmp_path.as_uri())

    assert info.uri.endswith("/caf%E9%20%23%3F%2541.mp4")
    assert store.read(info.uri) == b"a video"


def test_plain_paths_and_file_uris_name_files(tmp_path):
    store = ObjectStore(StoreSettings())
    path = tmp_path / "50% of #1.mp4"
    store.replace(str(path), b"clip")

    assert store.local_path(str(path)) == store.local_path(path.as_uri()) == path
    assert store.read(path.as_uri()) == b"clip"
    assert store.local_path("s3://bucket/key") is None


def test_an_object_is_removed_if_it_is_there(store, root):
    store.replace(f"{root}/clip", b"clip")

    for _ in range(2):
        store.remove(f"{root}/clip")

    with pytest.raises(ObjectMissingError):
        store.stat(f"{root}/clip")


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("/a/b.mp4", "/a/b.mp4"),
        ("file:///a/b%20c.mp4", "/a/b c.mp4"),
        ("/a/b.tar#c.mp4", "/a/b.tar"),
        ("s3://b/a.tar#c.mp4", None),
        ("https://host/a.mp4", None),
        ("data:,a", None),
    ],
)
def test_what_lies_on_this_machine_has_a_path(uri, path):
    assert ObjectStore().local_path(uri) == (path and Path(path))


@pytest.mark.parametrize(
    ("uri", "attempts", "wait_s"),
    [
        ("s3://b/a.mp4", 3, 4 * 3),
        ("s3://b/a.tar#c.mp4", 3, 4 * 3),
        ("s3://b/a.mp4", 1, 3),
        ("https://host/a.mp4", 3, 20),
        ("gs://b/a.mp4", 3, 20),
        ("/a/b.mp4", 3, math.inf),
        ("data:,a", 3, math.inf),
    ],
)
def test_a_request_takes_no_longer_than_its_options_allow(uri, attempts, wait_s):
    s3 = S3Options(max_attempts=attempts, read_timeout_s=1.5)

    assert ObjectStore(s3, WebOptions(total_timeout_s=20)).max_wait_s(uri) == wait_s


def test_a_look_at_many_objects_fails_for_none_of_them():
    store = ObjectStore(StoreSettings(endpoint_url="not a url"))

    assert store.stat_many(f"s3://bucket/{number}.mp4" for number in range(50)) == {}


def test_a_pipe_or_device_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    for uri in (str(tmp_path / "pipe"), "/dev/zero", str(tmp_path)):
        with pytest.raises(ObjectMissingError, match="check the path"):
            ObjectStore(StoreSettings()).stat(uri)


@pytest.mark.parametrize("uri", ["gopher://host/clip.mp4", "file://relative/clip.mp4", "s3://bucket"])
def test_a_uri_without_a_bucket_or_path_is_a_configuration_error(uri):
    with pytest.raises(ConfigurationError, match=r"write|use"):
        ObjectStore(StoreSettings()).stat(uri)


def test_a_bucket_that_has_an_impossible_name_is_named():
    with pytest.raises(ConfigurationError, match=r'Invalid bucket name "No Bucket"'):
        ObjectStore(StoreSettings(access_key_id="key", secret_access_key="secret")).stat("s3://No Bucket/clip")


def test_a_wrong_secret_names_the_setting(store_settings):
    wrong = replace(store_settings, secret_access_key=SecretStr("wrong"))

    for use in (ObjectStore(wrong).stat, ObjectStore(wrong).read, lambda uri: ObjectStore(wrong).replace(uri, b"")):
        with pytest.raises(ConfigurationError, match=r"store\.secret_access_key") as raised:
            use(f"{wrong.uri}/clip")
        assert "wrong" not in raised.value.message


def test_a_missing_bucket_is_a_configuration_error_until_it_is_created(objects):
    bucket = f"s3://not-made-yet-{secrets.token_hex(6)}"  # other sessions of tests may use the same server
    uri = f"{bucket}/clip"
    for use in (objects.stat, objects.read, lambda uri: objects.replace(uri, b""), lambda uri: list(objects.list(uri))):
        with pytest.raises(ConfigurationError, match="no bucket"):
            use(uri)

    objects.ensure_root(f"{bucket}/prefix")
    objects.ensure_root(f"{bucket}/prefix")

    assert objects.write_new(uri, b"now it stands")


def test_a_server_that_does_not_answer_is_unavailable():
    nobody = StoreSettings(
        endpoint_url=f"http://127.0.0.1:{free_port()}",
        access_key_id="key",
        secret_access_key="secret",
        max_attempts=1,
    )
    with pytest.raises(StoreUnavailableError, match=r"store\.endpoint_url"):
        ObjectStore(nobody).read("s3://bucket/key")


def test_a_store_counts_as_available_whatever_it_answers(objects, store_settings, tmp_path):
    nobody = f"http://127.0.0.1:{free_port()}/clip.mp4"
    missing = ["s3://not-made/clip", f"{store_settings.uri}/none"]
    other_uris = [nobody, str(tmp_path / "none" / "clip.mp4"), "data:video/mp4;base64,AAAA", "gopher://host/clip.mp4"]
    objects.check_reachable([*missing, *other_uris, "s3://bucket"])

    shut = replace(store_settings, endpoint_url=f"http://127.0.0.1:{free_port()}", max_attempts=1)
    ObjectStore(shut).check_reachable(other_uris)
    with pytest.raises(StoreUnavailableError, match=r"store\.endpoint_url"):
        ObjectStore(shut).check_reachable(missing)


def test_an_endpoint_that_is_not_a_url_is_a_configuration_error():
    with pytest.raises(ConfigurationError, match=r"store\.endpoint_url"):
        ObjectStore(StoreSettings(endpoint_url="not a url")).read("s3://bucket/key")


def test_a_server_that_ignores_ranges_is_noticed():
    with serving() as server:
        server.add("/bucket/clip", body=b"0123456789", ranges=False)
        store = ObjectStore(StoreSettings(endpoint_url=server.url, access_key_id="key", secret_access_key="secret"))

        with pytest.raises(RangesIgnoredError, match="download the whole object"):
            store.read_range("s3://bucket/clip", start=2, size=3, fingerprint="s3:10:one")


def test_plain_http_to_a_server_that_speaks_tls_is_distinguished_from_one_that_is_not_running(store_settings):
    address = store_settings.endpoint_url.replace("https://", "http://")
    plain = ObjectStore(replace(store_settings, endpoint_url=address, max_attempts=1))

    for ask in (lambda: plain.read(f"{store_settings.uri}/x"), lambda: next(plain.list(store_settings.uri), None)):
        with pytest.raises(
            StoreUnavailableError, match=r"check store.endpoint_url \(does the server need https://\?\)"
        ):
            ask()


def test_stores_that_differ_in_their_prefix_alone_share_a_client(store_settings):
    stores = [S3(replace(store_settings, uri=f"s3://frames/{name}"), frozenset(), Cancellation()) for name in "ab"]

    assert stores[0]._settings == stores[1]._settings
    assert _client(stores[0]._settings) is _client(stores[1]._settings)
