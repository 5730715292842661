"""A shard whose jobs show several videos and images: each is extracted once, and shown with the others."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from PIL import Image

from flows.shard.context import ShardOutcome
from flows.shard.extract import FrameStream, extract_shard
from flows.shard.infer import escalate, infer_views
from infra.settings import StoreSettings
from reelabel.frames.frame_file import read_frames
from reelabel.sampling.options import Sampling
from reelabel.seal import Seal
from reelabel.sources.object_store import ObjectStore
from tasks.domain import Medium, ModelIdentity, RunSpec, Shard, group_by_views, views_of
from tasks.plans.extracted import read_extracted, write_extracted
from tests.factories import ANSWER, make_extractor, make_job
from tests.flows.shard.shards import make_context

SPEC = RunSpec(model=ModelIdentity(name="nobody"), sampling=Sampling(num_frames=4))


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "picture.png"
    Image.fromarray(np.full((56, 84, 3), (200, 30, 60), np.uint8)).save(path)
    return path


class Looking:
    """Keeps what it is shown by each question, and the sizes of batches."""

    def __init__(self):
        self.shown = {}
        self.batches = []

    def wait_ready(self):
        pass

    def confirm_model(self):
        pass

    def answer(self, batch):
        for question in batch.questions:
            files = [read_frames(batch.frame_files[each.file_id]) for each in question.shown]
            kinds = [each.kind for each in question.shown]
            self.shown[question.text.partition("?")[0]] = list(zip(kinds, [file.unique for file in files], strict=True))
        self.batches.append(len(batch.questions))  # last: a test that waits for it may look at what was shown
        return [ANSWER] * len(batch.questions)


def job_about(name, *media, **changed):
    """Ask about media, given as kind and path or as the path of a video."""
    shown = tuple(Medium(*each) if isinstance(each, tuple) else Medium("video", str(each)) for each in media)
    shown = tuple(medium._replace(uri=str(medium.uri)) for medium in shown)
    first = next(medium.uri for medium in shown if medium.kind == "video")
    several = {"media": shown} if len(shown) > 1 else {}
    return make_job(first, job_id=name, prompt=f"{name}?", **several, **changed)


def context_of(extractor, engine, spec=SPEC, **changed):
    return make_context(extractor, engine, spec, **{"batch_bytes": 10**9} | changed)


def run(extractor, *jobs, spec=SPEC, **changed):
    """Extract and answer jobs; return the outcome, and what was shown."""
    engine, stream = Looking(), FrameStream()
    shard = Shard(index=0, jobs=jobs)
    extracted = extract_shard.fn(0, shard, lambda: extractor, partial(ThreadPoolExecutor, 1), stream)
    outcome = ShardOutcome(index=0)
    infer_views(stream, group_by_views(jobs, spec.sampling), context_of(extractor, engine, spec, **changed), outcome)
    return outcome, engine, extracted


def test_videos_and_images_are_shown_in_their_order_with_the_pixels_of_each(extractor, make_clip, picture):
    first, second = make_clip(name="a.mp4"), make_clip(name="b.mp4", frames=30)
    jobs = [job_about("both", second, ("image", picture), first), job_about("one", first)]

    outcome, engine, extracted = run(extractor, *jobs)

    kinds, images = zip(*engine.shown["both"], strict=True)
    assert kinds == ("video", "image", "video")
    assert np.array_equal(images[1], np.asarray(Image.open(picture))[None])
    assert np.array_equal(images[2], engine.shown["one"][0][1])
    assert not np.array_equal(images[0], images[2])
    assert len(extracted.outcomes) == 3  # the video of both jobs is extracted once
    assert (len(outcome.results), outcome.failures, len(outcome.videos)) == (2, [], 3)


def test_the_row_of_a_job_tells_of_all_that_it_shows(extractor, make_clip, picture):
    first, second = make_clip(name="a.mp4"), make_clip(name="b.mp4", frames=30)
    jobs = [job_about("both", first, second, ("image", picture)), job_about("a", first), job_about("b", second)]

    outcome, _, extracted = run(extractor, *jobs)

    both, a, b = (
        next(each.provenance for each in outcome.results if each.job.job_id == name) for name in ("both", "a", "b")
    )
    marks = [each.provenance.fingerprint for each in extracted.outcomes.values()]
    assert json.loads(both.fingerprint) == marks
    assert both.frames_used == a.frames_used + b.frames_used + 1
    assert both.keyframes_in_file == a.keyframes_in_file + b.keyframes_in_file
    assert both.bytes_fetched >= a.bytes_fetched + b.bytes_fetched
    assert both.longest_gap_s == max(a.longest_gap_s, b.longest_gap_s)
    assert (both.sampler, both.decode_method) == ("keyframes", "index")


@pytest.mark.parametrize("broken", ["a.mp4", "b.mp4", "picture.png"])
def test_a_job_fails_for_the_medium_that_cannot_be_used_and_others_do_not(
    extractor, make_clip, picture, tmp_path, broken
):
    first, second = make_clip(name="a.mp4"), make_clip(name="b.mp4", frames=30)
    jobs = [job_about("all", first, second, ("image", picture)), job_about("a", first), job_about("b", second)]
    (tmp_path / broken).write_bytes(b"neither")

    outcome, _, _ = run(extractor, *jobs)

    failed = {failure.job.job_id: failure for failure in outcome.failures}
    assert failed.keys() == {"all"} | ({broken[0]} if broken != "picture.png" else set())
    assert failed["all"].code == "video_unreadable"
    assert str(tmp_path / broken) in failed["all"].message
    assert len(json.loads(failed["all"].source_fingerprint)) == 3  # so that a repaired file is another version


def test_a_job_with_a_missing_image_has_no_version(extractor, make_clip, picture):
    picture.unlink()

    outcome, _, _ = run(extractor, job_about("all", make_clip(), ("image", picture)))

    [failure] = outcome.failures
    assert (failure.code, failure.source_fingerprint) == ("video_missing", None)
    assert str(picture) in failure.message


@pytest.mark.parametrize("is_known", [False, True], ids=["new", "in the cache"])
def test_a_video_that_is_given_as_an_image_is_refused(tmp_path, pool, make_clip, is_known):
    spec = RunSpec(model=SPEC.model, sampling=Sampling(num_frames=1))
    first, second = make_clip(name="a.mp4"), make_clip(name="b.mp4", frames=30)
    extractor = make_extractor(tmp_path, pool, sampling=spec.sampling)
    if is_known:  # one keyframe of it is what an image would be
        run(extractor, job_about("second", second), spec=spec)

    outcome, _, _ = run(extractor, job_about("both", first, ("image", second)), job_about("second", second), spec=spec)

    assert [each.job.job_id for each in outcome.results] == ["second"]
    [failure] = outcome.failures
    assert failure.message == f"{second} is a video, not an image; give it as a video."


def test_a_job_waits_for_its_last_video_while_others_are_answered(extractor, make_clip):
    first, second = make_clip(name="a.mp4"), make_clip(name="b.mp4", frames=30)
    jobs = [job_about("both", first, second), job_about("one", first)]
    by_views, engine, stream, outcome = (
        group_by_views(jobs, SPEC.sampling),
        Looking(),
        FrameStream(),
        ShardOutcome(index=0),
    )
    [(early, late)] = [views for views in by_views if len(views) == 2]
    with ThreadPoolExecutor(1) as thread:
        try:
            stream.add(early, extractor.prepare(str(first)))
            answering = thread.submit(infer_views, stream, by_views, context_of(extractor, engine), outcome)
            while not engine.batches:
                assert not answering.done()
            assert [*engine.shown] == ["one"]
            stream.add(late, extractor.prepare(str(second)))
        finally:
            stream.end(None)
        answering.result()

    assert {each.job.job_id for each in outcome.results} == {"both", "one"}


def test_jobs_that_wait_for_one_video_are_still_asked_about_in_small_groups(extractor, make_clip):
    clips = [make_clip(name=f"{number}.mp4", frames=24 + number) for number in range(4)]
    last = make_clip(name="last.mp4", frames=40)
    jobs = [job_about(clip.stem, clip, last) for clip in clips]

    outcome, engine, _ = run(extractor, *jobs, batch_bytes=1)

    assert engine.batches == [1] * 4
    assert len(outcome.results) == 4


def test_all_videos_of_an_uncertain_job_are_shown_by_the_dense_sampler(tmp_path, pool, make_clip, picture):
    sampling = Sampling(num_frames=4, escalate_below=0.9)
    spec = RunSpec(model=SPEC.model, sampling=sampling)
    extractor = make_extractor(tmp_path, pool, sampling=spec.sampling)
    outcome, _, _ = run(
        extractor, job_about("both", make_clip(name="a.mp4"), ("image", picture), make_clip(name="b.mp4")), spec=spec
    )
    engine = Looking()

    escalate(context_of(extractor, engine, spec, escalate_below=0.9), outcome)

    [result] = outcome.results
    assert (result.routed_by, result.provenance.sampler) == ("margin", "uniform")
    assert [len(images) for _, images in engine.shown["both"]] == [4, 1, 4]
    cost = Counter(video.provenance.sampler for video in outcome.videos)
    assert (cost, len(outcome.read_ms)) == ({"keyframes": 4, "uniform": 2}, 5)  # the image is read twice


def test_auto_decides_for_each_video_and_keeps_images_as_they_are(tmp_path, pool, make_clip, picture):
    spec = RunSpec(model=SPEC.model, sampling=Sampling(num_frames=4, sampler="auto", min_keyframes=2))
    covered, sparse = make_clip(name="a.mp4", gop=6), make_clip(name="b.mp4", gop=1000)

    outcome, engine, extracted = run(
        make_extractor(tmp_path, pool, sampling=spec.sampling),
        job_about("both", covered, sparse, ("image", picture)),
        spec=spec,
    )

    assert [each.provenance.sampler for each in extracted.outcomes.values()] == ["keyframes", "uniform", "keyframes"]
    [result] = outcome.results
    assert (result.routed_by, result.provenance.sampler) == ("coverage", "keyframes")
    assert len(engine.shown["both"][2][1]) == 1


def test_what_another_machine_extracted_is_what_was_extracted(extractor, make_clip, picture, tmp_path):
    job = job_about("both", make_clip(name="a.mp4"), ("image", picture), make_clip(name="b.mp4", frames=30))
    _, _, extracted = run(extractor, job)
    objects, uri = ObjectStore(StoreSettings()), f"file://{tmp_path}/plan"

    write_extracted(objects, uri, extracted, seal=Seal())
    read = read_extracted(objects, uri, extracted.shard, sampling=SPEC.sampling, seal=Seal())

    assert read.outcomes == extracted.outcomes
    assert tuple(read.outcomes) == views_of(job, SPEC.sampling)
