"""A plan of inline videos; needs several GiB of memory."""

from dataclasses import replace

from infra.settings import StoreSettings
from reelabel.seal import NO_KEY
from reelabel.sources.object_store import ObjectStore
from tasks.domain import Job
from tasks.manifest.digests import jobs_to_rows
from tasks.manifest.plan_file import PlanWriter, read_shard

_VIDEO_BYTES = 64 << 20
_VIDEOS = 33


def test_jobs_of_more_than_2_gib_are_written_together(tmp_path):
    store = ObjectStore(StoreSettings()), f"file://{tmp_path}/plans/p"
    job = Job(job_id="a", video_uri="data:video/mp4;base64," + "A" * _VIDEO_BYTES, prompt="?", choices=("yes", "no"))
    rows = jobs_to_rows([replace(job, job_id=str(number)) for number in range(_VIDEOS)])

    with PlanWriter(*store, seal=NO_KEY) as writer:
        writer.add(rows, [1] * _VIDEOS)

    [last] = read_shard(*store, _VIDEOS - 1, seal=NO_KEY).jobs
    assert last == replace(job, job_id=str(_VIDEOS - 1))
