"""What a run would do: the jobs that it selects, what it says of them, and what it refuses."""

import re
from dataclasses import replace
from uuid import uuid4

import polars as pl
import pytest
from sqlalchemy import update

from flows.run.forecast import forecast
from flows.run.questions import prepare_questions
from flows.run.request import BackfillRequest, ClassifyRequest, QuestionOptions
from flows.run.selection import split_ids
from flows.run.spec import resolve_spec
from flows.runs import forecast_backfill
from infra.settings import SamplingOptions
from reelabel.errors import ConfigurationError
from reelabel.sources.object_store import ObjectStore
from tasks.database.tables import RUN
from tasks.frame_cache.pool import current_fingerprints, video_store
from tasks.manifest.table import read_jobs
from tasks.model.identity import TINY_MODEL
from tasks.results.runs import mark_reference, open_run
from tasks.results.write import RunKey, ShardResults, write_shards
from tests.clips import make_clip
from tests.results.rows import FACTS, failure, result

__all__ = ["make_clip"]

FEWER = {"overrides": {"sampling": {"num_frames": 4}}}


@pytest.fixture
def settings(services, database, store_settings, tmp_path):
    model = services.model.model_copy(update={"name": str(TINY_MODEL)})
    run = services.run.model_copy(update={"executor": "remote"})
    parts = {"database": database, "store": store_settings, "model": model, "run": run, "home": tmp_path / "home"}
    return services.model_copy(update=parts)


@pytest.fixture
def manifest(make_clip, tmp_path):
    """Four jobs on three videos."""
    clips = [str(make_clip(name=f"{name}.mp4", frames=24)) for name in "abc"]
    rows = {"job_id": [*"abcd"], "video_uri": [*clips, clips[2]]}
    questions = {"prompt": ["?"] * 4, "choices": [["yes", "no"]] * 4, "task": [*"ttuu"]}
    pl.DataFrame(rows | questions).write_parquet(tmp_path / "jobs.parquet")
    return str(tmp_path / "jobs.parquet")


@pytest.fixture
def answered(db, settings, manifest):
    """Return a function that records a run which has labelled the first job and failed on the second one."""
    jobs = read_jobs(manifest, ObjectStore(settings.store))
    versions = current_fingerprints(video_store(settings), [job.video_uri for job in jobs])

    def answered(labels="a", failures="b", **options):
        _, spec = resolve_spec(QuestionOptions(sampling=SamplingOptions(**options)), settings)
        run = RunKey(run_id=uuid4(), dataset="jobs", spec_id=spec.spec_id, host="h")
        facts = FACTS | {"dataset": "jobs", "manifest_uri": manifest, "host": "h"}
        open_run(db, run_id=run.run_id, spec=spec, facts=facts)
        labelled = [
            result(job, fingerprint=version)
            for job, version in zip(jobs, versions, strict=True)
            if job.job_id in labels
        ]
        failed = [
            replace(failure(job), source_fingerprint=version)
            for job, version in zip(jobs, versions, strict=True)
            if job.job_id in failures
        ]
        write_shards(db, run=run, shards=[ShardResults(results=labelled, failures=failed)])
        return run

    return answered


@pytest.fixture
def forecast_of_run(settings, manifest):
    """Return what a run of the manifest would do elsewhere."""

    def forecast_of_run(host=None, **options):
        request = ClassifyRequest(**{"manifest": manifest} | options)
        return forecast(request, settings, prepare_questions, host=host)

    return forecast_of_run


@pytest.fixture
def forecast_of_backfill(settings, manifest):
    """Return what a backfill of the manifest would do elsewhere."""

    def forecast_of_backfill(**options):
        return forecast_backfill(BackfillRequest(manifest=manifest, **options), settings, is_here=False)

    return forecast_of_backfill


def test_a_first_run_answers_all_jobs(forecast_of_run):
    found = forecast_of_run()

    assert found.lines == ["Would answer 4 jobs on 3 videos of jobs."]
    assert (found.jobs, found.videos, found.warnings, found.ends_well) == (4, [], (), True)


def test_a_run_skips_what_has_ended_and_ends_badly_for_what_has_failed(forecast_of_run, answered):
    answered()

    found = forecast_of_run()

    assert found.lines == [
        "Would answer 2 jobs on 1 video of jobs.",
        "Skipping 2 jobs already finished; turn on force to include those with a label.",
        "1 of these failed, so that the run ends with exit code 1.",
    ]
    assert (found.jobs, found.ends_well) == (2, False)
    assert forecast_of_run(force=True).jobs == 4
    assert forecast_of_run(overrides={"sampling": {"num_frames": 4}}).jobs == 4  # another spec


