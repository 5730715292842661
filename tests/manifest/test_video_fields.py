"""Fields of a layout of videos become columns of a manifest, and paths stay below its folder."""

from datetime import date

import pytest

from reelabel.errors import ConfigurationError
from reelabel.sources.object_store import ObjectStore
from tasks.manifest.importers.videos import VideoFiles, is_video, suffix_of


def job(column, value, **options):
    source = VideoFiles(uri="/v", objects=ObjectStore(), columns={column: "theirs"}, **{"prompt": "?"} | options)
    return source.job("a", "/v/a.mp4", {"theirs": value})


@pytest.mark.parametrize(
    ("column", "value", "read"),
    [
        ("choices", ["red", "blue"], ["red", "blue"]),
        ("choices", "red|blue", ["red", "blue"]),
        ("choices", None, None),
        ("start_s", 2, 2.0),
        ("end_s", 2.5, 2.5),
        ("end_s", None, None),
        ("task", 7, "7"),
        ("schema", {"type": "ö"}, '{"type": "ö"}'),
        ("task", {"since": date(2026, 11, 1)}, '{"since": "2026-11-01"}'),
        ("answer", "red", "red"),
        ("prompt", "Wer fällt?".encode(), "Wer fällt?"),
        ("choices", b"red|blue", ["red", "blue"]),
        ("job_id", b"clip-7", "clip-7"),
        ("job_id", bytes(range(0xF0, 0x100)), "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"),
    ],
)
def test_a_field_is_read_as_its_column_has_it(column, value, read):
    found = job(column, value, **({"prompt": None} if column == "prompt" else {}))

    assert found == {"job_id": "a", "prompt": "?", "video_uri": "/v/a.mp4", "choices": None} | {column: read}
    assert type(found[column]) is type(read)


@pytest.mark.parametrize(
    ("column", "value", "fault"),
    [
        ("start_s", True, "theirs True is not a number of seconds"),
        ("start_s", "2", "theirs .2. is not a number of seconds"),
        ("choices", ["red", 2], "is not a list of choices"),
        ("choices", 3, "theirs 3 is not a list of choices"),
        ("task", b"\xff", "theirs is not UTF-8"),
    ],
)
def test_a_field_of_another_type_is_refused(column, value, fault):
    with pytest.raises(ValueError, match=fault):
        job(column, value)


def test_a_field_that_is_missing_is_named_beside_those_there_are():
    source = VideoFiles(uri="/v", objects=ObjectStore(), prompt="?", columns={"task": "kind"})

    with pytest.raises(ValueError, match="it has no field kind; its fields: a, b"):
        source.job("a", "/v/a.mp4", {"b": 1, "a": 2})
    with pytest.raises(ValueError, match="its fields: none"):
        source.job("a", "/v/a.mp4", {})


def test_the_question_is_that_of_all_videos_or_of_each_and_never_of_both():
    assert job("task", "x", choices=("red", "blue"))["choices"] == ["red", "blue"]
    assert job("prompt", "Which?", prompt=None)["prompt"] == "Which?"
    for options in ({"prompt": None}, {"columns": {"prompt": "q"}, "prompt": "?"}):
        with pytest.raises(ConfigurationError):
            VideoFiles(uri="/v", objects=ObjectStore(), **options)


@pytest.mark.parametrize("path", ["", "/etc/a.mp4", "s3://b/a.mp4", "../a.mp4", "a/../../b.mp4"])
def test_a_path_stays_below_its_folder(path):
    source = VideoFiles(uri="/v/", objects=ObjectStore(), prompt="?")

    assert source.uri_of("a/b..c.mp4") == "/v/a/b..c.mp4"
    with pytest.raises(ValueError, match="does not lie below /v/"):
        source.uri_of(path)


@pytest.mark.parametrize(
    ("name", "suffix", "is_one"),
    [
        ("a/b.MP4", "mp4", True),
        ("a.b/c.webm", "webm", True),
        ("a.mp4/readme", "", False),
        ("a/mp4", "", False),
        ("a.txt", "txt", False),
        ("a/._b.mp4", "mp4", False),
        (".trash/b.mp4", "mp4", False),
    ],
)
def test_files_with_the_suffix_of_a_video_that_are_not_hidden_are_videos(name, suffix, is_one):
    assert (suffix_of(name), is_video(name)) == (suffix, is_one)
