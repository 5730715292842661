"""A shard's groups on their way to whatever answers."""

from threading import Barrier

import pytest

from flows.arriving import Arriving
from flows.asking import GROUPS_AT_ONCE, Answering, Endings, ask
from infra.objects import ObjectStore
from infra.settings import StoreSettings
from tasks.domain import Answer, Job, ModelIdentity, RunSpec, Sampling, jobs_by_view
from tasks.frames.cache import FrameCache
from tasks.frames.prepare import Preparer
from tasks.video.limits import Limits
from tasks.video.pool import DecodePool
from tests.clips import make_clip

__all__ = ["make_clip"]

CHOICES = ("yes", "no")
ANSWER = Answer(
    choice_index=0, probabilities=(0.75, 0.25), prompt_tokens=1, cached_tokens=0, preprocess_ms=0.0, inference_ms=0.0
)
SPEC = RunSpec(model=ModelIdentity(name="nobody"), sampling=Sampling(num_frames=4))


class Held:
    """Answers no batch before as many as a shard may have under way are here."""

    def __init__(self):
        self.together = Barrier(GROUPS_AT_ONCE, timeout=60)
        self.batches = []

    def ask(self, batch):
        self.batches.append(len(batch.questions))
        self.together.wait()
        return [ANSWER] * len(batch.questions)


@pytest.fixture
def preparer(tmp_path):
    objects = ObjectStore(StoreSettings())
    cache = FrameCache(objects, f"file://{tmp_path}/cache")
    with DecodePool(processes=1, timeout_s=20, memory_mib=2048) as pool:
        yield Preparer(objects=objects, cache=cache, pool=pool, sampling=SPEC.sampling, limits=Limits())


def test_the_next_group_is_sent_while_one_is_answered(preparer, make_clip):
    clips = [make_clip(name=f"{number}.mp4") for number in range(2 * GROUPS_AT_ONCE)]
    jobs = [Job(job_id=clip.stem, video_uri=str(clip), prompt="?", choices=CHOICES) for clip in clips]
    views, arriving, held, endings = jobs_by_view(jobs, SPEC.sampling), Arriving(), Held(), Endings(index=0)
    for view in views:
        arriving.add(view, preparer.prepare(view.video_uri))
    arriving.end(None)
    answering = Answering(
        spec=SPEC,
        cache=preparer.cache,
        pool=preparer.pool,
        limits=preparer.limits,
        engine=held,
        writer=None,
        batch_bytes=1,  # one video each
        preparer=preparer,
    )

    ask(arriving, views, answering, endings)

    assert held.batches == [1] * len(clips)
    assert {result.job.job_id for result in endings.results} == {clip.stem for clip in clips}
    assert endings.failures == []
