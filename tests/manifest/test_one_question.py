"""A question about videos is told apart from a manifest, and has a name of its own."""

import pytest

from reelabel.errors import ConfigurationError
from tasks.manifest.one_question import QuestionOnVideos


def question_on(source, prompt="Is it?", choices="yes|no"):
    return QuestionOnVideos.of(source, prompt, choices)


@pytest.mark.parametrize(
    "source", ["jobs.parquet", "s3://b/jobs/*.parquet", "s3://b/jobs", "mp4", "~nobody-has-this-name/x"]
)
def test_without_a_question_the_source_is_a_manifest(source):
    assert question_on(source, None, None) is None


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("", "No manifest given; use a Parquet file"),
        (".", ". is a folder, not a manifest; to ask about its videos, add a question"),
        ("s3://b/clips/", "s3://b/clips/ is a prefix, not a manifest"),
        ("s3://b/a.MP4", "s3://b/a.MP4 names a video, not a manifest"),
        ("clips/*.webm", r"clips/\*.webm names videos, not a manifest"),
    ],
)
def test_videos_that_nobody_asks_about_are_no_manifest(source, fault):
    with pytest.raises(ConfigurationError, match=fault):
        question_on(source, None, None)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("", "Is it?", None), "No videos given"),
        (("jobs.CSV", "Is it?", None), "jobs.CSV has questions of its own"),
        (("/v", None, "yes|no"), "--choices needs a question"),
        (("/v", "Is it?", "yes"), "The question cannot be asked: choices has fewer than two answers"),
        (("/v", " ", None), "The question cannot be asked: prompt is empty"),
        (("/v", "\ud800", None), "are not UTF-8"),
        (("data:video/mp4;base64,AAAA", "Is it?", None), "Videos in data: are asked about by a manifest"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused(arguments, fault):
    with pytest.raises(ConfigurationError, match=fault):
        question_on(*arguments)


def test_a_question_is_asked_with_choices_or_in_words():
    assert question_on("/v/") == QuestionOnVideos(source="/v", prompt="Is it?", choices=("yes", "no"))
    assert question_on("/v", choices=None).choices == ()
    assert question_on("/").source == "/"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("/v/holiday films", "holiday-films"),
        ("/v/holiday films.mp4", "holiday-films"),
        ("/v/a.b", "a-b"),
        ("/v/clips/*.mp4", "clips"),
        ("/v/clips/*/a?.mp4", "clips"),
        ("https://host/x.mp4?signature=1", "x"),
        ("/", "videos"),
        (f"/{'n' * 99}", "n" * 40),
    ],
)
def test_a_question_is_named_after_its_videos_and_its_words(source, expected):
    question = question_on(source)
    name, _, digest = question.name.rpartition("-")

    assert (name, len(digest)) == (expected, 12)
    assert question_on(source).name == question.name
    assert len({question.name, question_on(source, choices=None).name, question_on(source, "Is it so?").name}) == 3
