"""Pages and their parts, without a database."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

from tasks.domain.job import Job
from tasks.report.frames import Frame, Strip
from tasks.report.jobs import JobCard
from tasks.report.run import run_overview
from tasks.report.timeline import Timeline

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
        "videos_rewritten": 0,
        "shards_done": 1,
        "stage_ms": {},
        "wall_ms": {"engine start": 4000.0, "answer": 1500.0, "decode": 500.0},
        "engines": 1,
        "gpus": 0,
        "prompt_tokens": 300,
        "cached_tokens": 100,
        "coverage": {},
        "jobs_rejected": 0,
        "native_sampler": "",
        "bottleneck": "The engine was busy 75% of the time.",
        "cost": 1.5,
        "versions": {"av": "18.1"},
        "host": "here",
    }
    return row | changed


def strip(count=2, image=PIXEL, **changed):
    return Strip(
        **{
            "frames": tuple(Frame(time_s=2.0 * at, is_keyframe=True, image=image) for at in range(count)),
            "picks": tuple(sorted([*range(count)] * 8)),
            "keyframe_times_s": tuple(2.0 * at for at in range(count)),
            "keyframes_in_file": count,
            "duration_s": 2.0 * count,
            "fps": 16.0,
            "total_frames": 32 * count,
            "width_px": 64,
            "height_px": 48,
            "sampler": "keyframes",
            "frames_decoded": count,
            "note": "",
        }
        | changed
    )


def job_card(name="clip-7", **changed):
    times = ("fetch_ms", "decode_ms", "embed_ms", "cache_write_ms", "cache_read_ms", "preprocess_ms", "inference_ms")
    row = {
        **dict.fromkeys(times, 0.0),
        "job_id": name,
        "label": "red",
        "answer": "red",
        "margin": 0.8,
        "prompt_tokens": 90,
        "cached_tokens": 64,
        "shard_index": 0,
    }
    card = JobCard(
        row=row,
        job=Job(
            job_id=name,
            video_uri="s3://videos/clip-7.mp4",
            prompt="Which colour?",
            choices=("red", "blue"),
            answer="red",
        ),
        selected_because=["sample"],
        before=None,
        choices=[("red", 0.9), ("blue", 0.1)],
        question="Which colour?\nA. red\nB. blue",
        system_prompt=None,
        strip=None,
        no_strip="No frames were extracted.",
        media=[],
        chunks=[],
    )
    return replace(card, **changed)


def with_strip(job, shown):
    return replace(job, strip=shown, no_strip="")


def bins(right, wrong):
    return [
        {"low": at / 20, "high": (at + 1) / 20, "right": int(at == right), "wrong": int(at == wrong), "unknown": 0}
        for at in range(20)
    ]


def report(jobs=None, **changed):
    run = run_row()
    failures = {"code": "video_missing", "stage": "fetch", "jobs": 1, "examples": [("gone", "There is no video.")]}
    return {
        "overview": run_overview(run, model="reelabel-tiny"),
        "labels": 2,
        "words": {"answers": 0, "cut": 0, "tokens": 0},
        "failures": 1,
        "sampling": {"sampler": "keyframes", "num_frames": 16},
        "native_sampler": "qwen2_vl",
        "label_counts": [{"label": "red", "jobs": 1}, {"label": "blue", "jobs": 1}],
        "margins": bins(16, 3),
        "choice_masses": bins(19, 0),
        "reliability": [
            {"confidence": 0.6, "accuracy": 0.0, "jobs": 1},
            {"confidence": 0.9, "accuracy": 1.0, "jobs": 1},
        ],
        "calibration_error": 0.35,
        "tasks": [{"task": "colour", "known": 2, "right": 1}],
        "known": 2,
        "accuracy": 0.5,
        "routing": None,
        "failure_groups": [failures],
        "caveats": ["1 of 2 jobs saw one keyframe."],
        "slowest": [SLOW],
        "timeline": Timeline(
            drawn=[{"shard": 0, "extract_s": [1, 3], "infer_s": [2, 6]}], shards=1, extract_s=2, infer_s=4, both_s=1
        ),
        "runs": [run | {"ended": 3, "failed": 1, "jobs_per_s": 2.0}],
        "names": {RUN_ID: str(RUN_ID)[:8]},
        "changes": None,
        "other_ways": 0,
        "trade": None,
        "jobs": [with_strip(job_card(), strip())] if jobs is None else jobs,
        "note": "",
        "made_at": STARTED,
        **changed,
    }


SLOW = {
    "job_id": "clip-7",
    "spent_ms": 7,
    "fetch_ms": 1,
    "decode_ms": 1,
    "embed_ms": 0,
    "cache_ms": 2,
    "preprocess_ms": 1,
    "inference_ms": 2,
}
