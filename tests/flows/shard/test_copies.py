"""Answers copied to jobs whose videos show the same."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from uuid import uuid4

import pytest

from flows.shard.answer import infer_shard
from flows.shard.extract import FrameStream, extract_shard
from reelabel.errors import StoreUnavailableError
from reelabel.sampling.options import Sampling
from reelabel_engine.protocol import Rejected
from tasks.domain import ModelIdentity, RunSpec, Shard
from tasks.frame_cache.pool import current_fingerprints
from tasks.plans.lease import Lease
from tasks.results.write import RunKey
from tests.factories import ANSWER, make_job
from tests.flows.shard.shards import Ready, make_context

SPEC = RunSpec(model=ModelIdentity(name="nobody"), sampling=Sampling(num_frames=4))


class Rows:
    """Keeps the rows of a shard."""

    engine, run = None, RunKey(run_id=None, dataset="d", spec_id="s", host="h")

    def write(self, results, failures, **_options):
        self.results, self.failures = results, failures
        return {}


class Scripted(Ready):
    """Answers a question by its first word; an answer that is an error is raised once."""

    times = SimpleNamespace(busy_ms=1.0, waiting_for_input_ms=0.0, restart_ms=0.0)

    def __init__(self, **answers):
        self.answers, self.calls = answers, Counter()

    def answer(self, batch):
        return [self._answer(question.text.partition("?")[0].split()[-1]) for question in batch.questions]

    def _answer(self, name):
        self.calls[name] += 1
        if isinstance(self.answers.get(name), Exception):
            raise self.answers.pop(name)
        return self.answers.get(name, ANSWER)


@pytest.fixture
def infer_group(extractor, make_clip):
    """Return a function that answers a group of jobs, each about its own copy of a video, and returns the rows.

    The videos of those that are `replaced` are other ones by then.
    """

    def infer(engine, names, *, replaced="", **options):
        uris = [str(make_clip(name=f"{name}.mp4", frames=24)) for name in names]
        jobs = [
            make_job(uri, prompt=f"{name}?", group="g", fingerprint=fingerprint)
            for name, uri, fingerprint in zip(names, uris, current_fingerprints(extractor.objects, uris), strict=True)
        ]
        for name in replaced:
            make_clip(name=f"{name}.mp4", frames=36)
        shard, stream, rows = Shard(index=0, jobs=tuple(jobs)), FrameStream(), Rows()
        context = make_context(extractor, engine, SPEC, writer=rows, **options)
        lease = Lease(plan_id=uuid4(), shard_index=0, token=1, jobs=len(jobs))
        extract_shard.fn(0, shard, lambda: extractor, partial(ThreadPoolExecutor, 1), stream)
        infer_shard.fn(0, shard, stream, lease, context)
        return rows

    return infer


@pytest.mark.parametrize(("replaced", "copied_from"), [("", "a"), ("a", None)])
def test_an_answer_is_copied_only_if_its_video_is_the_one_that_was_compared(infer_group, replaced, copied_from):
    engine = Scripted()

    rows = infer_group(engine, "abc", replaced=replaced)

    found = {result.job.job_id: result.copied_from for result in rows.results}
    assert found == {"a": None, "b": copied_from, "c": copied_from}
    assert len({result.provenance.fingerprint for result in rows.results}) == 3
    assert engine.calls == dict.fromkeys("a" if copied_from else "abc", 1)


def test_copies_of_a_job_that_fails_as_it_is_escalated_are_asked_and_escalated_themselves(infer_group):
    engine = Scripted(a=replace(ANSWER, probabilities=(1.0,)))  # without a second choice there is no margin

    rows = infer_group(engine, "abc", escalate_below=0.9)

    assert [failure.job.job_id for failure in rows.failures] == ["a"]
    assert {result.job.job_id: result.routed_by for result in rows.results} == {"b": "margin", "c": "margin"}
    assert engine.calls == {"a": 1, "b": 2, "c": 2}


@pytest.mark.usefixtures("no_pauses")
def test_a_fault_while_copies_are_asked_keeps_the_answers_of_the_others(infer_group):
    engine = Scripted(a=Rejected(code="x", message="No.", stage="inference"), c=StoreUnavailableError("Away."))

    rows = infer_group(engine, "abc")

    assert [failure.job.job_id for failure in rows.failures] == ["a"]
    assert sorted(result.job.job_id for result in rows.results) == ["b", "c"]
    assert engine.calls == {"a": 1, "b": 1, "c": 2}
