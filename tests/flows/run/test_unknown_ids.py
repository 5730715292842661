"""Ids that are not in the manifest are listed in a file, where one can be written."""

from flows.run.selection import describe_unknown_ids

UNKNOWN = [f"id-{number}" for number in range(6)]
SENTENCE = "6 job ids are not in the manifest, such as id-0, id-1, id-2, id-3, id-4"


def test_many_unknown_ids_are_listed(tmp_path):
    listed = tmp_path / "home" / "unknown-ids.txt"

    assert describe_unknown_ids(UNKNOWN, tmp_path / "home") == f"{SENTENCE} (full list: {listed})"
    assert listed.read_text().split() == UNKNOWN


def test_many_unknown_ids_are_named_where_no_list_can_be_written(tmp_path):
    (tmp_path / "file").touch()

    assert describe_unknown_ids(UNKNOWN, tmp_path / "file" / "home") == SENTENCE
