"""Jobs are read from manifests of any size: in parts, selected by id, and without the rows that are not valid."""

import json
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.errors import ManifestError
from reelabel.errors import ConfigurationError
from tasks.domain import Job, Medium
from tasks.manifest import parquet, table
from tasks.manifest.digests import job_digests, jobs_to_rows, rows_to_jobs
from tasks.manifest.parquet import open_manifest
from tasks.manifest.table import open_jobs, read_jobs, read_unchecked_batches
from tests.manifest.conftest import manifest_rows
from tests.results.rows import ids_of

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
SIGNED = "https://host/a.mp4?Expires=5&Key-Pair-Id=k"
MESSAGES = json.dumps([{"role": "user", "content": "?"}])


@pytest.fixture
def _small_batches(monkeypatch):
    """Batches and parts of few rows, so that few rows make many of them."""
    monkeypatch.setattr(parquet, "_BATCH_ROWS", 7)
    monkeypatch.setattr(parquet, "_IDS_AT_ONCE", 9)
    monkeypatch.setattr(table, "_ROWS_PER_PART", 10)


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
def test_jobs_are_read_completely_and_grouped_by_video(tmp_path, local_objects):
    frame = manifest_rows(100)
    frame[:60].write_parquet(tmp_path / "1.parquet", row_group_size=25)
    frame[60:].write_parquet(tmp_path / "2.parquet")

    with open_jobs(f"{tmp_path}/*.parquet", local_objects) as jobs:
        parts = list(jobs.parts())

    assert jobs.rows == 100
    assert len(parts) > 5
    assert pl.concat(parts).sort("row").select(frame.columns).equals(frame)
    assert sum(part["video_uri"].n_unique() for part in parts) == 34
    orders = [part["locality_hash"] for part in parts]
    assert all(one.max() < other.min() for one, other in pairwise(orders))
    assert [job.job_id for job in read_jobs(f"{tmp_path}/*.parquet", local_objects)] == frame["job_id"].to_list()


@pytest.mark.parametrize("name", ["bad-\udcff.parquet", "*.parquet"])
def test_a_manifest_whose_name_is_not_utf_8_is_refused_in_a_sentence(tmp_path, local_objects, name):
    manifest_rows(2).write_parquet(tmp_path / "m.parquet")
    (tmp_path / "m.parquet").rename(tmp_path / "bad-\udcff.parquet")

    with pytest.raises(ConfigurationError, match=r"bad-<U\+DCFF>\.parquet is not UTF-8; rename it"):
        read_jobs(f"{tmp_path}/{name}", local_objects)


@pytest.mark.parametrize("rows", [3, 12])
@pytest.mark.parametrize("only", [None, np.ones(10, np.bool_)])
def test_a_manifest_that_is_replaced_while_it_is_read_loses_no_row(tmp_path, local_objects, rows, only):
    path = tmp_path / "m.parquet"
    manifest_rows(10).write_parquet(path)
    with open_manifest(str(path), local_objects) as files:
        manifest_rows(rows).write_parquet(path)

        with pytest.raises(ManifestError, match="was replaced while it was being read; run again"):
            list(files.batches(only=only))


def test_videos_with_similar_names_are_read_together(tmp_path, local_objects, monkeypatch):
    monkeypatch.setattr(parquet, "_BATCH_ROWS", 200)
    monkeypatch.setattr(table, "_ROWS_PER_PART", 1500)
    clips = [f"s3://footage/day/clip-{number:05}.mp4" for number in range(3000)]
    manifest_rows(3000).with_columns(video_uri=pl.Series(clips).shuffle(seed=1)).write_parquet(tmp_path / "m.parquet")

    with open_jobs(str(tmp_path / "m.parquet"), local_objects) as jobs:
        parts = [sorted(part["video_uri"]) for part in jobs.parts() if len(part)]

    together = [clips[:1000], clips[1000:2000], clips[2000:]]
    assert sorted(clip for part in parts for clip in part) == clips
    assert all(any(set(each) <= set(part) for part in parts) for each in together)


