import json
from decimal import Decimal
from itertools import pairwise

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet as pq

from infra.errors import ManifestError
from infra.settings import StoreSettings
from reelabel.errors import ConfigurationError
from reelabel.sources.object_store import ObjectStore
from tasks.domain import Job, Medium
from tasks.manifest import parquet, table
from tasks.manifest.digests import job_digests, jobs_to_rows, rows_to_jobs
from tasks.manifest.parquet import open_manifest
from tasks.manifest.table import open_jobs, read_jobs, read_unchecked_batches
from tests.results.rows import ids_of

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
SIGNED = "https://host/a.mp4?Expires=5&Key-Pair-Id=k"
MESSAGES = json.dumps([{"role": "user", "content": "?"}])


@pytest.fixture
def objects():
    return ObjectStore(StoreSettings())


@pytest.fixture
def _small_batches(monkeypatch):
    """Batches and parts of few rows, so that few rows make many of them."""
    monkeypatch.setattr(parquet, "_BATCH_ROWS", 7)
    monkeypatch.setattr(parquet, "_IDS_AT_ONCE", 9)
    monkeypatch.setattr(table, "_ROWS_PER_PART", 10)


def manifest(rows):
    numbers = range(rows)
    return pl.DataFrame(
        {
            "job_id": [f"j{number}" for number in numbers],
            "video_uri": [f"v{number // 3}/clip.mp4" for number in numbers],
            "prompt": ["?"] * rows,
            "choices": [["yes", "no"]] * rows,
        }
    )


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            Job,
            job_id=TEXT,
            video_uri=TEXT | st.just(f"{SIGNED}&Signature=one"),
            prompt=TEXT,
            choices=st.tuples(TEXT, TEXT),
            system_prompt=st.none() | TEXT,
            template=st.none() | TEXT,
            examples=st.none() | TEXT,
            messages=st.none() | st.just(MESSAGES),
            start_s=st.none() | st.floats(0, 1e20),
        ),
        min_size=1,
    )
)
def test_a_column_of_digests_equals_the_digests_of_its_jobs(jobs):
    frame = jobs_to_rows(jobs)

    assert job_digests(frame).to_list() == [job.digest for job in jobs]
    assert rows_to_jobs(frame) == jobs


@pytest.mark.parametrize(
    "show",
    [
        lambda uri: {"video_uri": uri},
        lambda uri: {"video_uri": uri, "media": (Medium("video", uri), Medium("image", uri))},
        lambda uri: {"video_uri": "v", "messages": json.dumps([{"content": [{"video_url": {"url": uri}}]}])},
        lambda uri: {"video_uri": "v", "messages": json.dumps([{"content": [{"type": "image", "image": uri}]}])},
    ],
    ids=["one video", "several", "messages", "image of messages"],
)
def test_a_new_signature_of_a_url_is_no_new_question_and_another_version_is(show):
    def digest(uri):
        job = Job(job_id="j", prompt="?", choices=("yes", "no"), **show(uri))
        assert job_digests(jobs_to_rows([job])).to_list() == [job.digest]
        return job.digest

    one, two, other = (f"{SIGNED}&{rest}" for rest in ("Signature=1", "Signature=2", "Signature=1&versionId=3"))

    assert digest(one) == digest(two) != digest(other)


@pytest.mark.usefixtures("_small_batches")
def test_jobs_are_read_completely_and_grouped_by_video(tmp_path, objects):
    frame = manifest(100)
    frame[:60].write_parquet(tmp_path / "1.parquet", row_group_size=25)
    frame[60:].write_parquet(tmp_path / "2.parquet")

    with open_jobs(f"{tmp_path}/*.parquet", objects) as jobs:
        parts = list(jobs.parts())

    assert jobs.rows == 100
    assert len(parts) > 5
    assert pl.concat(parts).sort("row").select(frame.columns).equals(frame)
    assert sum(part["video_uri"].n_unique() for part in parts) == 34
    orders = [part["locality_hash"] for part in parts]
    assert all(one.max() < other.min() for one, other in pairwise(orders))
    assert [job.job_id for job in read_jobs(f"{tmp_path}/*.parquet", objects)] == frame["job_id"].to_list()