def test_the_videos_are_looked_at_only_where_the_run_will_be(forecast_of_run, manifest):
    local = forecast_of_run(host="h")

    assert local.videos
    assert local.ends_well
    pl.read_parquet(manifest).with_columns(video_uri=pl.lit("/gone.mp4")).write_parquet(manifest)
    gone = forecast_of_run(host="h", dataset="other")
    assert "Cannot be used, according to their indexes: 1 video_missing." in " ".join(gone.videos)
    assert not gone.ends_well
    assert forecast_of_run(dataset="other").ends_well


def test_the_pace_is_that_of_past_runs_on_the_same_machine(forecast_of_run, answered, db):
    run = answered()
    with db.begin() as connection:
        ended = {"jobs_labelled": 8, "jobs_per_s": 2.0, "cost": 4.0, "wall_ms": {"engine start": 3000}}
        connection.execute(update(RUN).where(RUN.c.run_id == run.run_id).values(ended))

    assert (
        forecast_of_run().lines[-1]
        == "Answering: about 4.0 s, at a cost of about 1.00, by 8 jobs of past runs with this spec on any host."
    )
    assert forecast_of_run(host="h").lines[-1].endswith("by 8 jobs of past runs with this spec on h.")
    assert not any("Answering" in line for line in forecast_of_run(host="another").lines)


def test_rows_that_are_left_out_are_counted(forecast_of_run, manifest):
    jobs = pl.read_parquet(manifest)
    jobs.with_columns(video_uri=pl.when(job_id="b").then(pl.lit("")).otherwise("video_uri")).write_parquet(manifest)

    found = forecast_of_run(keep_going=True)

    assert found.lines[-1] == "Leaving out 1 invalid row, so that the run ends with exit code 1."
    assert (found.jobs, found.ends_well) == (3, False)


def test_jobs_without_choices_are_counted_in_a_warning(forecast_of_run, manifest):
    jobs = pl.read_parquet(manifest)
    jobs.with_columns(choices=pl.when(pl.col("job_id") != "b").then("choices")).write_parquet(manifest)

    assert forecast_of_run().warnings == ("1 of 4 jobs have no choices, and are answered in words",)


def test_chunks_are_named_with_their_rule(forecast_of_run):
    chunks = {"chunk_s": 1, "chunk_rule": "any:yes"}

    assert forecast_of_run(overrides={"chunks": chunks}).lines[1] == (
        "Each job is asked about in chunks of 1 s, by the rule any:yes."
    )


@pytest.mark.parametrize(
    ("options", "jobs", "lines"),
    [
        ({"selection": {"failed": True}}, 1, ["Selected: 1 no_frames."]),
        ({"selection": {"missing": True}}, 2, ["Selected: 2 missing."]),
        (
            {"selection": {"missing": True, "limit": 1}},
            1,
            ["Selected: 2 missing.", "Leaving out 1 job beyond the limit."],
        ),
        ({"selection": {"failed": True, "missing": True, "task": "u"}}, 2, ["Selected: 2 missing."]),
        (
            {"ids": ["a"]},
            0,
            [
                "Selected: 1 labelled.",
                "Skipping 1 job already finished; turn on force to include those with a label.",
            ],
        ),
        ({"ids": ["a"], "force": True}, 1, ["Selected: 1 labelled."]),
        ({"ids": ["b"], "selection": {"label": "no"}, "force": True}, 2, ["Selected: 1 labelled, 1 no_frames."]),
        ({"ids": ["b"], **FEWER}, 1, ["Selected: 1 no_frames."]),
        (
            {"ids": ["b", "z", "y"], "selection": {"skip_unknown": True}},
            1,
            ["Selected: 1 no_frames.", "2 job ids are not in the manifest: y, z; ignored."],
        ),
    ],
)
def test_a_backfill_answers_what_was_selected(forecast_of_backfill, answered, options, jobs, lines):
    run = answered()

    found = forecast_of_backfill(**options)

    which = "Selects from" if options.get("overrides") else "Selects from and writes to"
    assert found.jobs == jobs
    assert found.lines[0].startswith(f"Would answer {jobs} job")
    assert re.match(rf"{which} spec {run.spec_id[:8]} \(reelabel-tiny, .*\), of run {run.run_id}[.;]", found.lines[1])
    assert ("; writes to spec " in found.lines[1]) == ("overrides" in options)
    assert found.lines[2:] == lines
    assert found.ends_well


def test_a_backfill_selects_jobs_whose_video_has_changed(forecast_of_backfill, answered, make_clip):
    answered(labels="ac")
    make_clip(name="a.mp4", frames=36)

    assert forecast_of_backfill(selection={"changed_video": True}).lines[2:] == ["Selected: 1 labelled."]


def test_a_backfill_selects_from_the_last_run_the_reference_or_the_one_that_is_named(
    forecast_of_backfill, answered, db
):
    first, last = answered(failures="bc"), answered(num_frames=4)

    by_last = forecast_of_backfill(selection={"failed": True})
    mark_reference(db, first.run_id, is_reference=True)
    by_reference = forecast_of_backfill(selection={"failed": True})
    by_name = forecast_of_backfill(selection={"failed": True, "run": str(last.run_id)[:8]})

    assert (by_last.jobs, by_reference.jobs, by_name.jobs) == (1, 2, 1)
    assert f"of run {first.run_id}, the reference." in by_reference.lines[1]
    assert f"of run {last.run_id}." in by_name.lines[1]