@pytest.mark.usefixtures("_small_batches")
@pytest.mark.parametrize("jobs_per_video", [1, 4, 30, 300])
def test_the_size_of_a_part_does_not_depend_on_the_jobs_per_video(tmp_path, local_objects, jobs_per_video):
    clips = [f"s3://footage/clip-{number // jobs_per_video:03}.mp4" for number in range(300)]
    frame = manifest_rows(300).with_columns(video_uri=pl.Series(clips)).sample(fraction=1, shuffle=True, seed=1)
    frame.write_parquet(tmp_path / "m.parquet")

    with open_jobs(str(tmp_path / "m.parquet"), local_objects) as jobs:
        parts = [part for part in jobs.parts() if len(part)]
        assert jobs.count_videos() == 300 // jobs_per_video

    assert pl.concat(parts).sort("row").select(frame.columns).equals(frame)
    assert max(map(len, parts)) <= 30
    videos = [[*part["video_uri"].unique()] for part in parts]
    if jobs_per_video < 10:
        assert len({uri for part in videos for uri in part}) == sum(map(len, videos))


@pytest.mark.usefixtures("_small_batches")
def test_selected_jobs_of_a_manifest_are_read_up_to_a_limit(tmp_path, local_objects):
    manifest_rows(100).write_parquet(tmp_path / "m.parquet")
    named = pl.Series("job_id", ["j70", "j7", "nobody", "j33", "j33"])
    odd = np.arange(100) % 2 == 1

    with open_jobs(str(tmp_path / "m.parquet"), local_objects, only=named) as jobs:
        assert (jobs.rows, len(jobs), jobs.count_videos()) == (100, 3, 3)
        assert ids_of(jobs) == ["j7", "j33", "j70"]
        assert ids_of(jobs.chosen(odd)) == ["j7", "j33"]
        assert ids_of(jobs.chosen(odd).first(1)) == ["j7"]
        assert ids_of(jobs.first(None)) == ids_of(jobs)


@pytest.mark.usefixtures("_small_batches")
def test_jobs_are_selected_from_files_with_other_types_of_ids(tmp_path, local_objects):
    frame = manifest_rows(60).with_columns(job_id=pl.int_range(60).cast(pl.String))
    frame[:20].write_parquet(tmp_path / "1.parquet")
    frame[20:40].with_columns(pl.col("job_id").cast(pl.Int32)).write_parquet(tmp_path / "2.parquet")
    frame[40:].with_columns(pl.col("job_id").cast(pl.Categorical)).write_parquet(tmp_path / "3.parquet")

    with open_jobs(f"{tmp_path}/*.parquet", local_objects, only=pl.Series(["0", "19", "20", "39", "59", "60"])) as jobs:
        assert ids_of(jobs) == ["0", "19", "20", "39", "59"]
        [part] = [part for part in jobs.parts() if len(part)]

    assert part.sort("row").select(frame.columns).equals(frame[[0, 19, 20, 39, 59]])
    with open_jobs(f"{tmp_path}/*.parquet", local_objects, only=pl.Series(["60"])) as jobs:
        assert len(jobs) == 0


def test_no_job_is_selected_from_a_file_without_ids(tmp_path, local_objects):
    manifest_rows(3).write_parquet(tmp_path / "1.parquet")
    manifest_rows(3).drop("job_id").write_parquet(tmp_path / "2.parquet")

    with open_jobs(f"{tmp_path}/*.parquet", local_objects, only=pl.Series(["j1"])) as jobs:
        assert (jobs.rows, ids_of(jobs)) == (6, ["j1"])
    (tmp_path / "1.parquet").unlink()
    with (
        pytest.raises(ManifestError, match="Column job_id is missing"),
        open_jobs(f"{tmp_path}/*.parquet", local_objects, only=pl.Series(["j1"])),
    ):
        pass


@pytest.mark.usefixtures("_small_batches")
def test_faults_of_all_batches_are_numbered_by_rows_of_the_manifest(tmp_path, local_objects):
    frame = manifest_rows(40).with_columns(
        prompt=pl.Series([None if number % 10 == 9 else "?" for number in range(40)]),
        job_id=pl.Series([f"j{number % 38}" for number in range(40)]),
    )
    frame.write_parquet(tmp_path / "m.parquet")

    with pytest.raises(ManifestError) as raised, open_jobs(str(tmp_path / "m.parquet"), local_objects):
        pass

    assert raised.value.message.splitlines()[1:] == [
        "  - prompt is null. 4 rows, first row 9 (job_id 'j9'), row 19 (job_id 'j19'), row 29 (job_id 'j29').",
        "  - job_id is not unique. 4 rows, first row 0 (job_id 'j0'), row 1 (job_id 'j1'), row 38 (job_id 'j0').",
    ]


