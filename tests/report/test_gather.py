"""What a page says about rows in a real Postgres and frames in a real cache."""

import json
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import numpy as np
import polars as pl
import pytest
from PIL import Image
from sqlalchemy import insert, update

from infra.settings import StoreSettings
from reelabel.errors import ConfigurationError
from reelabel.extract import extract_local
from reelabel.frames.cache import FrameCache
from reelabel.frames.cache_key import FrameIdentity
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.segment import WHOLE, Segment
from reelabel.sources.object_store import ObjectStore
from tasks.database.scope import Scope
from tasks.database.tables import PLAN, SHARD
from tasks.database.tables import SPEC as SPECS
from tasks.domain import DescribeSpec, ModelIdentity, RunSpec
from tasks.domain.job import join_fingerprints
from tasks.domain.outcome import OrderBias
from tasks.domain.passes import sampling_of_pass
from tasks.manifest.table import read_jobs
from tasks.report.jobs import select_jobs
from tasks.report.pages import page_of_run
from tasks.report.run import load_run, render_run
from tasks.report.timeline import slowest_jobs
from tasks.results.runs import close_run, find_run, open_run, read_spec, update_run
from tasks.results.write import RunKey, ShardWriter
from tests.clips import write_clip
from tests.frame_files import frame_file_of
from tests.results.rows import failure, job, result

SPEC = RunSpec(model=ModelIdentity(name="reelabel-tiny"))
SIZE = {"max_pixels": 602_112, "size_multiple_px": 28}
OTHER = SPEC.model_copy(update={"sampling": Sampling(num_frames=4, **SIZE)})
AUTO = SPEC.model_copy(update={"sampling": Sampling(sampler="auto", **SIZE)})


@pytest.fixture
def manifest(tmp_path):
    """A manifest of three jobs on one clip, whose answer to the first is known, and of one on no clip."""
    clip = write_clip(tmp_path / "clip.mp4", frames=48, gop=12, fps=12)
    rows = [
        {"job_id": name, "video_uri": str(clip), "prompt": "?", "choices": ["yes", "no"], "answer": answer}
        for name, answer in (("a", "no"), ("b", "yes"), ("c", None))
    ]
    gone = {"job_id": "gone", "video_uri": str(tmp_path / "gone.mp4"), "prompt": "?", "choices": ["yes", "no"]}
    pl.DataFrame([*rows, gone | {"answer": None}]).write_parquet(tmp_path / "jobs.parquet")
    return tmp_path / "jobs.parquet"


@pytest.fixture
def started(engine, manifest):
    """Start and end a run of the manifest under a spec; its rows are then as given."""

    def start(spec, results=(), failures=(), chunks=(), run_id=None):
        run = RunKey(run_id=run_id or uuid4(), dataset="d", spec_id=spec.spec_id, host="h")
        facts = {"dataset": "d", "manifest_uri": str(manifest), "kind": "classify", "host": "h", "versions": {}}
        open_run(engine, run_id=run.run_id, spec=spec, facts=facts | {"jobs_total": 4, "jobs_skipped": 0})
        ShardWriter(engine, run).write(results=results, failures=failures, chunks=chunks)
        close_run(engine, run.run_id, state="done", message="Reconciled.", jobs_labelled=len(results), wall_ms={})
        return run

    return start


def of(manifest, name, probabilities=(0.25, 0.75), **changed):
    """Answer a job of the manifest by its second choice, no."""
    [row] = pl.read_parquet(manifest).filter(pl.col("job_id") == name).to_dicts()
    answered = job(name, video_uri=row["video_uri"], answer=row["answer"])
    return replace(result(answered, probabilities), **changed)


def with_mass(of, choice_mass):
    return replace(of, answer=replace(of.answer, choice_mass=choice_mass))


def page_of(engine, tmp_path, run="last", **options):
    objects = ObjectStore(StoreSettings())
    cache = FrameCache(objects, f"file://{tmp_path}/cache")
    row = find_run(engine, run)
    return load_run(engine, objects, row, read_spec(engine, row["spec_id"]), cache=cache, **options)


