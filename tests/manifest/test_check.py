from io import BytesIO

import polars as pl
import pytest

from infra.errors import ManifestError
from reelabel.options import WebOptions
from reelabel.sources.object_store import ObjectStore
from tasks.manifest.check import check_manifest, check_row, require_choices
from tasks.manifest.digests import rows_to_jobs
from tasks.manifest.location import dataset_name, stat_manifest_files
from tasks.manifest.table import open_jobs, read_jobs
from tests.reelabel.sources.web_server import serving


def rows(**changed):
    columns = {
        "job_id": ["a", "b", "c"],
        "video_uri": ["s3://bucket/a.mp4", "file:///b.mp4", "c.mp4"],
        "prompt": ["What?", "What?", "Who?"],
        "choices": [["yes", "no"]] * 3,
    }
    return pl.DataFrame(columns | changed)


def test_a_valid_manifest_has_no_faults():
    assert check_manifest(rows(answer=["yes", None, "no"], task=["t"] * 3)) == []


def test_a_row_alone_is_checked_by_the_rules_of_a_manifest():
    row = {"job_id": "a", "video_uri": "s3://b", "prompt": " ", "choices": ["x", "x"], "end_s": -1.0, "template": "?"}

    broken, of_video = (check_row(row, questions=questions) for questions in (True, False))

    faults = check_manifest(pl.DataFrame([row]))
    assert [sentence.partition(" 1 row")[0] for sentence in faults] == broken
    assert of_video == [rule for rule in broken if rule.startswith(("video_uri", "end_s"))]
    assert (len(broken), len(of_video)) == (5, 2)
    assert check_row(row | {"video_uri": "a.mp4", "end_s": None}, questions=False) == []


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        pytest.param(rows().drop("prompt"), "Column prompt is missing.", id="missing column"),
        pytest.param(rows(choices=["x", "y", "z"]), "Column choices has type String", id="wrong type"),
        pytest.param(rows(prompt=["x", None, "y"]), "prompt is null. 1 row, first row 1 (job_id 'b').", id="null"),
        pytest.param(rows(prompt=["x", " ", "y"]), "prompt is empty. 1 row", id="empty"),
        pytest.param(
            rows(job_id=["a", "b", "a"]),
            "job_id is not unique. 2 rows, first row 0 (job_id 'a'), row 2 (job_id 'a').",
            id="duplicate job",
        ),
        pytest.param(rows(choices=[["a", "b"], ["a"], ["a", "b"]]), "fewer than two", id="one choice"),
        pytest.param(rows(choices=[["a", "b"], ["a", ""], ["a", "b"]]), "an empty answer", id="empty choice"),
        pytest.param(rows(choices=[["a", "b"], ["a", "a"], ["a", "b"]]), "contains duplicates", id="repeated choice"),
        pytest.param(rows(video_uri=["ftp://x/y", "a", "b"]), "scheme is not one of s3, file", id="unknown scheme"),
        pytest.param(rows(answer=["maybe", "yes", None]), "answer is not one of choices", id="foreign answer"),
        pytest.param(rows(start_s=[-1.0, None, None]), "start_s is negative", id="negative start"),
        pytest.param(rows(end_s=[float("nan"), 1.0, None]), "end_s is not a finite number. 1 row", id="no number"),
        pytest.param(rows(end_s=[1e308, 1e12, None]), "end_s is above 1,000,000,000,000; it is in", id="no time"),
        pytest.param(rows(start_s=[3.0] * 3, end_s=[2.0, 4.0, 5.0]), "end_s is not after start_s. 1 row", id="order"),
        pytest.param(rows(video_uri=["http:///x", "a", "b"]), "has no host", id="no host"),
        pytest.param(rows(video_uri=["data:video/mp4", "a", "b"]), "no comma before its data", id="no comma"),
        pytest.param(rows(video_uri=["S3://b/x", "a", "b"]), "scheme is not one of s3, file", id="upper-case scheme"),
        pytest.param(rows(video_uri=["s3://bucket", "a", "b"]), "has no bucket or no key", id="no key"),
        pytest.param(rows(job_id=["a", "b" * 2000, "c"]), "job_id is longer than 1,024 bytes. 1 row", id="long id"),
        pytest.param(rows(task=["a\0", None, "b"]), "task must not contain the character U+0000. 1 row", id="NUL"),
        pytest.param(
            rows(choices=[["a", "b"], ["a\0", "b"], ["a", "b"]]),
            "choices must not contain the character U+0000.",
            id="NUL in a choice",
        ),
        pytest.param(
            rows(template=[None, "{prompt} {choice}", "{prompt}\n{choices}"]),
            "template: it must contain {prompt} and {choices}, and no other placeholder. 1 row, first row 1",
            id="template without choices",
        ),
        pytest.param(rows(template=["{prompt}{choices}{"] * 3), "double braces", id="template with a lone brace"),
        pytest.param(
            rows(template=[None, "{prompt!z} {choices}", "{prompt}\n{choices}"]),
            "template: placeholders cannot have ! or :; write {prompt} and {choices}. 1 row, first",
            id="template with a conversion",
        ),
        pytest.param(rows().clear(), "The manifest has no rows.", id="no rows"),
    ],
)
def test_each_fault_is_named_with_its_rows(frame, message):
    assert any(message in fault for fault in check_manifest(frame)), check_manifest(frame)


