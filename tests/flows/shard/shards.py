"""A shard's frames, and what answers it."""

from flows.shard.answering import InferenceContext
from flows.shard.extract import FrameStream
from tasks.domain import group_by_views


class Ready:
    """Is ready from the start."""

    def wait_ready(self):
        pass

    def confirm_model(self):
        pass


def make_context(extractor, backend, spec, *, kind=InferenceContext, **changed):
    """What answers a shard by a backend, one video in each batch; nothing is written."""
    return kind(spec=spec, backend=backend, extractor=extractor, **{"writer": None, "batch_bytes": 1} | changed)


def extract(extractor, jobs):
    """Extract the videos of jobs; returns their views, and the stream that has the frames of each."""
    views, stream = group_by_views(jobs, extractor.sampling), FrameStream()
    for (view,) in views:
        stream.add(view, extractor.prepare(view.video_uri))
    stream.end(None)
    return views, stream