def test_labels_margins_and_reliability_are_counted(engine, started, manifest, tmp_path):
    answers = [
        with_mass(of(manifest, "a", (0.1, 0.9)), 1.0),
        with_mass(of(manifest, "b"), 0.0499),
        of(manifest, "c", (0.5, 0.5)),
    ]
    started(SPEC, answers, [failure(job("gone"), code="video_missing", message="There is no video.")])

    report = page_of(engine, tmp_path)

    assert [tuple(each.values()) for each in report["label_counts"]] == [("no", 3)]
    counted = {each["low"]: (each["right"], each["wrong"], each["unknown"]) for each in report["margins"]}
    assert {low: counts for low, counts in counted.items() if any(counts)} == {
        0.0: (0, 0, 1),
        0.5: (0, 1, 0),
        0.8: (1, 0, 0),
    }
    masses = [(each["low"], each["right"], each["wrong"], each["unknown"]) for each in report["choice_masses"]]
    assert [counts for counts in masses if any(counts[1:])] == [(0, 0, 1, 0), (0.95, 1, 0, 0)]
    assert "1 label below 0.05" in render_run(report)
    reliability = [tuple(each.values()) for each in report["reliability"]]
    assert reliability == [(0.75, 0, 1), (pytest.approx(0.9), 1, 1)]  # probabilities are stored in four bytes
    assert report["calibration_error"] == pytest.approx((0.75 + 0.1) / 2)
    assert (report["accuracy"], report["known"], report["labels"], report["failures"]) == (0.5, 2, 3, 1)
    assert [(group["code"], group["examples"]) for group in report["failure_groups"]] == [
        ("video_missing", [("gone", "There is no video.")])
    ]


def test_cached_files_that_were_made_again_are_a_caveat_in_report_and_summary(engine, started, manifest, tmp_path):
    run = started(SPEC, [of(manifest, "a")])
    assert page_of(engine, tmp_path)["caveats"] == []

    update_run(engine, run.run_id, videos_rewritten=2)

    caveat = "the cached files of 2 videos did not match what was asked for, and were rewritten"
    assert page_of(engine, tmp_path)["caveats"] == [f"In this run, {caveat}."]


def test_jobs_worth_a_look_come_first(engine, started, manifest, tmp_path):
    started(SPEC, [of(manifest, name) for name in "abc"], [failure(job("gone"))])

    report = page_of(engine, tmp_path, job_ids=["c"])

    reasons = {job.job_id: job.selected_because for job in report["jobs"]}
    assert list(reasons) == ["c", "gone", "b", "a"]
    assert reasons == {
        "c": ["requested", "low margin", "slow"],
        "gone": ["failed"],
        "b": ["wrong", "low margin", "slow"],
        "a": ["low margin", "slow"],
    }


def test_of_many_jobs_the_worst_of_each_kind_are_selected(engine, started, monkeypatch):
    monkeypatch.setattr("tasks.report.jobs._EACH", 2)
    monkeypatch.setattr("tasks.report.jobs._PER_CODE", 1)
    monkeypatch.setattr("tasks.report.jobs.MAX_JOBS", 8)
    margins = {"sure": 0.9, "surer": 0.95, "unsure": 0.55, "unsurer": 0.52, "usual": 0.7, "common": 0.7}
    answers = [
        result(job(name, answer="yes" if "sure" in name else None), (1 - high, high), decode_ms=9 * (name == "usual"))
        for name, high in margins.items()
    ]
    failures = [failure(job(name), code=name[:1]) for name in ("x1", "x2", "y1")]
    run = started(SPEC, answers, failures)
    scope = Scope(dataset="d", spec_id=run.spec_id)

    with engine.connect() as connection:
        found = select_jobs(connection, scope, named=["common"], changed=["x2", "usual", "sure"])
        slow = slowest_jobs(connection, scope, find_run(engine, "last"))

    assert list(found.items())[:7] == [
        ("common", ["requested"]),
        ("x1", ["failed"]),
        ("y1", ["failed"]),
        ("x2", ["changed label"]),
        ("usual", ["changed label", "slow"]),
        ("surer", ["wrong"]),
        ("sure", ["wrong"]),
    ]
    assert list(found.items())[7:] == [("unsurer", ["low margin"])]
    assert [(each["job_id"], each["spent_ms"]) for each in slow[:2]] == [("usual", 20), ("common", 11)]
    assert slow[0]["cache_ms"] == 7


