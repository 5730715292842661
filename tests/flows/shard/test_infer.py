"""The groups of a shard on their way to the backend, in batches, and what their answers say."""

from dataclasses import asdict, dataclass, replace
from threading import Barrier
from types import SimpleNamespace

import pytest

from flows.shard.context import ShardOutcome
from flows.shard.extract import FrameStream
from flows.shard.infer import (
    MAX_CONCURRENT_GROUPS,
    MAX_PROMPTS,
    MAX_TOKENS,
    _Arrivals,
    _routed_by,
    infer_views,
)
from reelabel.errors import ConfigurationError, VideoUnreadableError
from reelabel.sampling.options import Sampling
from tasks.domain import JobResult, View, group_by_views
from tasks.domain.provenance import FrameProvenance
from tasks.domain.record import Merge, column
from tests.factories import ANSWER, CHOICES, make_job
from tests.flows.shard.shards import SPEC, Counting, Ready, Sure, context_of, extract
from tests.results.rows import PROVENANCE


class Held(Ready):
    """Answers no batch before as many as a shard may have under way are here."""

    def __init__(self):
        self.together = Barrier(MAX_CONCURRENT_GROUPS, timeout=60)
        self.batches = []

    def answer(self, batch):
        self.batches.append(len(batch.questions))
        self.together.wait()
        return [ANSWER] * len(batch.questions)


def test_the_next_group_is_sent_while_one_is_answered(extractor, make_clip):
    clips = [make_clip(name=f"{number}.mp4") for number in range(2 * MAX_CONCURRENT_GROUPS)]
    jobs = [make_job(clip) for clip in clips]
    (views, stream), leased, outcome = extract(extractor, jobs), Held(), ShardOutcome(index=0)

    infer_views(stream, views, context_of(extractor, leased), outcome)

    assert leased.batches == [1] * len(clips)
    assert {result.job.job_id for result in outcome.results} == {clip.stem for clip in clips}
    assert outcome.failures == []


@pytest.mark.parametrize(
    ("prompt", "permutations", "frame_bytes", "most"),
    [
        pytest.param("?", 1, 1, MAX_PROMPTS, id="short"),
        pytest.param("?", 26, 1, MAX_PROMPTS, id="in many choice orders"),
        pytest.param("x" * 99_000, 1, 1, 10, id="long"),
        pytest.param("x" * 99_000, 26, 1, 26, id="longer than a batch"),
        pytest.param("?", 1, 16 * 3 * 1280 * 720, 60, id="on a large video"),
        pytest.param("?", 4, 16 * 3 * 1280 * 720, 60, id="on a large video, in several orders"),
    ],
)
def test_a_group_is_asked_about_in_batches_of_bounded_size(
    extractor, make_clip, prompt, permutations, frame_bytes, most
):
    uri, count = str(make_clip()), 300 if len(prompt) < 1000 else 12
    choices = tuple(f"choice {number}" for number in range(26)) if permutations > 1 else CHOICES
    jobs = [make_job(uri, job_id=f"{n}", prompt=f"{n} {prompt}", choices=choices) for n in range(count)]
    views, stream, outcome, counting = (
        group_by_views(jobs, SPEC.sampling),
        FrameStream(),
        ShardOutcome(index=0),
        Counting(),
    )
    [(view,)] = views
    stream.add(view, replace(extractor.prepare(uri), frame_bytes=frame_bytes))
    stream.end(None)
    spec = SPEC.model_copy(update={"permutations": permutations})

    infer_views(stream, views, replace(context_of(extractor, counting), spec=spec), outcome)

    assert [result.job.job_id for result in outcome.results] == [job.job_id for job in jobs]
    assert sum(prompts for prompts, _ in counting.batches) == count * permutations
    assert max(prompts for prompts, _ in counting.batches) <= most
    assert all(size <= MAX_TOKENS for prompts, size in counting.batches if prompts > permutations)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wider(FrameProvenance):
    seeks: int = column(Merge.SUM, "Seeks.", default=0)