TWO = {"job_id": ["a", "b"], "video_uri": ["/a.mp4", "/b.mp4"], "prompt": ["?"] * 2, "choices": [["yes", "no"]] * 2}
NO_TEXT = pa.Array.from_buffers(
    pa.string(), 2, [None, pa.array([0, 2, 3], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfea")]
)


@pytest.mark.parametrize(
    ("name", "column", "said"),
    [
        ("job_id", NO_TEXT, "has a text that is not UTF-8 in its column job_id; write the file again"),
        ("prompt", NO_TEXT, "has a text that is not UTF-8 in its column prompt; write the file again"),
        (
            "choices",
            pa.array(TWO["choices"], pa.list_view(pa.string())),
            "whose type cannot be read, one of: .*list_view",
        ),
        ("start_s", pa.array([Decimal(1), Decimal(2)], pa.decimal256(50, 3)), "start_s has type Decimal.precision=50"),
    ],
)
@pytest.mark.parametrize("only", [None, pl.Series(["a"])])
def test_columns_that_no_reader_can_convert_are_refused_in_a_sentence(tmp_path, objects, name, column, said, only):
    pq.write_table(pa.table(TWO | {name: column}), tmp_path / "m.parquet")

    with pytest.raises(ManifestError, match=said), open_jobs(str(tmp_path / "m.parquet"), objects, only=only):
        pass


def test_messages_of_the_type_json_are_texts(tmp_path, objects):
    asked = [{"type": "video_url", "video_url": {"url": "/a.mp4"}}, {"type": "text", "text": "?"}]
    texts = pa.array([json.dumps([{"role": "user", "content": asked}])] * 2)
    table = pa.table({name: TWO[name] for name in ("job_id", "choices")} | {"messages": texts.cast(pa.json_())})
    pq.write_table(table, tmp_path / "m.parquet")

    assert [job.video_uri for job in read_jobs(str(tmp_path / "m.parquet"), objects)] == ["/a.mp4"] * 2


@pytest.mark.parametrize("name", ["bad-\udcff.parquet", "*.parquet"])
def test_a_manifest_whose_name_is_not_utf_8_is_refused_in_a_sentence(tmp_path, objects, name):
    manifest(2).write_parquet(tmp_path / "m.parquet")
    (tmp_path / "m.parquet").rename(tmp_path / "bad-\udcff.parquet")

    with pytest.raises(ConfigurationError, match=r"bad-<U\+DCFF>\.parquet is not UTF-8; rename it"):
        read_jobs(f"{tmp_path}/{name}", objects)


@pytest.mark.parametrize("rows", [3, 12])
@pytest.mark.parametrize("only", [None, np.ones(10, np.bool_)])
def test_a_manifest_that_is_replaced_while_it_is_read_loses_no_row(tmp_path, objects, rows, only):
    path = tmp_path / "m.parquet"
    manifest(10).write_parquet(path)
    with open_manifest(str(path), objects) as files:
        manifest(rows).write_parquet(path)

        with pytest.raises(ManifestError, match="was replaced while it was being read; run again"):
            list(files.batches(only=only))


def test_videos_with_similar_names_are_read_together(tmp_path, objects, monkeypatch):
    monkeypatch.setattr(parquet, "_BATCH_ROWS", 200)
    monkeypatch.setattr(table, "_ROWS_PER_PART", 1500)
    clips = [f"s3://footage/day/clip-{number:05}.mp4" for number in range(3000)]
    manifest(3000).with_columns(video_uri=pl.Series(clips).shuffle(seed=1)).write_parquet(tmp_path / "m.parquet")

    with open_jobs(str(tmp_path / "m.parquet"), objects) as jobs:
        parts = [sorted(part["video_uri"]) for part in jobs.parts() if len(part)]

    together = [clips[:1000], clips[1000:2000], clips[2000:]]
    assert sorted(clip for part in parts for clip in part) == clips
    assert all(any(set(each) <= set(part) for part in parts) for each in together)


@pytest.mark.usefixtures("_small_batches")
@pytest.mark.parametrize("jobs_per_video", [1, 4, 30, 300])
def test_the_size_of_a_part_does_not_depend_on_the_jobs_per_video(tmp_path, objects, jobs_per_video):
    clips = [f"s3://footage/clip-{number // jobs_per_video:03}.mp4" for number in range(300)]
    frame = manifest(300).with_columns(video_uri=pl.Series(clips)).sample(fraction=1, shuffle=True, seed=1)
    frame.write_parquet(tmp_path / "m.parquet")

    with open_jobs(str(tmp_path / "m.parquet"), objects) as jobs:
        parts = [part for part in jobs.parts() if len(part)]
        assert jobs.count_videos() == 300 // jobs_per_video

    assert pl.concat(parts).sort("row").select(frame.columns).equals(frame)
    assert max(map(len, parts)) <= 30
    videos = [[*part["video_uri"].unique()] for part in parts]
    if jobs_per_video < 10:
        assert len({uri for part in videos for uri in part}) == sum(map(len, videos))


@pytest.mark.usefixtures("_small_batches")
def test_selected_jobs_of_a_manifest_are_read_up_to_a_limit(tmp_path, objects):
    manifest(100).write_parquet(tmp_path / "m.parquet")
    named = pl.Series("job_id", ["j70", "j7", "nobody", "j33", "j33"])
    odd = np.arange(100) % 2 == 1

    with open_jobs(str(tmp_path / "m.parquet"), objects, only=named) as jobs:
        assert (jobs.rows, len(jobs), jobs.count_videos()) == (100, 3, 3)
        assert ids_of(jobs) == ["j7", "j33", "j70"]
        assert ids_of(jobs.chosen(odd)) == ["j7", "j33"]
        assert ids_of(jobs.chosen(odd).first(1)) == ["j7"]
        assert ids_of(jobs.first(None)) == ids_of(jobs)


@pytest.mark.usefixtures("_small_batches")
def test_jobs_are_selected_from_files_with_other_types_of_ids(tmp_path, objects):
    frame = manifest(60).with_columns(job_id=pl.int_range(60).cast(pl.String))
    frame[:20].write_parquet(tmp_path / "1.parquet")
    frame[20:40].with_columns(pl.col("job_id").cast(pl.Int32)).write_parquet(tmp_path / "2.parquet")
    frame[40:].with_columns(pl.col("job_id").cast(pl.Categorical)).write_parquet(tmp_path / "3.parquet")

    with open_jobs(f"{tmp_path}/*.parquet", objects, only=pl.Series(["0", "19", "20", "39", "59", "60"])) as jobs:
        assert ids_of(jobs) == ["0", "19", "20", "39", "59"]
        [part] = [part for part in jobs.parts() if len(part)]

    assert part.sort("row").select(frame.columns).equals(frame[[0, 19, 20, 39, 59]])
    with open_jobs(f"{tmp_path}/*.parquet", objects, only=pl.Series(["60"])) as jobs:
        assert len(jobs) == 0


def test_no_job_is_selected_from_a_file_without_ids(tmp_path, objects):
    manifest(3).write_parquet(tmp_path / "1.parquet")
    manifest(3).drop("job_id").write_parquet(tmp_path / "2.parquet")

    with open_jobs(f"{tmp_path}/*.parquet", objects, only=pl.Series(["j1"])) as jobs:
        assert (jobs.rows, ids_of(jobs)) == (6, ["j1"])
    (tmp_path / "1.parquet").unlink()
    with (
        pytest.raises(ManifestError, match="Column job_id is missing"),
        open_jobs(f"{tmp_path}/*.parquet", objects, only=pl.Series(["j1"])),
    ):
        pass


@pytest.mark.usefixtures("_small_batches")
def test_faults_of_all_batches_are_numbered_by_rows_of_the_manifest(tmp_path, objects):
    frame = manifest(40).with_columns(
        prompt=pl.Series([None if number % 10 == 9 else "?" for number in range(40)]),
        job_id=pl.Series([f"j{number % 38}" for number in range(40)]),
    )
    frame.write_parquet(tmp_path / "m.parquet")

    with pytest.raises(ManifestError) as refused, open_jobs(str(tmp_path / "m.parquet"), objects):
        pass

    assert refused.value.message.splitlines()[1:] == [
        "  - prompt is null. 4 rows, first row 9 (job_id 'j9'), row 19 (job_id 'j19'), row 29 (job_id 'j29').",
        "  - job_id is not unique. 4 rows, first row 0 (job_id 'j0'), row 1 (job_id 'j1'), row 38 (job_id 'j0').",
    ]


def test_files_with_different_columns_form_one_manifest(tmp_path, objects):
    manifest(3).with_columns(job_id=pl.Series([1, 2, 3]), task=pl.lit("t")).write_parquet(tmp_path / "1.parquet")
    manifest(2).write_parquet(tmp_path / "2.parquet")

    jobs = read_jobs(f"{tmp_path}/*.parquet", objects)

    assert [(job.job_id, job.task) for job in jobs] == [("1", "t"), ("2", "t"), ("3", "t"), ("j0", None), ("j1", None)]


def test_files_with_contradicting_columns_are_refused(tmp_path, objects):
    manifest(3).write_parquet(tmp_path / "1.parquet")
    manifest(3).with_columns(choices=pl.lit(1)).write_parquet(tmp_path / "2.parquet")

    with pytest.raises(ManifestError, match="have incompatible column types"):
        read_jobs(f"{tmp_path}/*.parquet", objects)


def test_foreign_columns_are_never_read_whatever_they_contain(tmp_path, objects):
    made = manifest(3).to_arrow()
    for name in ("seen", "note", "note"):
        made = made.append_column(name, pa.array([1, 2, 3], pa.timestamp("us", "+05:30")))
    pq.write_table(made, tmp_path / "m.parquet")

    jobs = read_jobs(str(tmp_path / "m.parquet"), objects)

    assert [job.job_id for job in jobs] == ["j0", "j1", "j2"]


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("job_id", pa.array(["a", "b", "c"]), r"m\.parquet has duplicate columns job_id; remove all but one"),
        ("answer", pa.array([1, 2, 3], pa.timestamp("us", "+05:30")), r"answer \(timestamp\[us, tz=\+05:30\]\)"),
    ],
)
def test_columns_that_cannot_be_read_are_named(tmp_path, objects, name, values, message):
    pq.write_table(manifest(3).to_arrow().append_column(name, values), tmp_path / "m.parquet")

    with pytest.raises(ManifestError, match=message):
        read_jobs(str(tmp_path / "m.parquet"), objects)