def test_jobs_may_be_about_segments():
    assert check_manifest(rows(start_s=[0.0, 3.5, None], end_s=[2.0, None, 1.0])) == []


def test_videos_may_be_on_the_web_or_inline():
    uris = ["https://h/a.mp4?x=1", "http://127.0.0.1:8/b", "data:video/mp4;base64,AAAA"]

    assert check_manifest(rows(video_uri=uris)) == []


def test_a_fault_shows_a_uri_without_inline_bytes_or_secrets():
    frame = rows(video_uri=["data:" + "x" * 10_000, "https:///a?signature=secret", "c"])

    faults = " ".join(check_manifest(frame))

    assert "10,005 characters" in faults
    assert "secret" not in faults
    assert len(faults) < 400


def test_jobs_are_read_from_every_file_of_a_glob(tmp_path, local_objects):
    rows().write_parquet(tmp_path / "part-1.parquet")
    rows(job_id=["d", "e", "f"]).write_parquet(tmp_path / "part-2.parquet")
    (tmp_path / "notes.txt").write_text("no manifest")

    jobs = read_jobs(f"{tmp_path}/part-*.parquet", local_objects)

    assert [job.job_id for job in jobs] == ["a", "b", "c", "d", "e", "f"]
    assert jobs[0].choices == ("yes", "no")


def test_a_rows_own_prompt_parts_belong_to_its_job(tmp_path, local_objects):
    wording = {"template": ["{prompt}{choices}", None, None], "examples": [None, "Q: one.", None]}
    rows(**wording).write_parquet(tmp_path / "worded.parquet")
    rows().write_parquet(tmp_path / "plain.parquet")

    worded, plain = (read_jobs(str(tmp_path / f"{name}.parquet"), local_objects) for name in ("worded", "plain"))

    assert [job.digest == other.digest for job, other in zip(worded, plain, strict=True)] == [False, False, True]
    assert (worded[0].template, worded[1].examples, plain[0].template) == ("{prompt}{choices}", "Q: one.", None)
    assert plain[0].digest == "57333b072c31ce002fe6ae5f0b7bf7c7"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"answer": ["yes", None, None]}, "answer is given without choices; leave it out, or add them. 1 row"),
        ({"template": ["{prompt}{choices}", None, None]}, "template is given without choices; leave it out"),
        ({"choices": [["a", "b"], None, None]}, "schema is given with choices; leave out one of them. 1 row"),
        ({"schema": ["{", '{"a": 1}', None]}, "schema is not JSON; write a JSON schema as text. 1 row"),
        (
            {"schema": ['{"a": NaN}', '{"a": -Infinity}', '{"a": 1e999}']},
            "schema is not JSON; write a JSON schema as text. 3",
        ),
        (
            {"schema": [r'{"a": "\ud800"}', r'{"\udc00": 1}', r'{"a": "\ud83d\ude00"}']},
            "schema is not JSON; write a JSON schema as text. 2",
        ),
        ({"schema": ["[]", "1", None]}, "schema is not a JSON object; write a JSON schema as text. 2 rows"),
        ({"schema": ['{"a":' * 33 + "1" + "}" * 33, None, None]}, "schema is nested deeper than 32 levels; flatten"),
        ({"schema": ['{"a":' * 1500 + "1" + "}" * 1500, None, None]}, "schema is nested deeper than 32 levels"),
        ({"schema": [f'{{"a": "{"b" * 10_000}"}}', None, None]}, "schema must have at most 10,000 characters. 1 row"),
        ({"choices": [[], None, None], "schema": [None] * 3}, "choices has fewer than two answers. 1 row"),
    ],
)
def test_faults_of_rows_without_choices_are_named(changed, message):
    [fault] = check_manifest(rows(**{"choices": [None] * 3, "schema": ['{"a": 1}', None, None]} | changed))

    assert fault.startswith(message)


