"""A shard's frames, and what answers it."""

from dataclasses import replace

from flows.shard.context import InferenceContext
from flows.shard.extract import FrameStream
from reelabel.sampling.options import Sampling
from tasks.domain import ModelIdentity, RunSpec, group_by_views
from tests.factories import ANSWER

SPEC = RunSpec(model=ModelIdentity(name="nobody"), sampling=Sampling(num_frames=4))


class Ready:
    """Is ready from the start."""

    def wait_ready(self):
        pass

    def confirm_model(self):
        pass


class Sure(Ready):
    """Answers every question at once."""

    def answer(self, batch):
        return [ANSWER] * len(batch.questions)


class Counting(Ready):
    """Answers every question at once, and notes how much it was asked."""

    def __init__(self):
        self.batches = []

    def answer(self, batch):
        self.batches.append((len(batch.questions), sum(len(each.text) for each in batch.questions)))
        counts = (len(each.choices) for each in batch.questions)
        return [replace(ANSWER, probabilities=(1 / count,) * count) for count in counts]


def make_context(extractor, backend, spec, *, kind=InferenceContext, **changed):
    """What answers a shard by a backend, one video in each batch; nothing is written."""
    return kind(spec=spec, backend=backend, extractor=extractor, **{"writer": None, "batch_bytes": 1} | changed)


def context_of(extractor, engine):
    return make_context(extractor, engine, SPEC)


def extract(extractor, jobs):
    """Extract the videos of jobs; returns their views, and the stream that has the frames of each."""
    views, stream = group_by_views(jobs, extractor.sampling), FrameStream()
    for (view,) in views:
        stream.add(view, extractor.prepare(view.video_uri))
    stream.end(None)
    return views, stream
