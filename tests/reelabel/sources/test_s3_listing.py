import ssl
from urllib.request import urlopen

import boto3
import pytest

from reelabel.sources.s3 import FEWEST, list_objects, sign_url


@pytest.fixture
def root(store_settings):
    return store_settings.uri


def fill(objects, root, names):
    for name in names:
        objects.replace(f"{root}/{name}", name.encode())


def test_a_listing_describes_each_object_like_a_single_request(objects, root):
    names = [f"{number:03}.mp4" for number in range(2 * FEWEST)]
    fill(objects, root, [*names, "nested/below.mp4", "other.mp4"])
    uris = [f"{root}/{name}" for name in names]

    found = objects.stat_many(uris)

    assert sorted(found) == uris
    assert all(found[uri].fingerprint == objects.stat(uri).fingerprint for uri in uris)
    assert all(found[uri].size_bytes == objects.stat(uri).size_bytes for uri in uris)


def test_a_missing_object_is_omitted_and_its_neighbours_are_listed(objects, root):
    names = [f"{number:03}.mp4" for number in range(2 * FEWEST)]
    fill(objects, root, [name for name in names if name != "005.mp4"])

    found = objects.stat_many(f"{root}/{name}" for name in names)

    assert sorted(found) == [f"{root}/{name}" for name in names if name != "005.mp4"]


def test_a_few_objects_among_many_are_described_by_single_requests(objects, root):
    fill(objects, root, [f"{number:03}.mp4" for number in range(60)])

    assert objects.stat_many(f"{root}/{number:03}.mp4" for number in range(0, 60, 20)) == {}


def test_uris_other_than_s3_are_omitted(objects, tmp_path):
    assert objects.stat_many([str(tmp_path / "a.mp4"), "https://example.org/a.mp4"]) == {}


def test_pages_are_followed_across_folders_until_all_objects_are_listed(objects, store_settings, root):
    _, _, prefix = root.removeprefix("s3://").partition("/")
    wanted = [f"{folder}/{number:03}.mp4" for folder in "ab" for number in range(0, 60, 2)]
    fill(objects, root, [f"{folder}/{number:03}.mp4" for folder in "ab" for number in range(60)])
    pages = Pages(store_settings)

    keys = [entry["Key"] for entry in list_objects(pages, "frames", [f"{prefix}/{name}" for name in wanted])]

    assert keys == [f"{prefix}/{name}" for name in wanted]
    assert pages.requests < len(wanted) / FEWEST


class Pages:
    """The server's pages, cut short as Amazon may cut them, and counted."""

    def __init__(self, settings):
        self.requests = 0
        self._client = boto3.client(
            "s3",
            endpoint_url=settings.endpoint_url,
            verify=str(settings.ca_file),
            region_name=settings.region,
            aws_access_key_id=settings.access_key_id.get_secret_value(),
            aws_secret_access_key=settings.secret_access_key.get_secret_value(),
        )

    def list_objects_v2(self, **wanted):
        self.requests += 1
        return self._client.list_objects_v2(**{**wanted, "MaxKeys": min(40, wanted["MaxKeys"])})


def test_objects_of_a_bucket_that_cannot_be_listed_are_described_by_single_requests(objects):
    assert objects.stat_many(f"s3://nobody/{number:03}.mp4" for number in range(2 * FEWEST)) == {}


def test_a_presigned_url_is_read_without_keys(objects, store_settings, root):
    fill(objects, root, ["clip.mp4"])

    trusted = ssl.create_default_context(cafile=store_settings.ca_file)
    with urlopen(sign_url(store_settings, f"{root}/clip.mp4", valid_s=60), context=trusted) as answer:
        assert answer.read() == b"clip.mp4"