def test_of_many_faults_in_one_batch_the_first_rows_are_shown_and_all_counted(tmp_path, local_objects):
    frame = manifest_rows(9).with_columns(prompt=pl.when(pl.int_range(9) > 1).then(None).otherwise("prompt"))
    frame.write_parquet(tmp_path / "m.parquet")

    with pytest.raises(ManifestError) as raised, open_jobs(str(tmp_path / "m.parquet"), local_objects):
        pass

    assert raised.value.message.splitlines()[1:] == [
        "  - prompt is null. 7 rows, first row 2 (job_id 'j2'), row 3 (job_id 'j3'), row 4 (job_id 'j4')."
    ]


def test_a_damaged_file_is_named(tmp_path, local_objects):
    path = tmp_path / "m.parquet"
    manifest_rows(3).write_parquet(path)
    data = bytearray(path.read_bytes())
    data[4:60] = b"\xff" * 56
    path.write_bytes(data)

    with pytest.raises(ManifestError, match=r"m\.parquet is damaged"):
        read_jobs(str(path), local_objects)


def test_questions_of_an_invalid_manifest_can_still_be_compared(tmp_path, local_objects):
    frame = manifest_rows(3).with_columns(job_id=pl.lit("same"), messages=pl.Series([None, "no JSON", None]))
    frame.write_parquet(tmp_path / "m.parquet")

    with open_manifest(str(tmp_path / "m.parquet"), local_objects) as files:
        [batch] = read_unchecked_batches(files)

    assert batch["job_digest"].is_null().to_list() == [False, True, False]


@pytest.mark.usefixtures("_small_batches")
def test_valid_rows_are_kept_and_others_rejected_with_all_their_reasons(tmp_path, local_objects):
    frame = manifest_rows(40).with_columns(
        job_id=pl.when(pl.int_range(40) == 30).then(pl.lit("j2")).otherwise("job_id"),
        prompt=pl.when(pl.int_range(40).is_in([3, 33])).then(None).otherwise("prompt"),
        video_uri=pl.when(pl.int_range(40) == 33).then(pl.lit("ftp://x/y")).otherwise("video_uri"),
    )
    frame.write_parquet(tmp_path / "m.parquet")

    with (
        pytest.raises(ManifestError, match=r"prompt is null\. 2 rows"),
        open_jobs(str(tmp_path / "m.parquet"), local_objects),
    ):
        pass
    with open_jobs(str(tmp_path / "m.parquet"), local_objects, keep_going=True) as jobs:
        ids = ids_of(jobs)
        rejects = {row: (job_id, reason) for row, job_id, reason in jobs.rejects.rows()}
        assert (jobs.rows, jobs.jobs_in_manifest, len(jobs)) == (40, 37, 37)

    assert ids == [f"j{number}" for number in range(40) if number not in {3, 30, 33}]
    assert list(rejects) == [3, 30, 33]
    assert rejects[30] == ("j2", "job_id is that of an earlier row.")
    assert "prompt is null." in rejects[33][1]
    assert "its scheme is not one of" in rejects[33][1]


def test_a_repeated_id_of_an_invalid_row_does_not_reject_the_valid_one(tmp_path, local_objects):
    frame = manifest_rows(3).with_columns(job_id=pl.Series(["a", "a", "b"]), prompt=pl.Series([None, "?", "?"]))
    frame.write_parquet(tmp_path / "m.parquet")

    with open_jobs(str(tmp_path / "m.parquet"), local_objects, keep_going=True) as jobs:
        assert ids_of(jobs) == ["a", "b"]


def test_a_manifest_without_a_valid_row_is_always_refused(tmp_path, local_objects):
    manifest_rows(3).with_columns(prompt=pl.lit(" ")).write_parquet(tmp_path / "m.parquet")

    with (
        pytest.raises(ManifestError, match=r"prompt is empty\. 3 rows"),
        open_jobs(str(tmp_path / "m.parquet"), local_objects, keep_going=True),
    ):
        pass