def test_a_file_without_any_manifest_column_is_named(tmp_path, objects):
    manifest(3).write_parquet(tmp_path / "1.parquet")
    pl.DataFrame({"jobid": ["a"]}).write_parquet(tmp_path / "2.parquet")

    with pytest.raises(ManifestError, match=r"2\.parquet has no manifest columns; it needs job_id, video_uri"):
        read_jobs(f"{tmp_path}/*.parquet", objects)


def test_a_damaged_file_is_named(tmp_path, objects):
    path = tmp_path / "m.parquet"
    manifest(3).write_parquet(path)
    data = bytearray(path.read_bytes())
    data[4:60] = b"\xff" * 56
    path.write_bytes(data)

    with pytest.raises(ManifestError, match=r"m\.parquet is damaged"):
        read_jobs(str(path), objects)


def test_questions_of_an_invalid_manifest_can_still_be_compared(tmp_path, objects):
    frame = manifest(3).with_columns(job_id=pl.lit("same"), messages=pl.Series([None, "no JSON", None]))
    frame.write_parquet(tmp_path / "m.parquet")

    with open_manifest(str(tmp_path / "m.parquet"), objects) as files:
        [batch] = read_unchecked_batches(files)

    assert batch["job_digest"].is_null().to_list() == [False, True, False]


