from datetime import timedelta
from uuid import uuid4

import pytest

from flows.run.selection import read_ids, split_ids, store_ids
from tasks.report.pages import page_uri
from tasks.results.retention import PAGE, SELECTION, remove_old_files

NOW, YEAR = timedelta(seconds=-5), timedelta(days=365)


@pytest.fixture(params=["store", "folder"])
def root(request, store_settings, tmp_path):
    return store_settings.uri if request.param == "store" else tmp_path.as_uri()


def test_only_old_pages_are_removed(objects, root):
    page, stranger = page_uri(root, uuid4()), f"{root}/reports/index.html"
    for uri in (page, stranger):
        objects.replace(uri, b"<html>")

    assert remove_old_files(objects, f"{root}/reports", PAGE, age=YEAR) == 0
    assert remove_old_files(objects, f"{root}/reports", PAGE, age=NOW, dry_run=True) == 1
    assert remove_old_files(objects, f"{root}/reports", PAGE, age=NOW) == 1
    assert [info.uri for info in objects.list(f"{root}/reports")] == [stranger]


def test_lists_of_selected_ids_are_removed(objects, root):
    ours = store_ids(["a", "b"], objects, root)
    objects.replace(f"{root}/selections/mine.txt", b"a")

    assert remove_old_files(objects, f"{root}/selections", SELECTION, age=NOW) == 1
    assert ours not in {info.uri for info in objects.list(f"{root}/selections")}


def test_selected_ids_are_read_as_they_were_listed(objects, root):
    ids = ["a", "a\u2028b", "a\x85", "a\x0cb", "a b"]

    assert read_ids(store_ids(ids, objects, root), objects) == ids
    assert split_ids("a \r\n\n\tb\r\na") == ["a", "b"]


def test_a_missing_folder_counts_as_empty(objects, root):
    assert remove_old_files(objects, f"{root}/reports", PAGE, age=NOW) == 0
