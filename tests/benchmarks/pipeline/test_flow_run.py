import os
import time

import pytest

from benchmarks.cores import Cores
from benchmarks.media.footage import make_footage
from benchmarks.pipeline.flow_run import FlowRun
from benchmarks.pipeline.workload import Workload, make_jobs, write_manifest
from flows.run.spec import make_spec
from reelabel.sources.object_store import ObjectStore
from tasks.model.engine.process import EngineProcess
from tasks.model.engine.vllm_backend import engine_config
from tasks.model.identity import TINY_MODEL, read_model_card


@pytest.fixture
def flow_run(prefect_services, tmp_path):
    """The flow on three clips that stand on S3, two questions about each."""
    settings, card = prefect_services, read_model_card(str(TINY_MODEL))
    clips = make_footage(tmp_path, count=4, width_px=240, height_px=240)
    root_uri = f"{settings.store.uri}/measured"
    jobs = make_jobs(clips[1:], questions_per_video=2)
    warm_up = make_jobs(clips[:1], questions_per_video=1)
    workload = Workload(
        name="tiny", engine=engine_config(card, settings), spec=make_spec(card, settings), jobs=jobs, warm_up=warm_up
    )
    write_manifest(jobs, tmp_path / "manifest.parquet", root_uri=root_uri)
    objects = ObjectStore(settings.store)
    for path in (*clips, tmp_path / "manifest.parquet"):
        objects.replace(f"{root_uri}/{path.name}", path.read_bytes())
    return FlowRun(
        workload=workload,
        settings=settings,
        manifest_uri=f"{root_uri}/manifest.parquet",
        cache_uri=f"{root_uri}/cache",
        name="measured",
        cores=Cores(),
    )


@pytest.mark.system
@pytest.mark.usefixtures("prefect_api")
def test_a_measured_run_is_timed_from_the_loaded_model_to_the_last_answer(flow_run):
    start, variables, asked_s = EngineProcess.start, dict(os.environ), time.time()

    timing = flow_run.run(1)

    assert timing.jobs == len(timing.labels) == 6
    assert timing.prompt_tokens > 0
    assert timing.began_s - asked_s > timing.ended_s - timing.began_s  # loading takes longer than six answers
    assert timing.ended_s <= time.time()
    assert timing.note.startswith("Wall-clock profile of the run: ")
    assert EngineProcess.start is start
    assert dict(os.environ) == variables