@pytest.mark.usefixtures("_small_batches")
def test_valid_rows_are_kept_and_others_rejected_with_all_their_reasons(tmp_path, objects):
    frame = manifest(40).with_columns(
        job_id=pl.when(pl.int_range(40) == 30).then(pl.lit("j2")).otherwise("job_id"),
        prompt=pl.when(pl.int_range(40).is_in([3, 33])).then(None).otherwise("prompt"),
        video_uri=pl.when(pl.int_range(40) == 33).then(pl.lit("ftp://x/y")).otherwise("video_uri"),
    )
    frame.write_parquet(tmp_path / "m.parquet")

    with (
        pytest.raises(ManifestError, match=r"prompt is null\. 2 rows"),
        open_jobs(str(tmp_path / "m.parquet"), objects),
    ):
        pass
    with open_jobs(str(tmp_path / "m.parquet"), objects, keep_going=True) as jobs:
        ids = ids_of(jobs)
        rejects = {row: (job_id, reason) for row, job_id, reason in jobs.rejects.rows()}
        assert (jobs.rows, jobs.jobs_in_manifest, len(jobs)) == (40, 37, 37)

    assert ids == [f"j{number}" for number in range(40) if number not in {3, 30, 33}]
    assert list(rejects) == [3, 30, 33]
    assert rejects[30] == ("j2", "job_id is that of an earlier row.")
    assert "prompt is null." in rejects[33][1]
    assert "its scheme is not one of" in rejects[33][1]


