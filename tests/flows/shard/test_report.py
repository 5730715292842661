"""What a shard reports: counts, times, failures, and metrics."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from flows.shard import report
from flows.shard.context import ShardOutcome
from flows.shard.report import ShardReport, make_shard_report, record_results, record_videos
from reelabel.errors import VideoUnreadableError
from reelabel.sampling.options import Sampling
from tasks.domain import Shard, View
from tasks.frame_cache.extractor import ExtractedVideo
from tasks.plans.extracted import ExtractedShard
from tasks.results.write import ShardResults
from tests.factories import ANSWER
from tests.results.rows import PROVENANCE, failure, job, result

AUTO = Sampling(sampler="auto", num_frames=4, motion_tasks=("order",), still_tasks=("colour",))


@pytest.fixture
def measured(monkeypatch):
    """Return a function that returns the points of an instrument by one of their attributes: a count, or a sum."""
    reader = InMemoryMetricReader()
    meter = MeterProvider(metric_readers=[reader]).get_meter("reelabel")
    for name in ("jobs", "failures", "videos", "bytes", "tokens"):
        monkeypatch.setattr(report, f"_{name}", meter.create_counter(name))
    monkeypatch.setattr(report, "_steps", meter.create_histogram("steps"))

    def measured(name, by):
        [of_scope] = reader.get_metrics_data().resource_metrics[0].scope_metrics
        [points] = [metric.data.data_points for metric in of_scope.metrics if metric.name == name]
        return {point.attributes[by]: getattr(point, "value", None) or getattr(point, "sum", 0) for point in points}

    return measured


def video(*, key="k", was_cached=False, rewritten="", **provenance):
    return ExtractedVideo(
        identity=SimpleNamespace(key=key, source_uri="a.mp4"),
        was_cached=was_cached,
        frame_bytes=100,
        lookup_ms=5.0,
        provenance=replace(PROVENANCE, **{"bytes_fetched": 10} | provenance),
        rewritten=rewritten,
    )


def test_videos_are_counted_by_the_source_of_their_frames_and_their_steps_in_seconds(measured):
    cached = video(was_cached=True, embed_ms=7.0, fetch_ms=9e9, decode_ms=9e9, cache_write_ms=9e9)

    record_videos([video(), video(rewritten="altered"), cached, VideoUnreadableError("No video.")])

    assert measured("videos", "source") == {"video": 1, "rewritten": 1, "cache": 1, "failed": 1}
    assert measured("bytes", "kind") == {"video": 30, "pixels": 300}
    steps = {"lookup": 0.015, "fetch": 0.002, "decode": 0.004, "cache write": 0.006, "embed": 0.007}
    assert measured("steps", "step") == pytest.approx(steps)


def test_jobs_are_counted_by_outcome_and_failures_by_code_and_step(measured):
    answer = replace(ANSWER, prompt_tokens=90, cached_tokens=64, preprocess_ms=3.0, inference_ms=4.0)
    failures = [failure(job("a")), replace(failure(job("b"), code="prompt_too_long"), stage="inference")]

    record_results(
        [result(job("c"))] * 3, failures, answers=[answer] * 2, dataset="d", read_ms=[1.0, 2.0], write_ms=5.0
    )

    assert measured("jobs", "outcome") == {"labelled": 3, "failed": 2}
    assert measured("jobs", "dataset").keys() == {"d"}
    assert measured("failures", "code") == {"no_frames": 1, "prompt_too_long": 1}
    assert measured("failures", "stage") == {"extract": 1, "infer": 1}
    assert measured("tokens", "kind") == {"computed": 52, "cached": 128}
    steps = {"preprocess": 0.006, "inference": 0.008, "cache read": 0.003, "database": 0.005}
    assert measured("steps", "step") == pytest.approx(steps)


def reported(sampling=AUTO, **outcome):
    found = ShardOutcome(**{"index": 3, "began_s": 30.0} | outcome)
    extracted = ExtractedShard(shard=Shard(index=3, jobs=()), outcomes={}, spent_ms={}, between_s=(10.0, 20.0))
    ended = ShardResults(results=found.results, failures=[failure(job("f"))])
    return make_shard_report(extracted, found, ended, sampling)


def test_a_shard_reports_its_counts_and_what_its_steps_took():
    videos = [video(key="a"), video(key="a", was_cached=True), video(key="b", was_cached=True, rewritten="altered")]
    answered = [result(job("x")), result(job("y"))]

    report = reported(videos=videos, results=answered, read_ms={View("a.mp4"): 1.5, View("b.mp4"): 2.0})

    assert report.tally == {
        "shards_done": 1,
        "jobs_labelled": 2,
        "jobs_failed": 1,
        "videos_extracted": 1,  # by frame file, whatever passes share it
        "videos_cached": 1,
        "videos_rewritten": 1,
        "prompt_tokens": 180,
        "cached_tokens": 128,
        "stage_ms.fetch": 3,
        "stage_ms.decode": 6,
        "stage_ms.cache write": 9,
        "stage_ms.cache read": 3.5,
        "stage_ms.preprocess": 2,
        "stage_ms.inference": 4,
        "coverage.videos": 2,
    }
    assert report.between_s["extract"] == (10.0, 20.0)
    assert report.between_s["infer"][0] == 30.0
    assert reported(videos=[video(embed_ms=2.0)]).tally["stage_ms.embed"] == 2


def test_coverage_counts_videos_shown_by_keyframes_unless_their_task_chose_them():
    shown = {
        "a": {"coverage": "one_keyframe,long_gap"},
        "b": {"coverage": ""},
        "c": {"coverage": "one_keyframe", "sampler": "uniform"},
        "d": {"coverage": "one_keyframe", "task": "colour"},
    }
    answered = [
        result(job(name, task=facts.get("task")), **{key: value for key, value in facts.items() if key != "task"})
        for name, facts in shown.items()
    ]

    counted = {name: count for name, count in reported(results=answered).tally.items() if name.startswith("coverage")}

    assert counted == {
        "coverage.videos": 2,
        "coverage.not_covered": 1,
        "coverage.one_keyframe": 1,
        "coverage.long_gap": 1,
    }


def test_a_report_is_one_line():
    tally = {"jobs_labelled": 2, "jobs_failed": 1, "videos_extracted": 3, "videos_cached": 4}
    tally |= {"stage_ms.fetch": 1500.0, "stage_ms.cache read": 40.0}

    assert str(ShardReport(index=3, tally=tally, between_s={})) == (
        "Shard 3: 2 labels, 1 failures; 3 videos extracted, 4 from the cache; seconds: fetch 1.50, cache read 0.04."
    )
