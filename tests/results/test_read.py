"""Rows are read by job, by label and by dataset, and as the results of a candidate."""

from dataclasses import replace
from uuid import uuid4

import polars as pl
import pytest

from reelabel.errors import ConfigurationError
from reelabel.sampling.options import Sampling
from tasks.domain import RunSpec, Words
from tasks.evaluation.compare import compare_candidates
from tasks.evaluation.scores import Cost
from tasks.manifest.digests import jobs_to_rows
from tasks.results.evaluation.evaluations import last_evaluation, read_candidate_results, save_evaluation
from tasks.results.read import (
    count_ids_by_dataset,
    count_labels,
    count_outcomes,
    read_failures,
    read_job,
    read_outcomes,
    read_results,
)
from tasks.results.runs import describe_spec, open_run, read_any_spec, read_spec, update_run
from tasks.results.write import ShardWriter
from tests.results.rows import FACTS, SCOPE, SPEC, failure, job, result

WORDS = Words(text="A cat.", finish_reason="stop", output_tokens=3)


def labelled(of, choice):
    return replace(result(of), answer=replace(result(of).answer, choice_index=choice))


def in_words(of):
    return replace(result(of), answer=replace(result(of).answer, choice_index=None, probabilities=(), words=WORDS))


@pytest.fixture
def other_dataset(db, run):
    """Write rows of another dataset."""
    other = replace(run, run_id=uuid4(), dataset="e")
    open_run(db, run_id=other.run_id, spec=SPEC, facts=FACTS | {"dataset": "e", "manifest_uri": "e.parquet"})
    ShardWriter(db, other).write([result(job("a")), result(job("z"))], [failure(job("b"))])
    return other


@pytest.mark.usefixtures("other_dataset")
def test_labels_and_ids_are_counted(db, run):
    rows = [labelled(job(name), int(name > "c")) for name in "abcde"]
    ShardWriter(db, run).write([*rows, in_words(job("w", choices=()))], [failure(job("f"))])

    assert list(count_labels(db, SCOPE).items()) == [("yes", 3), ("no", 2)]
    assert count_outcomes(db, SCOPE) == (6, 1)
    assert count_ids_by_dataset(db, ["a", "b", "f", "z", "nobody"]) == {"d": 3, "e": 3}
    assert count_ids_by_dataset(db, ["nobody", "no\0"]) == {}


def test_as_many_rows_are_read_as_are_asked_for_in_the_order_of_ids(db, run):
    ShardWriter(db, run).write([result(job(name)) for name in "cab"], [failure(job(name)) for name in "fed"])

    assert read_results(db, SCOPE, limit=2)["job_id"].to_list() == ["a", "b"]
    assert read_failures(db, SCOPE, limit=1)["job_id"].to_list() == ["d"]
    assert pl.concat(read_outcomes(db, SCOPE, limit=4))["job_id"].to_list() == ["a", "b", "c", "d"]


def test_all_rows_of_a_job_are_read_the_newest_first(db, run, other_dataset):
    ShardWriter(db, run).write([result(job("a"))], [])
    ShardWriter(db, run).write([labelled(job("a"), 0)], [failure(job("b"))])

    rows, failed = read_job(db, "a"), read_job(db, "b", dataset="d")

    assert [(row["kind"], row["dataset"], row["label"]) for row in rows.current] == [
        ("label", "d", "yes"),
        ("label", "e", "no"),
    ]
    assert [row["manifest_uri"] for row in rows.current] == ["m.parquet", "e.parquet"]
    assert [(row["label"], row["replaced_by"]) for row in rows.history] == [("no", run.run_id)]
    assert read_job(db, "a", dataset="e").history == ()
    assert [(row["kind"], row["code"], row["run_id"]) for row in failed.current] == [
        ("failure", "no_frames", run.run_id)
    ]
    assert read_job(db, "b", dataset="e").current[0]["run_id"] == other_dataset.run_id
    with pytest.raises(ConfigurationError, match="There is no outcome of a job nobody"):
        read_job(db, "nobody")
    with pytest.raises(ConfigurationError, match="Dataset e has no outcome of a job f"):
        read_job(db, "f", dataset="e")


def test_a_spec_is_read_as_it_was_written_and_described_by_its_model_and_frames(db, run):
    assert read_spec(db, run.spec_id) == read_any_spec(db, run.spec_id) == SPEC
    described = {"model": {"name": "clip"}, "sampler": "dense", "frames_per_chunk": 4}
    every = RunSpec(model=SPEC.model, sampling=Sampling(num_frames=-1))

    assert describe_spec(SPEC.model_dump(mode="json")) == "tiny, keyframes, 16 frames"
    assert describe_spec(every.model_dump(mode="json")) == "tiny, keyframes, every frame"
    assert describe_spec(described) == "clip, dense, 4 frames per chunk"


def test_a_candidate_has_the_labels_of_its_jobs_and_costs_each_video_once(db, run):
    jobs = [job("a", video_uri="v.mp4"), job("b", video_uri="v.mp4"), job("c", video_uri="v.mp4", end_s=2.0)]
    jobs += [job("cached"), job("failed"), job("old")]
    spent = {"frames_decoded": 10, "bytes_fetched": 100, "decode_ms": 2000.0, "embed_ms": 500.0, "fetch_ms": 7.0}
    nothing = {"frames_decoded": 10, "decode_ms": 0.0, "fetch_ms": 0.0}
    rows = [result(jobs[0], **spent), result(jobs[1], **spent), result(jobs[2], **spent), result(jobs[3], **nothing)]
    ShardWriter(db, run).write([*rows, result(job("old", prompt="before?"))], [failure(jobs[4]), failure(job("x"))])
    wall_ms = {"setup": 9e9, "answer": 1500.0, "decode": 500.0}
    costs = {"gpus": 0, "prompt_tokens": 1, "cached_tokens": 0, "jobs_labelled": 5, "jobs_failed": 1}
    update_run(db, run.run_id, wall_ms=wall_ms, **costs)

    found = read_candidate_results(db, SPEC, name="mine", dataset="d", jobs=jobs_to_rows(jobs))

    assert (found.name, found.spec_id, found.model) == ("mine", SPEC.spec_id, "tiny")
    assert found.labels["job_id"].to_list() == ["a", "b", "c", "cached"]
    assert found.failed == ["failed"]
    assert found.cost == Cost(
        wall_s=2.0,
        jobs_per_s=3.0,
        videos=3,
        videos_cached=1,
        frames_decoded=30,
        decode_s=5.0,
        bytes_read=200,
        engine_s=0.008,
    )


def test_a_candidate_without_rows_has_no_cost(db):
    found = read_candidate_results(db, SPEC, name="mine", dataset="d", jobs=jobs_to_rows([job("a")]))

    assert (len(found.labels), found.failed, found.cost) == (0, [], Cost())


def test_the_last_evaluation_of_a_dataset_is_read_as_it_was_saved(db):
    jobs = jobs_to_rows([job("a", answer="no")])
    none = read_candidate_results(db, SPEC, name="mine", dataset="d", jobs=jobs)
    first, last = (
        compare_candidates(jobs, [none], baseline="mine", manifest_uri=uri, dataset="d") for uri in ("m", "n")
    )

    assert save_evaluation(db, first) != save_evaluation(db, last)

    assert last_evaluation(db, dataset="d") == last
    assert last_evaluation(db, dataset="e") is None