def test_a_repeated_id_of_an_invalid_row_does_not_reject_the_valid_one(tmp_path, objects):
    frame = manifest(3).with_columns(job_id=pl.Series(["a", "a", "b"]), prompt=pl.Series([None, "?", "?"]))
    frame.write_parquet(tmp_path / "m.parquet")

    with open_jobs(str(tmp_path / "m.parquet"), objects, keep_going=True) as jobs:
        assert ids_of(jobs) == ["a", "b"]


def test_a_manifest_without_a_valid_row_is_always_refused(tmp_path, objects):
    manifest(3).with_columns(prompt=pl.lit(" ")).write_parquet(tmp_path / "m.parquet")

    with (
        pytest.raises(ManifestError, match=r"prompt is empty\. 3 rows"),
        open_jobs(str(tmp_path / "m.parquet"), objects, keep_going=True),
    ):
        pass


VIDEOS = pl.DataFrame({"job_id": ["a", "b"], "video_uri": ["a.mp4", "b.mp4"]})


def test_a_manifest_to_be_described_needs_only_ids_and_videos(objects, tmp_path):
    path = tmp_path / "videos.parquet"
    VIDEOS.with_columns(start_s=pl.Series([1.5, None])).write_parquet(path)

    with open_jobs(str(path), objects, questions=False) as jobs:
        [part] = jobs.parts()
        assert part.sort("job_id").select("job_id", "video_uri", "start_s", "prompt", "choices").rows() == [
            ("a", "a.mp4", 1.5, "", []),
            ("b", "b.mp4", None, "", []),
        ]
        expected = [job.digest for job in rows_to_jobs(part)]
        assert part["job_digest"].to_list() == expected
    with pytest.raises(ManifestError, match="Column prompt is missing"), open_jobs(str(path), objects):
        pass


def test_questions_do_not_change_what_a_video_is_described_by(objects, tmp_path):
    asked = manifest(3).with_columns(
        prompt=pl.Series(["?", "What?", None]), answer=pl.lit("maybe"), template=pl.lit("{")
    )
    asked.write_parquet(tmp_path / "asked.parquet")
    asked.select("job_id", "video_uri").write_parquet(tmp_path / "plain.parquet")

    found = []
    for name in ("asked", "plain"):
        with open_jobs(str(tmp_path / f"{name}.parquet"), objects, questions=False) as jobs:
            found.append(pl.concat(jobs.parts()).sort("job_id"))
        with open_manifest(str(tmp_path / f"{name}.parquet"), objects) as files:
            [unchecked] = read_unchecked_batches(files, questions=False)
            assert unchecked["job_digest"].to_list() == found[-1]["job_digest"].to_list()

    assert found[0].equals(found[1])


def test_videos_of_messages_are_described(objects, tmp_path):
    content = [{"type": "video_url", "video_url": {"url": "s3://b/a.mp4"}}, {"type": "text", "text": "?"}]
    rows = {"job_id": ["a"], "messages": [json.dumps([{"role": "user", "content": content}])]}
    pl.DataFrame(rows).write_parquet(tmp_path / "asked.parquet")

    with open_jobs(str(tmp_path / "asked.parquet"), objects, questions=False) as jobs:
        [part] = jobs.parts()

    assert part.select("video_uri", "prompt", "messages").rows() == [("s3://b/a.mp4", "", None)]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ({"video_uri": ["a.mp4", " "]}, "video_uri is empty"),
        ({"job_id": ["a", None]}, "job_id is null"),
        ({"job_id": ["a", "a"]}, "job_id is not unique"),
        ({"video_uri": ["a.mp4", "ftp://b/c.mp4"]}, "its scheme is not one of"),
        ({"start_s": [3.0, 1.0], "end_s": [2.0, 2.0]}, "end_s is not after start_s"),
    ],
)
def test_a_manifest_to_be_described_is_checked_all_the_same(objects, tmp_path, rows, sentence):
    columns = [pl.Series(name, values) for name, values in rows.items()]
    VIDEOS.with_columns(*columns).write_parquet(tmp_path / "videos.parquet")

    with (
        pytest.raises(ManifestError, match=sentence),
        open_jobs(str(tmp_path / "videos.parquet"), objects, questions=False),
    ):
        pass
