"""What many tests make alike: jobs, answers, and extractors."""

from pathlib import Path

from infra.settings import StoreSettings
from reelabel.frames.cache import FrameCache
from reelabel.options import Limits
from reelabel.sampling.options import Sampling
from reelabel.sources.object_store import ObjectStore
from tasks.domain import Answer, Job
from tasks.frame_cache.extractor import FrameExtractor

CHOICES = ("yes", "no")
ANSWER = Answer(
    choice_index=0, probabilities=(0.75, 0.25), prompt_tokens=1, cached_tokens=0, preprocess_ms=0.0, inference_ms=0.0
)


def make_job(video, **changed):
    """Ask whether something is in a video, given by path or URI; by default, the job is named after the file."""
    usual = {"job_id": Path(str(video)).stem, "video_uri": str(video), "prompt": "?", "choices": CHOICES}
    return Job(**usual | changed)


def make_extractor(folder, pool, **changed):
    """An extractor of four keyframes, whose cache is in a folder."""
    objects = ObjectStore(StoreSettings())
    parts = {"objects": objects, "cache": FrameCache(objects, f"file://{folder}/cache"), "pool": pool}
    return FrameExtractor(**parts | {"sampling": Sampling(num_frames=4), "limits": Limits()} | changed)
