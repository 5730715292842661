"""What a URI is read as, and what is known of the object at one."""

import pytest

from reelabel.errors import ConfigurationError, ObjectChangedError, ObjectTooLargeError, RangesIgnoredError
from reelabel.sources.object_info import (
    ObjectInfo,
    absolute_uri,
    is_read_by_fsspec,
    part_size,
    redact_uri,
    split_member,
)


def test_paths_are_made_absolute_and_uris_are_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")

    paths = ("a/../b.mp4", "~/c.mp4", "~draft.mp4", "s3://b/../k", "data:,a/../b")
    absolute = [f"{tmp_path}/b.mp4", "/home/me/c.mp4", f"{tmp_path}/~draft.mp4"]
    assert [absolute_uri(path) for path in paths] == [*absolute, *paths[3:]]
    with pytest.raises(ConfigurationError, match="is not UTF-8; rename it"):
        absolute_uri("caf\udce9.mp4")


@pytest.mark.parametrize(
    ("uri", "expected"), [("gs://b/k", True), ("fsspec+sftp://h/k", True), ("sftp://h/k", False), ("a.mp4", False)]
)
def test_what_fsspec_reads_is_known_by_its_scheme(uri, expected):
    assert is_read_by_fsspec(uri) == expected


@pytest.mark.parametrize(
    ("archive", "suffix"),
    [
        ("s3://b/a.TAR", ".tar"),
        ("a.tar.gz", ".tar.gz"),
        ("https://host/a.tar?name=b.zip", ".tar"),
        ("https://host/get?name=b.zip", ".zip"),
        ("https://host/a.tgz?sig=1", ".tgz"),
    ],
)
def test_an_archive_is_of_the_kind_that_its_path_names(archive, suffix):
    member = split_member(f"{archive}#clip.mp4")

    assert (member.archive, member.suffix, member.name) == (archive, suffix, "clip.mp4")


def test_a_message_shows_forty_characters_of_an_embedded_video():
    short, long = f"data:,{'x' * 34}", f"data:,{'x' * 35}"

    assert redact_uri(short) == short
    assert redact_uri(long) == f"{long[:40]}... (41 characters)"


def test_an_object_is_held_to_its_version_and_a_limit():
    info = ObjectInfo(uri="s3://b/k", size_bytes=10, fingerprint="one")

    info.require(fingerprint=None, max_bytes=None)
    info.require(fingerprint="one", max_bytes=10)
    with pytest.raises(ObjectChangedError):
        info.require(fingerprint="two", max_bytes=None)
    with pytest.raises(ObjectTooLargeError):
        info.require(fingerprint=None, max_bytes=9)


@pytest.mark.parametrize(
    ("stated", "size"),
    [
        ("bytes 3-9/20", 7),
        ("bytes 3-3/20", 1),
        *[(text, None) for text in (None, "", "bytes */20", "bytes 4-9/20", "bytes 3-2/20")],
    ],
)
def test_a_part_has_the_size_that_its_answer_states(stated, size):
    if size:
        assert part_size("s3://b/k", stated, start=3) == size
    else:
        with pytest.raises(RangesIgnoredError):
            part_size("s3://b/k", stated, start=3)
