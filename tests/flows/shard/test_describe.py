"""A shard of descriptions: every job ends as one row, in the transaction that ends the shard."""

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from flows.shard import report, retry
from flows.shard.describe import DescriptionContext, describe_shard
from infra.errors import EngineLostError
from reelabel.errors import TransientError
from tasks.database.scope import Scope
from tasks.description.described import DescribedVideo
from tasks.domain import RunPhase, Shard
from tasks.results.read import count_outcomes, read_descriptions, read_failures
from tasks.results.runs import open_run
from tasks.results.write import RunKey, ShardWriter
from tests.description.test_describer import SPEC, describer_of, encoder, film, job
from tests.results.rows import FACTS

__all__ = ["describer_of", "encoder"]
SCOPE = Scope(dataset="d", spec_id=SPEC.spec_id)


@pytest.fixture
def context(db, describer_of, encoder):
    key = RunKey(run_id=uuid4(), dataset="d", spec_id=SPEC.spec_id, host="h")
    open_run(db, run_id=key.run_id, spec=SPEC, facts=FACTS | {"kind": "describe"})
    with ThreadPoolExecutor(3) as workers:
        yield DescriptionContext(
            describer=describer_of(), encoder=encoder, writer=ShardWriter(db, key), workers=workers, gpus=lambda: 2
        )


def shard_of(tmp_path, **films):
    """A shard of one job for each film; a job without scenes has no video."""
    for name, scenes in films.items():
        if scenes:
            film(tmp_path / f"{name}.mp4", *scenes)
    jobs = tuple(job(tmp_path / f"{name}.mp4", job_id=name) for name in films)
    return Shard(index=3, jobs=jobs)


def test_every_job_ends_as_a_description_or_a_failure(context, db, tmp_path):
    shard = shard_of(tmp_path, a=[("red", 3)], b=[("blue", 2)], gone=[], odd=[], white=[("white", 1)])
    (tmp_path / "odd.mp4").write_bytes(b"no video")

    report = describe_shard.fn(0, shard, None, context)

    names = ("jobs_labelled", "jobs_failed", "videos_extracted", "videos_cached")
    assert [report.tally[name] for name in names] == [2, 3, 2, 0]
    assert read_descriptions(db, SCOPE)["job_id"].to_list() == ["a", "b"]
    failures = read_failures(db, SCOPE)
    assert failures.select("job_id", "code", "stage").rows() == [
        ("gone", "video_missing", "fetch"),
        ("odd", "video_unreadable", "decode"),
        ("white", "inference_failed", "inference"),
    ]
    assert failures["source_fingerprint"].is_not_null().to_list() == [False, True, False]
    assert report.tally["stage_ms.database"] > 0
    assert context.profile.spent_ms[RunPhase.DATABASE] > 0


def test_a_shard_that_is_described_again_reuses_what_is_there(context, db, tmp_path, encoder):
    shard = shard_of(tmp_path, a=[("red", 3)], b=[("blue", 2)])
    describe_shard.fn(0, shard, None, context)
    embedded = encoder.images_embedded

    report = describe_shard.fn(0, shard, None, context)

    assert encoder.images_embedded == embedded
    assert (report.tally["videos_extracted"], report.tally["videos_cached"]) == (0, 2)
    assert read_descriptions(db, SCOPE)["frames_embedded"].to_list() == [0, 0]


def test_a_shard_whose_encoder_is_lost_writes_nothing_and_may_be_tried_again(
    context, db, tmp_path, encoder, monkeypatch
):
    monkeypatch.setattr(retry, "_log_and_wait", lambda *_: True)  # makes another attempt without a wait
    shard = shard_of(tmp_path, a=[("red", 3)])
    encoder.is_dead = True

    with pytest.raises(EngineLostError) as raised:
        describe_shard.fn(0, shard, None, context)

    assert isinstance(raised.value, TransientError)
    assert count_outcomes(db, SCOPE) == (0, 0)
    encoder.is_dead = False
    assert describe_shard.fn(0, shard, None, context).tally["jobs_labelled"] == 1


def test_a_video_whose_cached_file_was_altered_is_logged(context, tmp_path, caplog):
    shard = shard_of(tmp_path, a=[("red", 2)])
    describe_shard.fn(0, shard, None, context)
    key = context.describer.embedder.embed(shard.jobs[0]).identity.key
    (tmp_path / "cache" / key).write_bytes(b"altered")

    report = describe_shard.fn(0, shard, None, context)

    assert report.tally["videos_rewritten"] == 1
    assert "embedding file rewritten" in caplog.text
    assert DescribedVideo.__name__ not in caplog.text


def test_steps_that_a_description_did_not_take_are_no_measurements(context, tmp_path, monkeypatch):
    reader = InMemoryMetricReader()
    meter = MeterProvider(metric_readers=[reader]).get_meter("reelabel")
    monkeypatch.setattr(report, "_steps", meter.create_histogram("steps"))
    monkeypatch.setattr(report, "_videos", meter.create_counter("videos"))
    shard = shard_of(tmp_path, a=[("red", 3)], b=[("blue", 2)], gone=[])

    for _ in range(2):
        describe_shard.fn(0, shard, None, context)

    [of_scope] = reader.get_metrics_data().resource_metrics[0].scope_metrics
    points = {metric.name: metric.data.data_points for metric in of_scope.metrics}
    steps = {point.attributes["step"]: point for point in points["steps"]}
    videos = {point.attributes["source"]: point for point in points["videos"]}
    assert {step: point.count for step, point in steps.items()} == {
        **dict.fromkeys(("decode", "cache write", "embed"), 2),
        **dict.fromkeys(("scenes", "describe"), 4),
        "database": 2,
    }
    assert {source: point.value for source, point in videos.items()} == {
        "cache": 2,
        "video": 2,
        "rewritten": 0,
        "failed": 2,
    }