def test_rows_without_choices_are_jobs_in_words(tmp_path, local_objects):
    deep = '{"a":' * 32 + "1" + "}" * 32
    mixed = rows(choices=[["yes", "no"], None, None], schema=[None, None, deep])
    mixed.write_parquet(tmp_path / "mixed.parquet")
    rows().drop("choices").write_parquet(tmp_path / "words.parquet")

    with open_jobs(str(tmp_path / "mixed.parquet"), local_objects) as table:
        [part] = table.parts()
        jobs = rows_to_jobs(part.sort("row"))
        assert (table.words, table.first(2).words) == (2, 1)
        assert part.sort("row")["job_digest"].to_list() == [job.digest for job in jobs]
    words = read_jobs(str(tmp_path / "words.parquet"), local_objects)

    assert [(job.choices, job.schema) for job in jobs] == [(("yes", "no"), None), ((), None), ((), deep)]
    assert [job.choices for job in words] == [()] * 3
    assert words[1].digest == jobs[1].digest


@pytest.mark.parametrize("name", ["choice", "Choices", "choises"])
def test_a_misspelt_column_of_choices_does_not_ask_for_words(tmp_path, local_objects, name):
    rows(choices=[["yes", "no"]] * 3).rename({"choices": name}).write_parquet(tmp_path / "jobs.parquet")

    with pytest.raises(ManifestError, match=f"has no column choices, but {name}: rename it to choices"):
        read_jobs(str(tmp_path / "jobs.parquet"), local_objects)


def test_a_misspelt_column_of_schemas_does_not_ask_for_words_alone(tmp_path, local_objects):
    rows(choices=[None] * 3, schemas=['{"a": 1}'] * 3).write_parquet(tmp_path / "jobs.parquet")

    with pytest.raises(ManifestError, match="has no column schema, but schemas: rename it to schema, or"):
        read_jobs(str(tmp_path / "jobs.parquet"), local_objects)


def test_files_of_which_only_some_have_choices_are_refused(tmp_path, local_objects):
    rows().write_parquet(tmp_path / "a.parquet")
    rows(job_id=["d", "e", "f"]).drop("choices").write_parquet(tmp_path / "b.parquet")

    with pytest.raises(ManifestError, match=r"b\.parquet has no column choices, which other files of .*; add it"):
        read_jobs(str(tmp_path / "*.parquet"), local_objects)


def test_videos_are_described_whatever_columns_of_questions_files_have(tmp_path, local_objects):
    rows().write_parquet(tmp_path / "a.parquet")
    more = rows(job_id=["d", "e", "f"]).rename({"choices": "choice"})
    more.write_parquet(tmp_path / "b.parquet")

    with open_jobs(f"{tmp_path}/*.parquet", local_objects, questions=False) as table:
        assert len(table) == 6
    with pytest.raises(ManifestError, match="has no column choices"), open_jobs(f"{tmp_path}/*.parquet", local_objects):
        pass