def test_labels_failures_and_tasks_are_counted_and_the_rare_combined(engine, started, tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.report.run._MAX_LABELS", 1)
    yes = result(job("y", answer="yes", task="colour"))
    yes = replace(yes, answer=replace(yes.answer, choice_index=0))
    answers = [yes, *(result(job(name, answer="no", task="colour")) for name in "ab"), result(job("c", answer="yes"))]
    codes = {"one": "a_code", **dict.fromkeys(("f1", "f2", "f3", "f4"), "z_code")}
    started(SPEC, answers, [failure(job(name), code=code, message=f"No {name}.") for name, code in codes.items()])

    report = page_of(engine, tmp_path)

    assert [tuple(each.values()) for each in report["label_counts"]] == [("no", 3), (None, 1)]
    assert [(group["code"], group["jobs"], group["examples"]) for group in report["failure_groups"]] == [
        ("z_code", 4, [(name, f"No {name}.") for name in ("f1", "f2", "f3")]),
        ("a_code", 1, [("one", "No one.")]),
    ]
    assert [tuple(each.values()) for each in report["tasks"]] == [("", 1, 0), ("colour", 3, 3)]
    assert [tuple(each.values()) for each in report["reliability"]] == [(0.25, 1, 1), (0.75, pytest.approx(2 / 3), 3)]
    assert report["calibration_error"] == pytest.approx((0.75 + 3 * (0.75 - 2 / 3)) / 4)
    assert (report["accuracy"], report["known"]) == (0.75, 4)


@pytest.mark.parametrize(
    ("changed", "caveat"),
    [
        ({"provenance": {"decode_note": "cut short at 3 s"}}, "Based on truncated videos: 1 label."),
        (
            {"answer": {"order": OrderBias(permutations=2, agreement=0.5, spread=0.5, same_position=True)}},
            (
                "In 1 of 1 job the model chose the same position in every order of the choices: there, position "
                "decided, not the choices."
            ),
        ),
    ],
)
def test_what_makes_labels_doubtful_is_a_caveat(engine, started, tmp_path, changed, caveat):
    of = result(job("a"))
    started(SPEC, [replace(of, **{name: replace(getattr(of, name), **values) for name, values in changed.items()})])

    assert page_of(engine, tmp_path)["caveats"] == [caveat]


def test_copied_answers_and_the_message_of_a_run_are_caveats(engine, started, tmp_path):
    of = result(job("a"))
    run = started(SPEC, [of, of.copied_to(job("b"))])
    update_run(engine, run.run_id, message="It was interrupted.")

    assert page_of(engine, tmp_path)["caveats"] == [
        "Copied from jobs on near-duplicates: 1 answer.",
        "It was interrupted.",
    ]


def test_copies_are_not_among_the_jobs_worth_a_look(engine, started, manifest, tmp_path):
    copy = of(manifest, "a").copied_to(of(manifest, "b").job)
    started(SPEC, [of(manifest, "a"), copy, of(manifest, "c")])

    report = page_of(engine, tmp_path)

    assert sorted(job.job_id for job in report["jobs"]) == ["a", "c"]
    assert [job.job_id for job in page_of(engine, tmp_path, job_ids=["b"])["jobs"]][:1] == ["b"]


def test_a_job_shows_its_question_and_the_frames_that_the_model_saw(engine, started, manifest, tmp_path):
    uri = pl.read_parquet(manifest)["video_uri"][0]
    frames = extract_local(Path(uri), sampling=SPEC.sampling, limits=Limits())
    source = {"source_uri": uri, "fingerprint": "e1", "sampling": SPEC.sampling}
    cache = FrameCache(ObjectStore(StoreSettings()), f"file://{tmp_path}/cache")
    cache.write(FrameIdentity(**source), frame_file_of(frames, **source))
    started(SPEC, [of(manifest, name) for name in "ab"])

    jobs = page_of(engine, tmp_path)["jobs"]

    strip = jobs[0].strip
    assert jobs[1].strip is strip
    assert [frame.time_s for frame in strip.frames] == [0, 1, 2, 3]
    assert strip.keyframe_times_s == (0, 1, 2, 3)
    assert strip.picks == (0,) * 4 + (1,) * 4 + (2,) * 4 + (3,) * 4
    assert all(frame.image.startswith("data:image/webp;base64,") for frame in strip.frames)
    assert jobs[0].question.startswith("?\nA. yes\nB. no\n")
    assert jobs[0].choices == [("yes", 0.25), ("no", 0.75)]


@pytest.mark.parametrize("start_s", [None, 1.0], ids=["whole videos", "a segment beside an image"])
def test_each_of_several_videos_and_images_has_its_frames_as_far_as_the_cache_has_them(
    engine, started, manifest, tmp_path, start_s
):
    clip, other, picture = tmp_path / "clip.mp4", write_clip(tmp_path / "other.mp4"), tmp_path / "picture.png"
    Image.fromarray(np.zeros((56, 56, 3), np.uint8)).save(picture)
    shown = (("video", clip), ("image", picture), ("video", other))[: 3 if start_s is None else 2]
    media = [{"type": f"{kind}_url", f"{kind}_url": {"url": str(path)}} for kind, path in shown]
    columns = {"job_id": ["m"], "choices": [["yes", "no"]], "start_s": pl.Series([start_s], dtype=pl.Float64)}
    content = [*media, {"type": "text", "text": "?"}]
    pl.DataFrame(columns | {"messages": [json.dumps([{"role": "user", "content": content}])]}).write_parquet(manifest)
    [of_manifest] = read_jobs(str(manifest), ObjectStore(StoreSettings()))
    cache = FrameCache(ObjectStore(StoreSettings()), f"file://{tmp_path}/cache")
    for path, fingerprint, pass_ in ((clip, "e1", "dense"), (picture, "e2", "image")):
        sampling = sampling_of_pass(AUTO.sampling, pass_)
        source = {"source_uri": str(path), "fingerprint": fingerprint, "sampling": sampling}
        segment = Segment(start_s) if pass_ == "dense" else WHOLE
        frames = extract_local(path, sampling=sampling, segment=segment)
        cache.write(FrameIdentity(**source, segment=segment), frame_file_of(frames, **source))
    started(AUTO, [replace(result(of_manifest, fingerprint=join_fingerprints(["e1", "e2", "e3"][: len(shown)])))])

    [job] = page_of(engine, tmp_path)["jobs"]

    assert [(each["kind"], each["uri"]) for each in job.media] == [(kind, str(path)) for kind, path in shown]
    missing = ["", "", "Its frames are no longer in the cache."]
    assert [each["no_strip"] for each in job.media] == missing[: len(shown)]
    assert [strip.sampler for strip in job.strips] == ["uniform", "keyframes"]


def test_a_run_whose_spec_this_version_cannot_read_has_a_page_without_questions(engine, started, manifest, tmp_path):
    started(SPEC, [of(manifest, "a")])
    objects = ObjectStore(StoreSettings())
    cache = FrameCache(objects, f"file://{tmp_path}/cache")
    readable = page_of_run(engine, objects, find_run(engine, "last"), cache=cache)
    with engine.begin() as connection:
        connection.execute(update(SPECS).values(body={"model": 3}))

    unreadable = page_of_run(engine, objects, find_run(engine, "last"), cache=cache)

    assert "A. yes\nB. no" in readable
    assert "reelabel-tiny" in readable
    assert '<pre tabindex="0" aria-label="Question">?</pre>' in unreadable
    assert "No frames were extracted." in unreadable


def test_a_job_whose_frames_are_gone_is_explained(engine, started, manifest, tmp_path):
    started(SPEC, [of(manifest, "a")])

    [shown] = page_of(engine, tmp_path)["jobs"]

    assert (shown.strip, shown.no_strip) == (None, "Its frames are no longer in the cache.")


def test_labels_are_compared_with_those_of_another_spec(engine, started, manifest, tmp_path):
    yes = replace(result(job("a")).answer, choice_index=0, probabilities=(0.9, 0.1))
    same, other_question = result(job("same")), replace(result(job("new", prompt="Another?")), answer=yes)
    started(OTHER, [*(of(manifest, name, answer=yes) for name in "abc"), same, other_question])
    started(SPEC, [of(manifest, "a"), of(manifest, "b", (0.1, 0.9)), of(manifest, "c"), same, result(job("new"))])

    changes = page_of(engine, tmp_path)["changes"]

    assert tuple(changes[name] for name in ("compared", "changed", "gained", "lost")) == (4, 3, 1, 1)
    assert [tuple(change.values()) for change in changes["label_changes"]] == [("yes", "no", 3)]
    assert changes["differences"] == [("sampling.num_frames", 4, 16)]
    assert changes["job_ids"] == [("b", "yes"), ("a", "yes"), ("c", "yes")]


def test_a_run_is_compared_with_the_latest_of_another_spec_however_long_ago(engine, started, tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.report.changes._MAX_RUNS", 2)
    earliest, other, *_, before, last = (started(spec).run_id for spec in (OTHER, AUTO, SPEC, SPEC, SPEC))
    started(OTHER)

    report = page_of(engine, tmp_path, run=str(last))

    assert [run["run_id"] for run in report["runs"]] == [last, before, other]
    assert report["changes"]["run"]["run_id"] == other
    assert earliest not in report["names"]


def test_a_run_is_not_compared_with_one_that_describes_the_videos(engine, started, manifest, tmp_path):
    before = started(OTHER, [of(manifest, "a")]).run_id
    started(DescribeSpec(model=SPEC.model, tags="t", captions="c", scene_threshold=10.0))
    last = started(SPEC, [of(manifest, "a")]).run_id

    report = page_of(engine, tmp_path)

    assert [run["run_id"] for run in report["runs"]] == [last, before]
    assert (report["changes"]["run"]["run_id"], report["changes"]["compared"]) == (before, 1)
    assert report["other_ways"] == 1


def test_runs_whose_ids_begin_alike_have_longer_names(engine, started, manifest, tmp_path):
    first, second = (UUID(f"019a7c00-1111-7000-8000-00000000000{number}") for number in (1, 2))
    started(SPEC, [of(manifest, "a")], run_id=first)
    started(OTHER, [of(manifest, "a")], run_id=second)

    page = render_run(page_of(engine, tmp_path))

    assert f"<code>{second}</code>" in page
    assert f"Labels that changed since run {first}" in page


def test_a_job_without_a_row_cannot_be_requested(engine, started, manifest, tmp_path):
    started(SPEC, [of(manifest, "a")])

    with pytest.raises(ConfigurationError, match="1 job without a label or failure in dataset d, such as nobody"):
        page_of(engine, tmp_path, job_ids=["nobody"])


def test_more_jobs_than_a_page_holds_cannot_be_requested(engine, started, manifest, tmp_path):
    started(SPEC, [of(manifest, "a")])

    with pytest.raises(ConfigurationError, match="A report shows at most 300 jobs, but 301 were named; name fewer"):
        page_of(engine, tmp_path, job_ids=[f"j{number}" for number in range(301)])


def test_the_overlap_of_extraction_and_inference_comes_from_the_shards(engine, started, manifest, tmp_path):
    run = started(SPEC, [of(manifest, "a")])
    began_s = find_run(engine, "last")["started_at"].timestamp()
    plan = {"plan_id": uuid4(), "run_id": run.run_id, "dataset": "d", "spec_id": SPEC.spec_id, "kind": "classify"}
    source = {"manifest_uri": str(manifest), "manifest_fingerprint": "1", "plan_uri": "p", "shared": False}
    spans_s = [
        {"extract": (0.2, 0.5), "infer": (0.6, 0.8)},
        {"extract": (0.0, 0.4), "infer": (0.3, 0.6)},
        {"extract": (-9.0, -8.0), "infer": (-8.0, -7.0)},  # of an earlier run
        {"extract": (0.0, 9.0), "infer": (9.0, 10.0)},  # of a later one
    ]
    with engine.begin() as connection:
        connection.execute(insert(PLAN).values(**plan, **source, shards=4, jobs=4, state="done"))
        for number, span_s in enumerate(spans_s):
            between_s = {stage: [began_s + at for at in span] for stage, span in span_s.items()}
            shard = {"shard_index": number, "jobs": 1, "state": "done", "message": "", "attempts": 0}
            report = {"between_s": between_s}
            connection.execute(insert(SHARD).values(plan_id=plan["plan_id"], **shard, report=report))

    timeline = page_of(engine, tmp_path)["timeline"]

    assert (timeline.shards, [span["shard"] for span in timeline.drawn]) == (2, [1, 0])
    assert (timeline.extract_s, timeline.infer_s) == (pytest.approx(0.5, abs=1e-3), pytest.approx(0.5, abs=1e-3))
    assert timeline.both_s == pytest.approx(0.2, abs=1e-3)


def test_a_manifest_is_reported_as_asked_in_one_way_only_if_it_always_was(engine, started, manifest, tmp_path):
    started(SPEC, [of(manifest, "a")])
    alone = page_of(engine, tmp_path)
    first = find_run(engine, "last")["run_id"]
    started(OTHER, [of(manifest, "a")])
    earlier = page_of(engine, tmp_path, run=str(first))

    assert (alone["changes"], alone["other_ways"]) == (None, 0)
    assert "No recorded run of this manifest used a different spec" in render_run(alone)
    assert (earlier["changes"], earlier["other_ways"]) == (None, 1)
    assert "No recorded run of this manifest" not in render_run(earlier)
    assert "runs of other datasets, used 1 other spec" in render_run(earlier)


def test_rejected_rows_are_reported(engine, started, manifest, tmp_path):
    run = started(SPEC, [of(manifest, "a")])
    update_run(engine, run.run_id, jobs_rejected=2)

    assert "Rejected, and not answered: 2 rows of the manifest." in page_of(engine, tmp_path)["caveats"]
