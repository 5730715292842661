"""A shard whose jobs are cut: each chunk is extracted and answered by itself, and the job has one outcome."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import av
import numpy as np
import pytest

from flows.shard.answer import merge_ended
from flows.shard.context import InferenceContext, ShardOutcome
from flows.shard.extract import FrameStream, cut_into_chunks, extract_shard
from flows.shard.infer import infer_views
from infra.settings import StoreSettings
from reelabel.frames.frame_file import read_frames
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from tasks.domain import Answer, ModelIdentity, RunSpec, Shard, group_by_views
from tasks.plans.extracted import read_extracted, write_extracted
from tasks.results.write import RunKey, ShardWriter
from tests.factories import make_job
from tests.flows.shard.shards import make_context

SPEC = RunSpec(model=ModelIdentity(name="nobody"), sampling=Sampling(num_frames=4), chunk_s=2, chunk_rule="any:yes")


class Bright:
    """Answers yes if the frames are blue enough, as the last ones of a clip are."""

    def wait_ready(self):
        pass

    def confirm_model(self):
        pass

    def answer(self, batch):
        return [self._answer(batch.frame_files[question.video_id]) for question in batch.questions]

    def _answer(self, file):
        sure = float(np.mean(read_frames(file).unique[..., 2])) / 255
        counts = {"prompt_tokens": 1, "cached_tokens": 0, "preprocess_ms": 0.0, "inference_ms": 0.0}
        return Answer(choice_index=0 if sure > 0.5 else 1, probabilities=(sure, 1 - sure), **counts)


def context_of(extractor, kind=InferenceContext, **more):
    return make_context(extractor, Bright(), SPEC, kind=kind, batch_bytes=1024**2, **more)


WRITER = ShardWriter(None, RunKey(run_id=None, dataset="d", spec_id="s", host="h"))


def film(uri, name="film", **changed):
    return make_job(uri, job_id=name, prompt="Blue?", chunk_s=2, **changed)


def ended(extractor, *jobs, answered=None):
    shard, stream = Shard(index=0, jobs=jobs), FrameStream()
    extract_shard.fn(0, shard, lambda: extractor, partial(ThreadPoolExecutor, 2), stream)
    outcome, cut, answered = ShardOutcome(index=0), stream.wait_for_jobs(), answered or {}
    context = context_of(extractor, writer=WRITER)
    unanswered = [job for job in cut.shard.jobs if job.job_id not in answered]
    infer_views(stream, group_by_views(unanswered, SPEC.sampling), context, outcome)
    return merge_ended(cut, outcome, answered, context)


def test_each_chunk_shows_its_own_frames_and_one_of_them_decides(extractor, make_clip):
    found = ended(extractor, film(make_clip(frames=72, gop=12, fps=12)))

    labels = {chunk.number: chunk.outcome.label for chunk in found.chunks}
    assert labels == {0: "no", 1: "no", 2: "yes"}
    [row] = found.results
    assert (row.job.job_id, row.label, row.chunks.total, row.chunks.answered) == ("film", "yes", 3, 3)


def test_a_clip_shorter_than_a_chunk_is_answered_as_without_chunks(extractor, make_clip):
    clip = make_clip(frames=12, gop=12, fps=12)

    [row] = ended(extractor, film(clip)).results

    whole = extractor.prepare(str(clip))
    assert whole.was_cached
    file = extractor.cache.read(whole.identity)
    assert row.answer == Bright()._answer(file)
    assert row.chunks.total == 1


def test_a_job_follows_from_what_is_asked_now_and_the_answers_of_before(extractor, make_clip):
    clip = make_clip(frames=72, gop=12, fps=12)
    whole = ended(extractor, film(clip))
    before = {chunk.outcome.job.job_id: chunk.outcome for chunk in whole.chunks[1:]}

    found = ended(extractor, film(clip), answered=before)

    assert [chunk.outcome for chunk in found.chunks[1:]] == [chunk.outcome for chunk in whole.chunks[1:]]
    assert found.chunks[0].outcome.answer == whole.chunks[0].outcome.answer
    assert [row.label for row in found.results] == ["yes"]


def test_chunks_from_which_the_outcome_of_their_job_does_not_follow_are_not_written(extractor, make_clip):
    clip = make_clip(frames=72, gop=12, fps=12)
    first = ended(extractor, film(clip)).chunks[0].outcome
    other = replace(first, provenance=replace(first.provenance, fingerprint="another version"))

    found = ended(extractor, film(clip), answered={"film#0": other})

    assert ([each.code for each in found.failures], found.chunks) == (["video_changed"], [])


def test_a_video_that_cannot_be_cut_fails_its_jobs_alone_and_as_a_whole(extractor, make_clip, tmp_path):
    (tmp_path / "text.mp4").write_text("no video")

    found = ended(extractor, film(tmp_path / "text.mp4", "a"), film(tmp_path / "gone.mp4", "b"), film(make_clip(), "c"))

    assert {each.job.job_id: each.code for each in found.failures} == {"a": "video_unreadable", "b": "video_missing"}
    assert all(failure.chunks is None for failure in found.failures)
    text = extractor.objects.stat(str(tmp_path / "text.mp4")).fingerprint
    assert {each.job.job_id: each.source_fingerprint for each in found.failures} == {"a": text, "b": None}
    assert [row.job.job_id for row in found.results] == ["c"]


def remuxed(clip, path, **options):
    with av.open(str(clip)) as source, av.open(str(path), "w", options=options) as target:
        stream = source.streams.video[0]
        copied = target.add_stream_from_template(stream)
        for packet in source.demux(stream):
            if packet.dts is not None:
                packet.stream = copied
                target.mux(packet)
    return path


def test_a_recording_that_states_no_length_is_cut_by_its_keyframes(extractor, make_clip, tmp_path):
    live = remuxed(make_clip(frames=72), tmp_path / "live.mkv", live="1")

    [row] = ended(extractor, film(live)).results

    assert (row.label, row.chunks.total) == ("yes", 3)


def test_a_bare_stream_without_any_length_fails_with_what_to_do(extractor, make_clip, tmp_path):
    bare = remuxed(make_clip(), tmp_path / "bare.h264")

    [failed] = ended(extractor, film(bare)).failures

    version = extractor.objects.stat(str(bare)).fingerprint
    assert (failed.code, failed.source_fingerprint) == ("video_unreadable", version)
    assert "does not state its length, so it cannot be cut into chunks" in failed.message


def test_a_video_that_is_too_long_to_be_extracted_is_not_cut_at_all(extractor, make_clip):
    clip, short = make_clip(frames=72, gop=12, fps=12), replace(extractor, limits=Limits(max_duration_s=5.0))

    [failed] = ended(short, film(clip)).failures

    version = extractor.objects.stat(str(clip)).fingerprint
    assert (failed.code, failed.chunks, failed.source_fingerprint) == ("video_too_large", None, version)
    assert "which exceeds extract.max_duration_s (5 s)" in failed.message


def test_a_video_that_is_replaced_after_it_was_cut_is_not_shown_in_the_chunks_of_the_earlier_one(extractor, make_clip):
    clip = make_clip(frames=72, gop=12, fps=12)
    shard, stream = Shard(index=0, jobs=(film(clip),)), FrameStream()
    with ThreadPoolExecutor(1) as workers:
        stream.begin(partial(cut_into_chunks, shard, extractor, workers=workers))
    make_clip(frames=36, gop=12, fps=12)

    extracted = extract_shard.fn(0, shard, lambda: extractor, partial(ThreadPoolExecutor, 2), stream)

    assert {outcome.code for outcome in extracted.outcomes.values()} == {"video_changed"}


def test_jobs_that_are_not_to_be_cut_share_a_shard_with_those_that_are(extractor, make_clip):
    clip = str(make_clip())
    plain = make_job(clip, job_id="a#0", prompt="Blue?")

    found = ended(extractor, plain, film(clip))

    assert [row.job.job_id for row in found.results] == ["a#0", "film"]
    assert found.results[0].chunks is None


def test_another_machine_asks_about_the_same_chunks(extractor, make_clip, tmp_path):
    shard, stream = Shard(index=0, jobs=(film(make_clip()),)), FrameStream()
    extracted = extract_shard.fn(0, shard, lambda: extractor, partial(ThreadPoolExecutor, 2), stream)
    objects, seal = extractor.objects, StoreSettings().seal
    write_extracted(objects, f"file://{tmp_path}/plan", extracted, seal=seal)

    read_back = read_extracted(objects, f"file://{tmp_path}/plan", shard, sampling=SPEC.sampling, seal=seal)

    assert read_back.outcomes.keys() == extracted.outcomes.keys()
    assert FrameStream.whole(read_back).wait_for_jobs().shard == stream.wait_for_jobs().shard


def test_an_attempt_after_a_failed_one_keeps_its_chunks(extractor, make_clip):
    shard, stream = Shard(index=0, jobs=(film(make_clip()),)), FrameStream()
    with ThreadPoolExecutor(1) as workers:
        first = stream.begin(partial(cut_into_chunks, shard, extractor, workers=workers))

    assert stream.begin(lambda: pytest.fail("cut again")) is first