def test_a_glob_may_be_relative_and_its_star_stays_within_a_folder(tmp_path, local_objects, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows().write_parquet(tmp_path / "a.parquet")
    (tmp_path / "old").mkdir()
    rows().write_parquet(tmp_path / "old" / "b.parquet")

    for uri in ("*.parquet", "./*.parquet", f"{tmp_path.as_uri()}/*.parquet"):
        assert len(read_jobs(uri, local_objects)) == 3


@pytest.mark.parametrize("name", ["jobs [1].parquet", "jobs*.parquet", "why?.parquet"])
def test_a_file_whose_name_looks_like_a_glob_is_taken_literally(tmp_path, local_objects, name):
    rows().write_parquet(tmp_path / name)
    rows(job_id=["d", "e", "f"]).write_parquet(tmp_path / "jobs 1.parquet")

    assert [job.job_id for job in read_jobs(f"{tmp_path}/{name}", local_objects)] == ["a", "b", "c"]
    assert [info.uri for info in stat_manifest_files(f"{tmp_path}/{name}", local_objects)] == [f"{tmp_path}/{name}"]


def test_the_query_of_a_web_address_is_no_glob():
    file = BytesIO()
    rows().write_parquet(file)
    objects = ObjectStore(web=WebOptions(allow_networks=["127.0.0.0/8"]))
    with serving() as server:
        uri = f"{server.add('/jobs.parquet', body=file.getvalue())}?X-Amz-Signature=ab"

        assert len(read_jobs(uri, objects)) == 3
        assert [info.uri for info in stat_manifest_files(uri, objects)] == [uri]


def test_a_missing_manifest_is_named(tmp_path, local_objects):
    with pytest.raises(ManifestError, match="no manifest file at"):
        read_jobs(str(tmp_path / "gone.parquet"), local_objects)
    with pytest.raises(ManifestError, match="No file matches"):
        read_jobs(f"{tmp_path}/*.parquet", local_objects)


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("s3://b/jobs/animals.parquet", "animals"),
        ("night-*.parquet", "night"),
        ("*.parquet", "manifest"),
        ("s3://b/jobs/*.parquet", "jobs"),
        ("s3://b/jobs/dt=2026-11-01/*.parquet", "jobs-2026-11-01"),
        ("s3://b/jobs/2026/11/01.parquet", "jobs-2026-11-01"),
        ("s3://b/jobs/2026-11-01/animals.parquet", "animals"),
        ("s3://b/*.parquet", "b"),
        ("/data/2026/*.parquet", "data-2026"),
        ("https://h/jobs/animals.parquet?X-Goog-Credential=me.iam.com%2F2026", "animals"),
        ("https://me:word@h.example/7.parquet", "h.example-7"),
    ],
)
def test_a_dataset_is_named_after_its_manifest(uri, name):
    assert dataset_name(uri) == name


LONG = "é" * 100_001  # characters count, not bytes


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"prompt": [LONG, LONG[1:], "c"]}, "prompt must have at most 100,000 characters. 1 row, first row 0 (job_id"),
        ({"system_prompt": [LONG] * 3}, "system_prompt must have at most 100,000 characters. 3 rows"),
        ({"examples": [LONG, None, None]}, "examples must have at most 100,000 characters. 1 row"),
        ({"template": ["{prompt}{choices}" + LONG] * 3}, "template must have at most 100,000 characters."),
        ({"task": ["t" * 1025, None, None]}, "task must have at most 1,024 characters. 1 row"),
        ({"choices": [["a", "b" * 4001], ["a", "b" * 4000], ["a", "b"]]}, "at most 4,000 characters. 1 row"),
        ({"choices": [[str(n) for n in range(1025)], *[["a", "b"]] * 2]}, "choices must have at most 1,024 answers."),
        ({"video_uri": ["s3://b/" + "k" * 8192, "b", "c"]}, "video_uri must have at most 8,192 characters. 1 row"),
        (
            {"video_uri": ["data:video/mp4;base64," + "A" * 16 * 1024**2, "data:,A", "c"]},
            "video_uri that holds a video must have at most 16,777,216 characters; name a file instead. 1 row",
        ),
        ({"messages": ["[" * (16 * 1024**2 + 1), None, None]}, "messages: must have at most 16,777,216 characters."),
    ],
)
def test_every_text_has_a_bound(changed, message):
    frame = rows(**changed)

    assert any(message in fault for fault in check_manifest(frame)), check_manifest(frame)


@pytest.mark.parametrize("name", ["job_id", "video_uri", "prompt", "system_prompt", "examples", "answer", "subtask"])
def test_no_text_has_a_character_that_cannot_be_stored(name):
    frame = rows(**{name: ["a\0", "b", "c"]})

    assert f"{name} must not contain the character U+0000." in " ".join(check_manifest(frame))


def test_a_message_about_a_long_text_is_short():
    frame = rows(job_id=["j" * 10**6, "b", "c"], choices=[["a" * 10**6]] * 3, task=["\0" * 10**6] * 3)

    assert max(map(len, check_manifest(frame))) < 1000


def test_answers_in_words_cannot_be_compared_with_known_ones():
    require_choices("m.parquet", has_choices=True)
    with pytest.raises(ManifestError, match=r"No job of m\.parquet has choices"):
        require_choices("m.parquet", has_choices=False)
