"""Files as objects: what is listed and in which order, what stays of an interrupted write, and what is left open."""

import os
from pathlib import Path

import pytest

from reelabel.errors import ObjectMissingError, ObjectRefusedError, StoreUnavailableError
from reelabel.sources.object_store import ObjectStore
from tests.other_user import STRANGER, as_user


@pytest.fixture
def store():
    return ObjectStore()


def opened_below(folder):
    """Return the paths of what this process has open below a folder."""
    links = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
    return [link for link in links if link.startswith(str(folder))]


@pytest.mark.parametrize("as_uri", [str, Path.as_uri], ids=["path", "uri"])
def test_files_are_listed_in_the_order_of_their_names_with_slashes(store, tmp_path, as_uri):
    names = ["a-b", "a.mp4", "a/1", "a/b/c", "a/z", "a0"]
    for name in reversed(names):
        store.replace(f"{tmp_path}/{name}", name.encode())

    assert [info.uri for info in store.list(as_uri(tmp_path))] == [as_uri(tmp_path / name) for name in names]
    assert list(store.list(as_uri(tmp_path / "a.mp4"))) == []


def test_links_to_files_are_listed_and_those_that_lead_nowhere_or_back_are_not(store, tmp_path):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    for name in ("in/file", "elsewhere/other"):
        (tmp_path / name).write_bytes(b"clip")
    (tmp_path / "in" / "link").symlink_to("file")
    (tmp_path / "in" / "folder").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in" / "gone").symlink_to("nothing")
    (tmp_path / "in" / "deep" / "back").symlink_to(tmp_path / "in")
    os.mkfifo(tmp_path / "in" / "pipe")

    listed = [info.uri.removeprefix(f"{tmp_path}/in/") for info in store.list(f"{tmp_path}/in")]

    assert listed == ["file", "folder/other", "link"]


def test_writing_leaves_nothing_but_the_file_and_what_is_unfinished_is_not_listed(store, tmp_path):
    assert store.write_new(f"{tmp_path}/a", b"one")
    assert not store.write_new(f"{tmp_path}/a", b"two")
    store.replace(f"{tmp_path}/b", b"three")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "b"]

    (tmp_path / ".0123.unfinished").write_bytes(b"of a killed process")
    assert [info.uri for info in store.list(str(tmp_path))] == [f"{tmp_path}/a", f"{tmp_path}/b"]
    assert [store.read(f"{tmp_path}/{name}") for name in "ab"] == [b"one", b"three"]


def test_a_folder_is_made_and_made_again_and_a_file_is_removed_once(store, tmp_path):
    for _ in range(2):
        store.ensure_root(f"{tmp_path}/new/folder")
    assert (tmp_path / "new" / "folder").is_dir()

    store.replace(f"{tmp_path}/new/folder/file", b"clip")
    assert store.read(f"{tmp_path}/new/folder/file") == b"clip"
    for _ in range(2):
        store.remove(f"{tmp_path}/new/folder/file")
    with pytest.raises(ObjectMissingError):
        store.read(f"{tmp_path}/new/folder/file")


def test_a_file_in_the_place_of_a_folder_is_an_error_with_its_reason(store, tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(StoreUnavailableError, match=r"Reading or writing .*/file/x failed: File exists\."):
        store.replace(f"{tmp_path}/file/x", b"")


def test_a_file_of_another_user_is_refused(store, tmp_path):
    store.replace(f"{tmp_path}/theirs/clip", b"clip")
    (tmp_path / "theirs").chmod(0)

    def look():
        with pytest.raises(ObjectRefusedError) as raised:
            store.read(f"{tmp_path}/theirs/clip")
        return raised.value.message

    message = as_user(STRANGER, look)

    assert message == f"Permission denied for {tmp_path}/theirs/clip; change its permissions."
    (tmp_path / "theirs").chmod(0o700)


@pytest.mark.parametrize("roots", [(), ("a/b",)], ids=["anywhere", "below a root"])
def test_a_file_is_closed_after_use_whether_or_not_it_is_there(tmp_path, roots):
    store = ObjectStore(allow_roots=[tmp_path / root for root in roots])
    store.replace(f"{tmp_path}/a/b/c/d", b"clip")

    with store.open(f"{tmp_path}/a/b/c/d") as file:
        assert file.read(1, 2) == b"li"
        assert opened_below(tmp_path) == [f"{tmp_path}/a/b/c/d"]
    for name in ("a/b/none", "a/b/c/d/e", "a/b"):
        with pytest.raises(ObjectMissingError, match=f"{name}"), store.open(f"{tmp_path}/{name}"):
            pass

    assert opened_below(tmp_path) == []
    with pytest.raises(StoreUnavailableError, match="Bad file descriptor"):
        file.read(0, 1)