def test_a_backfill_that_finds_nothing_names_the_other_specs_that_have_it(forecast_of_backfill, answered):
    other = answered(failures="bc", num_frames=4)
    answered(failures="")

    found = forecast_of_backfill(selection={"failed": True, "missing": True, "task": "t"})
    nothing = forecast_of_backfill(selection={"code": "no_frames"})

    assert found.jobs == 1  # the missing one
    assert nothing.jobs == 0
    expected = rf"Spec {other.spec_id[:8]} \(.*4 frames\) has 2 of these: `.* --code no_frames --run {other.run_id}`\."
    assert re.fullmatch(expected, nothing.lines[-1])
    assert not any("of these" in line for line in forecast_of_backfill(selection={"code": "video_empty"}).lines)
    # The command would select others as well.
    assert not any(
        "of these" in line for line in forecast_of_backfill(ids=["b"], selection={"since": "2000-01-01"}).lines
    )


def test_a_backfill_without_an_earlier_run_says_so(forecast_of_backfill):
    found = forecast_of_backfill(ids=["a", "b"])

    assert found.lines[:1] == ["Would answer 2 jobs on 2 videos of jobs."]
    assert re.fullmatch(r"Selects from and writes to spec .*; the manifest has no earlier run\.", found.lines[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "No jobs selected; name job ids, or select by failed"),
        ({"selection": {"skip_unknown": True, "limit": 1}}, "No jobs selected"),
        (
            {"selection": {"since": "2026-02-01", "until": "2026-01-01"}},
            "since, 2026-02-01 00:00, is not before until, 2026-01-01 00:00",
        ),
        ({"ids": ["z"]}, "1 job id is not in the manifest: z; correct them, or turn on skip unknown"),
        ({"selection": {"label": "red"}}, "No job of jobs has the label 'red'; the labels are: no (1)."),
        ({"selection": {"where": "margn > 0"}}, 'column "margn" does not exist'),
        ({"selection": {"run": "last"}, "dataset": "other"}, "belongs to dataset jobs, not other; name only one"),
        ({"ids_file": "/gone.txt"}, "Cannot read the job ids: "),
    ],
)
def test_a_backfill_that_cannot_be_is_refused(forecast_of_backfill, answered, options, message):
    answered()

    with pytest.raises(ConfigurationError, match=re.escape(message)):
        forecast_of_backfill(**options)


def test_a_list_of_many_unknown_ids_is_a_file(forecast_of_backfill, settings):
    few, many = [*"12345"], [*"123456"]

    with pytest.raises(ConfigurationError, match=r"^5 job ids are not in the manifest: 1, 2, 3, 4, 5; correct"):
        forecast_of_backfill(ids=few)
    listed = settings.home / "unknown-ids.txt"
    assert not listed.exists()
    with pytest.raises(ConfigurationError, match=r"^6 job ids .*, such as 1, 2, 3, 4, 5 \(full list: /.*\); correct"):
        forecast_of_backfill(ids=many)
    assert listed.read_text().split() == many


def test_ids_are_read_from_a_file_as_spreadsheets_write_it(forecast_of_backfill, tmp_path):
    (tmp_path / "ids.txt").write_bytes(b"\xef\xbb\xbfa\r\n  b \r\n\r\na\n")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe")

    assert forecast_of_backfill(ids_file=str(tmp_path / "ids.txt")).jobs == 2
    with pytest.raises(ConfigurationError, match=r"bad\.txt is not UTF-8 text"):
        forecast_of_backfill(ids_file=str(tmp_path / "bad.txt"))


def test_only_a_newline_ends_an_id():
    assert split_ids(" b\u2028c\t\r\n\na\nb\u2028c") == ["b\u2028c", "a"]


def test_a_manifest_whose_default_dataset_holds_other_jobs_needs_a_name(forecast_of_run, answered, manifest):
    answered()
    jobs = pl.read_parquet(manifest)
    jobs.with_columns(prompt=pl.lit("Another?")).write_parquet(manifest)
    assert forecast_of_run().jobs == 4  # the same manifest, which was edited

    moved = manifest.replace("jobs.parquet", "moved/jobs.parquet")
    pl.read_parquet(manifest).write_parquet(moved, mkdir=True)
    with pytest.raises(ConfigurationError, match="Dataset jobs holds labels of another manifest for 1 of these job"):
        forecast_of_run(manifest=moved)
    assert forecast_of_run(manifest=moved, dataset="jobs").jobs == 4
    assert forecast_of_run(manifest=moved, dataset="others").jobs == 4
