"""Small jobs, labels, failures and plans."""

from dataclasses import replace
from uuid import uuid4

import polars as pl

from tasks.database.scope import Scope
from tasks.domain import Answer, Failure, JobResult, ModelIdentity, RunSpec, Stage
from tasks.domain.provenance import FrameProvenance
from tasks.manifest.schema import ROW
from tasks.plans.plan import Plan, open_plan
from tests.factories import make_job

SPEC = RunSpec(model=ModelIdentity(name="tiny"))
SCOPE = Scope(dataset="d", spec_id=SPEC.spec_id)
_FACTS = {"dataset": "d", "manifest_uri": "m.parquet", "kind": "classify", "host": "h"}
FACTS = _FACTS | {"jobs_total": 3, "jobs_skipped": 0}


def job(name, **changed):
    return make_job(f"{name}.mp4", **{"job_id": name} | changed)


def ids_of(table):
    """List a table's jobs in the manifest's order."""
    return pl.concat(table.parts()).sort(ROW)["job_id"].to_list()


PROVENANCE = FrameProvenance(
    fingerprint="e1",
    keyframes_in_file=5,
    frames_used=4,
    fetch_ms=1,
    decode_ms=2,
    cache_write_ms=3,
    cache_read_ms=4,
)


def result(of, probabilities=(0.25, 0.75), order=None, provenance=PROVENANCE, **changed):
    """Label a job with its second choice; other arguments change the provenance of its frames."""
    counts = {"prompt_tokens": 90, "cached_tokens": 64, "preprocess_ms": 1, "inference_ms": 2}
    answer = Answer(choice_index=1, probabilities=probabilities, order=order, **counts)
    return JobResult(job=of, answer=answer, provenance=replace(provenance, **changed), shard_index=0)


def failure(of, code="no_frames", message="No frame."):
    return Failure(job=of, stage=Stage.DECODE, code=code, message=message, shard_index=0)


def record_plan(db, run, jobs_per_shard, **changed):
    """Record a plan of a run, with the number of jobs of each shard; return the plan."""
    plan = Plan(
        plan_id=uuid4(),
        run_id=run.run_id,
        dataset=run.dataset,
        spec_id=run.spec_id,
        manifest_uri="m.parquet",
        manifest_fingerprint="f",
        kind="classify",
        shared=False,
        plan_uri="file:///plans/p",
        shards=len(jobs_per_shard),
        jobs=sum(jobs_per_shard),
    )
    plan = replace(plan, **changed)
    open_plan(db, plan, jobs_per_shard)
    return plan
