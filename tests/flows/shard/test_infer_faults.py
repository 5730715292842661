"""Faults while a shard is answered: of frame files, servers, and rows that cannot be written."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest

from flows.shard import retry
from flows.shard.answer import infer_shard
from flows.shard.context import AnswerContext, ShardOutcome
from flows.shard.extract import FrameStream, extract_shard
from flows.shard.infer import (
    escalate,
    infer_views,
)
from infra.errors import DatabaseUnavailableError, ServerUnavailableError
from infra.settings import ServerSettings
from reelabel.frames.frame_file import read_frames
from reelabel.options import Limits
from tasks.domain import Shard, WallClockProfile, group_by_views
from tasks.domain.cost import part_of_tally
from tasks.model.server.backend import ServerBackend
from tasks.plans.lease import Lease
from tasks.results.write import RunKey
from tests.clips import LONG
from tests.factories import ANSWER, make_job
from tests.flows.shard.shards import SPEC, Counting, Ready, Sure, context_of, extract
from tests.stub_server import encoder, serve_stub
from tests.vllm_server import DROPPED, KEY, gate


class RefusingOnce:
    """Rejects rows the first time, and records the wall time that shards report."""

    engine, run = None, RunKey(run_id=None, dataset="d", spec_id="s", host="h")

    def __init__(self):
        self.reported_ms = []

    def write(self, *_rows, report, **_options):
        self.reported_ms.append(sum(part_of_tally(report["tally"], "engines_ms").values()))
        if len(self.reported_ms) == 1:
            raise ValueError("refused")
        return {}


def test_the_time_of_an_attempt_whose_rows_are_refused_is_told_by_the_next_one(extractor, make_clip):
    engine, writer, ticks = Sure(), RefusingOnce(), count()
    engine.times = SimpleNamespace(busy_ms=1.0, waiting_for_input_ms=0.0, restart_ms=0.0)
    profile = WallClockProfile(clock_s=lambda: float(next(ticks)))
    context = replace(context_of(extractor, engine), writer=writer, profile=profile)
    shard = Shard(index=0, jobs=(make_job(make_clip()),))
    stream, lease = FrameStream(), Lease(plan_id=uuid4(), shard_index=0, token=1, jobs=1)
    extract_shard.fn(0, shard, lambda: extractor, partial(ThreadPoolExecutor, 1), stream)

    with pytest.raises(ValueError, match="refused"):
        infer_shard.fn(0, shard, stream, lease, context)
    infer_shard.fn(0, shard, stream, lease, context)

    refused_ms, written_ms = writer.reported_ms
    assert written_ms > 1.5 * refused_ms


class Looking(Ready):
    """Keeps the frames that it is shown."""

    def __init__(self):
        self.shown = {}

    def answer(self, batch):
        self.shown |= {name: read_frames(data).unique for name, data in batch.frame_files.items()}
        return [ANSWER] * len(batch.questions)


def swapped(uri, other):
    Path(uri).write_bytes(Path(other).read_bytes())


@pytest.mark.parametrize("damage", [swapped, lambda uri, _: Path(uri).unlink()], ids=["swapped", "removed"])
def test_a_frame_file_that_changes_between_extraction_and_inference_is_regenerated(extractor, make_clip, damage):
    clips = [make_clip(name=f"{number}.mp4", frames=48 + number) for number in range(2)]
    jobs = [make_job(clip) for clip in clips]
    (views, stream), engine, outcome = extract(extractor, jobs), Looking(), ShardOutcome(index=0)
    expected = {view.name: extractor.cache.find(stream.after(0)[view].identity).unique for (view,) in views}
    damage(*(extractor.cache.uri_of(each.identity.key).removeprefix("file://") for each in stream.after(0).values()))

    infer_views(stream, views, context_of(extractor, engine), outcome)

    assert outcome.failures == []
    assert len(outcome.results) == 2
    assert {name: images.tobytes() for name, images in engine.shown.items()} == {
        name: images.tobytes() for name, images in expected.items()
    }
    is_reported = damage is swapped
    assert [bool(video.rewritten) for video in outcome.videos] == [False, False, is_reported]
    notes = {result.job.job_id: result.provenance.decode_note for result in outcome.results}
    assert ("rewritten" in notes["0"], "rewritten" in notes["1"]) == (is_reported, False)


def test_a_frame_file_that_is_gone_with_its_video_fails_its_jobs_only(extractor, make_clip):
    clips = [make_clip(name=f"{number}.mp4", frames=48 + number) for number in range(2)]
    jobs = [make_job(clip) for clip in clips]
    (views, stream), outcome = extract(extractor, jobs), ShardOutcome(index=0)
    first = next(iter(stream.after(0).values()))
    Path(extractor.cache.uri_of(first.identity.key).removeprefix("file://")).unlink()
    clips[0].unlink()

    infer_views(stream, views, context_of(extractor, Sure()), outcome)

    [failure] = outcome.failures
    assert (failure.job.job_id, failure.code, failure.source_fingerprint) == ("0", "video_missing", None)
    assert [result.job.job_id for result in outcome.results] == ["1"]


def test_ranges_that_cannot_be_decoded_any_more_fail_their_jobs_with_the_version_of_the_video(extractor, make_clip):
    clip = make_clip(**LONG)
    job = make_job(clip)
    views, stream, outcome = group_by_views([job], SPEC.sampling), FrameStream(), ShardOutcome(index=0)
    packed = replace(extractor, pixel_encoding="sparse")
    video = packed.prepare(str(clip))
    [(view,)] = views
    stream.add(view, video)
    stream.end(None)
    context = context_of(replace(packed, limits=Limits(max_frame_pixels=1)), Sure())

    infer_views(stream, views, context, outcome)

    [failure] = outcome.failures
    assert (failure.code, failure.source_fingerprint) == ("video_too_large", video.provenance.fingerprint)


@pytest.mark.usefixtures("no_pauses")
def test_when_a_server_fails_in_the_middle_of_a_shard_only_what_it_has_not_answered_is_asked_again(
    extractor, make_clip
):
    clips, requests, away = [make_clip(name=f"{number}.mp4", frames=24) for number in range(6)], Counter(), count()
    jobs = [make_job(clip, prompt=f"Clip {clip.stem}?") for clip in clips]
    (views, stream), outcome = extract(extractor, jobs), ShardOutcome(index=0)

    def fails(_path, body):
        """Fail for seven requests, once half of the questions are answered; and on one question always."""
        text = body["messages"][-1]["content"][-1]["text"] if body and "messages" in body else ""
        if "Clip 1?" in text or (sum(requests.values()) >= 3 and next(away) < 7):
            return 504, "Timed out."
        requests[text.partition("?")[0]] += 1 if "Clip" in text else 0
        return None

    with serve_stub() as server, gate(server, fails) as url:
        settings = ServerSettings(url=url, api_key=KEY, max_attempts=2, concurrency=1)
        with ServerBackend(settings, encode=encoder()) as backend:
            backend.wait_ready()
            infer_views(stream, views, replace(context_of(extractor, backend), batch_bytes=2**20), outcome)

    assert next(away) >= 7
    assert {result.job.job_id for result in outcome.results} == {"0", "2", "3", "4", "5"}
    [failure] = outcome.failures
    assert (failure.job.job_id, failure.code) == ("1", "server_failed")
    assert {text: requests[text] for text in requests if text.startswith("Clip")} == {
        f"Clip {n}": 1 for n in (0, 2, 3, 4, 5)
    }


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("killers", [{"1"}, {"1", "4"}], ids=["one", "two"])
def test_a_question_that_ends_a_lone_server_fails_alone(extractor, make_clip, killers):
    clips = [make_clip(name=f"{number}.mp4", frames=24) for number in range(6)]
    jobs = [make_job(clip, prompt=f"Clip {clip.stem}?") for clip in clips]
    (views, stream), outcome = extract(extractor, jobs), ShardOutcome(index=0)
    server, answered = SimpleNamespace(away_for=0), Counter()

    def crashes(_path, body):
        """End at some questions, and be away until the backend has looked for it several times."""
        text = body["messages"][-1]["content"][-1]["text"] if body and "messages" in body else ""
        number = text.removeprefix("Clip ").partition("?")[0]
        if number in killers:
            server.away_for = 3
        if server.away_for:
            server.away_for -= not text.startswith("Clip ")
            return DROPPED, b""
        answered[number] += 1
        return None

    with serve_stub() as stub, gate(stub, crashes) as url:
        settings = ServerSettings(url=url, api_key=KEY, max_attempts=1, concurrency=4)
        with ServerBackend(settings, encode=encoder()) as backend:
            backend.wait_ready()
            infer_views(stream, views, context_of(extractor, backend), outcome)

    failed = {failure.job.job_id: failure for failure in outcome.failures}
    assert failed.keys() == killers, failed
    assert {failure.code for failure in failed.values()} == {"server_failed"}
    message = outcome.failures[0].message
    assert message.startswith(f"The server at {url} failed in 3 attempts to answer this question, but answers others: ")
    assert {result.job.job_id for result in outcome.results} == {clip.stem for clip in clips} - killers
    assert {answered[result.job.job_id] for result in outcome.results} == {1}


@pytest.mark.usefixtures("no_pauses")
def test_a_server_that_stays_away_is_waited_for_and_then_ends_the_shard(extractor, make_clip, monkeypatch):
    monkeypatch.setattr(retry, "OUTAGE_S", 0.1)
    clip, is_away = make_clip(), []
    views, stream = extract(extractor, [make_job(clip)])

    with serve_stub() as server, gate(server, lambda *_: (503, "Loading.") if is_away else None) as url:
        settings = ServerSettings(url=url, api_key=KEY, max_attempts=1)
        with ServerBackend(settings, encode=encoder()) as backend:
            backend.wait_ready()
            is_away.append(True)
            with pytest.raises(ServerUnavailableError, match="Loading") as raised:
                infer_views(stream, views, context_of(extractor, backend), ShardOutcome(index=0))

    assert raised.value.retries_exhausted


class Unwritable(RefusingOnce):
    """Takes no rows the first time, as a database that fails."""

    def write(self, *rows, **options):
        try:
            return super().write(*rows, **options)
        except ValueError:
            raise DatabaseUnavailableError("Away.") from None


@pytest.mark.usefixtures("no_pauses")
def test_answers_whose_rows_could_not_be_written_are_not_computed_again(extractor, make_clip, db):
    counting, writer = Counting(), Unwritable()
    counting.times = SimpleNamespace(busy_ms=1.0, waiting_for_input_ms=0.0, restart_ms=0.0)
    writer.engine = db
    context = replace(context_of(extractor, counting), writer=writer)
    shard = Shard(index=0, jobs=(make_job(make_clip()),))
    stream, lease = FrameStream(), Lease(plan_id=uuid4(), shard_index=0, token=1, jobs=1)
    extract_shard.fn(0, shard, lambda: extractor, partial(ThreadPoolExecutor, 1), stream)

    report = infer_shard.fn(0, shard, stream, lease, context)

    assert len(writer.reported_ms) == 2
    assert [prompts for prompts, _ in counting.batches] == [1]
    assert (report.tally["jobs_labelled"], report.tally["videos_extracted"]) == (1, 1)


class Uncertain(Ready):
    """Is away once, after three questions."""

    def __init__(self):
        self.calls, self.questions = count(), Counter()

    def answer(self, batch):
        if next(self.calls) == 3:
            raise DatabaseUnavailableError("Away.")
        self.questions.update(question.text.partition("?")[0].split()[-1] for question in batch.questions)
        return [ANSWER] * len(batch.questions)


def test_a_fault_in_the_second_pass_keeps_its_answers_and_fails_no_job_twice(extractor, make_clip):
    clips = [make_clip(name=f"{name}.mp4", frames=24) for name in "ab"]
    jobs = [make_job(clip, prompt=f"{clip.stem}?") for clip in clips]
    (views, stream), engine, outcome = extract(extractor, jobs), Uncertain(), ShardOutcome(index=0)
    context = AnswerContext(spec=SPEC, backend=engine, batch_bytes=1, extractor=extractor, escalate_below=0.9)
    infer_views(stream, views, context, outcome)
    broken = replace(outcome.results[0], job=replace(jobs[0], job_id="broken"), provenance=None)
    outcome.results.append(broken)

    with pytest.raises(DatabaseUnavailableError):
        escalate(context, outcome)
    escalate(context, outcome)

    assert engine.questions == {"a": 2, "b": 2}
    assert {result.job.job_id: result.routed_by for result in outcome.results} == {"a": "margin", "b": "margin"}
    assert [failure.job.job_id for failure in outcome.failures] == ["broken"]