def test_all_that_is_known_of_the_frames_goes_with_the_answer(extractor, make_clip):
    job = make_job(make_clip())
    views, stream, outcome = group_by_views([job], SPEC.sampling), FrameStream(), ShardOutcome(index=0)
    [(view,)] = views
    video = extractor.prepare(view.video_uri)
    wider = Wider(**asdict(video.provenance), seeks=3)
    stream.add(view, replace(video, provenance=wider))
    stream.end(None)

    infer_views(stream, views, context_of(extractor, Sure()), outcome)

    [result] = outcome.results
    assert result.provenance == replace(wider, cache_read_ms=outcome.read_ms[view])
    assert result.provenance.cache_read_ms > 0


def test_a_shard_whose_choices_the_model_does_not_mean_ends_the_run_unless_told_otherwise(extractor):
    def results(mass, count=8):
        answer = replace(ANSWER, choice_mass=mass)
        return [JobResult(job=None, answer=answer, provenance=None, shard_index=0) for _ in range(count)]

    run = replace(context_of(extractor, Ready()), min_choice_mass=0.01)

    with pytest.raises(ConfigurationError, match=r"The model means none of the choices: together they have .* 1e-09"):
        run.check_meaning(results(1e-9))
    run.check_meaning(results(0.5) + results(1e-9))
    run.check_meaning(results(1e-9, count=7))
    run.check_meaning(results(None))
    replace(run, min_choice_mass=0.0).check_meaning(results(1e-9))


KEYFRAMES, DENSE, AUTO = (View("a.mp4", shown) for shown in ("keyframes", "dense", "auto"))


@pytest.mark.parametrize(
    ("sampler", "views", "samplers", "reason"),
    [
        ("auto", [KEYFRAMES], ["keyframes"], ""),
        ("auto", [AUTO], ["keyframes"], ""),
        ("auto", [AUTO], ["uniform"], "coverage"),
        ("auto", [DENSE], ["uniform"], "task"),
        ("auto", [AUTO, AUTO], ["keyframes", "uniform"], "coverage"),
        ("uniform", [DENSE], ["uniform"], ""),
    ],
)
def test_a_dense_sampler_is_chosen_for_the_task_or_for_lack_of_keyframes(sampler, views, samplers, reason):
    spec = SPEC.model_copy(update={"sampling": Sampling(sampler=sampler, num_frames=4)})
    videos = [SimpleNamespace(provenance=replace(PROVENANCE, sampler=each)) for each in samplers]

    assert _routed_by(tuple(views), videos, spec) == reason


def test_what_is_complete_is_taken_as_far_as_its_frames_fit():
    views = [View(f"{name}.mp4") for name in "abcd"]
    a, b, c, d = views
    arrivals = _Arrivals([(a,), (a, b), (c,), (d,), (b, d)])
    sizes = {view: SimpleNamespace(frame_bytes=size) for view, size in zip(views, (40, 40, 1000, 40), strict=True)}

    arrivals.add({view: sizes[view] for view in (a, c)})
    assert list(arrivals.complete) == [(a,), (c,)]
    arrivals.add({view: sizes[view] for view in (b, d)})
    taken = []
    while arrivals.complete:
        taken.append([*arrivals.take(80)])

    assert taken == [[(a,)], [(c,)], [(a, b)], [(d,), (b, d)]]


def test_a_view_that_failed_takes_no_room_and_one_that_is_shown_twice_takes_it_once():
    a, b = View("a.mp4"), View("b.mp4")
    arrivals = _Arrivals([(b,), (a, a), (a,)])

    arrivals.add({a: SimpleNamespace(frame_bytes=80), b: VideoUnreadableError("No video.")})

    assert [*arrivals.take(80)] == [(a, a), (a,), (b,)]
