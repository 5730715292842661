"""Which URIs name a member, and of what; and how a file of its own is named that looks like one."""

import pytest

from reelabel.sources.object_info import absolute_uri, escape_name, member_uri, redact_uri, split_member
from reelabel.sources.object_store import ObjectStore

SIGNED = "https://host/a.tar?sig=secret#clips/7.mp4"


@pytest.mark.parametrize(
    ("uri", "archive", "name"),
    [
        ("s3://b/a.tar#clips/7.mp4", "s3://b/a.tar", "clips/7.mp4"),
        ("a.ZIP#take#2.mp4", "a.ZIP", "take#2.mp4"),
        ("/x/a.tar#100%25.mp4", "/x/a.tar", "100%.mp4"),
        ("a.tar#b.tar#c.mp4", "a.tar", "b.tar#c.mp4"),
        ("a.tar#caf%C3%A9.mp4", "a.tar", "café.mp4"),
        ("https://host/a.tar#7.mp4", "https://host/a.tar", "7.mp4"),
        (SIGNED, "https://host/a.tar?sig=secret", "clips/7.mp4"),
        ("a.tar#../../etc/passwd", "a.tar", "../../etc/passwd"),
        ("a.tar#", "a.tar", ""),
    ],
)
def test_the_first_hash_after_an_archives_suffix_divides_a_uri(uri, archive, name):
    member = split_member(uri)

    assert (member.archive, member.name) == (archive, name)


@pytest.mark.parametrize(
    "uri",
    ["take#2.mp4", "s3://b/a.tar", "a.tar%23b.mp4", "a.tart#b", "data:video/mp4;base64,a.tar#b", "https://h/v#a.tar"],
)
def test_any_other_hash_is_part_of_a_name(uri):
    assert split_member(uri) is None


@pytest.mark.parametrize("name", ["a b.mp4", "100%.mp4", "%41", "new\nline", "caf\udce9.mp4", "../up", "é#1?.mp4"])
def test_a_member_of_any_name_has_a_uri(name):
    uri = member_uri("s3://b/a.tar", name)

    assert split_member(uri).name == name
    assert uri.isprintable()
    uri.encode()


def test_a_signed_archive_is_shown_without_its_signature():
    assert redact_uri(SIGNED) == "https://host/a.tar?...#clips/7.mp4"


def test_the_path_of_an_archive_is_made_absolute_and_the_member_left_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert absolute_uri("x/../a.tar#b/../c.mp4") == f"{tmp_path}/a.tar#b/../c.mp4"


@pytest.mark.parametrize("kind", ["path", "file", "s3"])
def test_a_file_of_its_own_that_looks_like_a_member_is_read(tmp_path, kind, request):
    (tmp_path / "a.tar#b.mp4").write_bytes(b"whole")
    objects, uri = ObjectStore(), escape_name(f"{tmp_path}/a.tar#b.mp4")
    if kind == "file":
        uri = f"file://{uri}"
    if kind == "s3":
        objects, root = request.getfixturevalue("objects"), request.getfixturevalue("store_settings").uri
        uri = f"{root}/a.tar%23b.mp4"
        objects.replace(uri, b"whole")
        assert [info.uri for info in objects.list(root)] == [f"{root}/a.tar#b.mp4"]

    assert objects.read(uri, fingerprint=objects.stat(uri).fingerprint) == b"whole"
