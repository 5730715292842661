"""Reports and their parts, without a database."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

from tasks.report.counts import Bin, LabelCount, Reliability, TaskAccuracy
from tasks.report.earlier import RunFigures
from tasks.report.findings import FailureGroup, SlowJob
from tasks.report.glance import summarize
from tasks.report.jobs import ShownJob, ShownJobs
from tasks.report.report import Report
from tasks.report.strip import Frame, Strip
from tasks.report.timeline import ShardSpan, Timeline

RUN_ID = UUID("1a2b3c4d-0000-4000-8000-000000000000")
STARTED = datetime(2026, 11, 1, 12, tzinfo=UTC)
PIXEL = "data:image/webp;base64,UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA=="


def run_row(**changed):
    row = {
        "run_id": RUN_ID,
        "dataset": "clips",
        "spec_id": "5" * 16,
        "manifest_uri": "s3://videos/clips.parquet",
        "kind": "classify",
        "state": "done",
        "message": "Reconciled: 3 jobs = 2 labels + 1 failure.",
        "started_at": STARTED,
        "ended_at": STARTED.replace(minute=2),
        "jobs_total": 3,
        "jobs_skipped": 0,
        "jobs_labelled": 2,
        "jobs_failed": 1,
        "videos_extracted": 2,
        "videos_cached": 0,
        "videos_remade": 0,
        "shards_done": 1,
        "stage_ms": {},
        "wall_ms": {"engine start": 4000.0, "answer": 1500.0, "decode": 500.0},
        "engines": 1,
        "gpus": 0,
        "prompt_tokens": 300,
        "cached_tokens": 100,
        "bottleneck": "The engine was busy 75% of the time.",
        "versions": {"av": "18.1"},
        "host": "here",
    }
    return row | changed


def strip(frames=2, image=PIXEL, **changed):
    return Strip(
        **{
            "frames": tuple(
                Frame(time_s=2.0 * at, position=32 * at, is_keyframe=True, image=image) for at in range(frames)
            ),
            "picks": tuple(sorted([*range(frames)] * 8)),
            "keyframe_times_s": tuple(2.0 * at for at in range(frames)),
            "keyframes_in_file": frames,
            "duration_s": 2.0 * frames,
            "fps": 16.0,
            "total_frames": 32 * frames,
            "width_px": 64,
            "height_px": 48,
            "sampler": "keyframes",
            "frames_decoded": frames,
            "decode_ms": 3.5,
            "note": "",
        }
        | changed
    )


def shown_job(name="clip-7", **changed):
    times = dict.fromkeys(("fetch_ms", "decode_ms", "cache_write_ms", "cache_read_ms", "preprocess_ms"), 1.0)
    counts = {"prompt_tokens": 90, "cached_tokens": 64, "frames_used": 2, "shard_index": 0}
    job = ShownJob(
        job_id=name,
        reasons=("sample",),
        facts=times | counts | {"inference_ms": 2.0, "label": "red", "answer": "red", "margin": 0.8},
        choices=(("red", 0.9), ("blue", 0.1)),
        before=None,
        question="Which colour?\nA. red\nB. blue",
        system_prompt=None,
        video="s3://videos/clip-7.mp4",
        start_s=None,
        end_s=None,
        strip=0,
        no_strip="",
        others=(),
    )
    return replace(job, **changed)


def report(jobs=None, strips=None, **changed):
    row = run_row()
    span = ShardSpan(shard=0, jobs=3, failures=1, extract_from_s=1, extract_to_s=3, infer_from_s=2, infer_to_s=6)
    figures = RunFigures(
        run_id=RUN_ID,
        kind="classify",
        state="done",
        spec_id="5" * 16,
        started_at=STARTED,
        ended=3,
        failed=1,
        jobs_per_s=2.0,
    )
    made = Report(
        glance=summarize(row, model="reelabel-tiny"),
        labels=2,
        failures=1,
        sampling={"sampler": "keyframes", "num_frames": 16},
        native_sampler="qwen2_vl",
        label_counts=(LabelCount(label="red", jobs=1), LabelCount(label="blue", jobs=1)),
        margins=tuple(
            Bin(low=at / 20, high=(at + 1) / 20, right=int(at == 16), wrong=int(at == 3), unknown=0) for at in range(20)
        ),
        choice_masses=tuple(
            Bin(low=at / 20, high=(at + 1) / 20, right=int(at == 19), wrong=int(at == 0), unknown=0) for at in range(20)
        ),
        reliability=(
            Reliability(confidence=0.6, accuracy=0.0, jobs=1),
            Reliability(confidence=0.9, accuracy=1.0, jobs=1),
        ),
        tasks=(TaskAccuracy(task="colour", known=2, right=1),),
        routing=None,
        failure_groups=(
            FailureGroup(code="video_missing", stage="fetch", jobs=1, examples=(("gone", "There is no video."),)),
        ),
        caveats=("1 of 2 jobs saw one keyframe.",),
        slowest=(
            SlowJob(job_id="clip-7", spent_ms=7, fetch_ms=1, decode_ms=1, cache_ms=2, preprocess_ms=1, inference_ms=2),
        ),
        timeline=Timeline(drawn=(span,), shards=1, extract_s=2, infer_s=4, both_s=1),
        runs=(figures,),
        names={RUN_ID: str(RUN_ID)[:8]},
        changes=None,
        other_ways=0,
        trade=None,
        shown=ShownJobs(jobs=tuple(jobs or (shown_job(),)), strips=tuple(strips or (strip(),)), note=""),
        made_at=STARTED,
    )
    return replace(made, **changed)
