import os
import time

import pytest

from benchmarks.cores import Cores
from benchmarks.media.footage import make_footage
from benchmarks.pipeline.flow import FlowRun
from benchmarks.pipeline.workload import WARM_UP_CLIPS, upload, workload_of
from tasks.model.engine.process import EngineProcess
from tasks.model.identity import TINY_MODEL


@pytest.fixture
def flow_run(prefect_services, tmp_path):
    """The flow on three clips that stand on S3, with a question about each."""
    settings = prefect_services
    clips = make_footage(tmp_path, count=WARM_UP_CLIPS + 3, width_px=240, height_px=240)
    model = settings.model.model_copy(update={"name": str(TINY_MODEL)})
    settings = settings.model_copy(update={"model": model})
    workload = workload_of(settings, clips)
    root_uri = f"{settings.store.uri}/measured"
    return FlowRun(
        workload=workload,
        settings=settings,
        manifest_uri=upload(workload, settings.store, root_uri),
        cache_uri=f"{root_uri}/cache",
        name="measured",
        cores=Cores(),
    )


@pytest.mark.system
@pytest.mark.usefixtures("prefect_api")
def test_a_measured_run_is_timed_from_the_loaded_model_to_the_last_answer(flow_run):
    start, variables, asked_s = EngineProcess.start, dict(os.environ), time.time()

    timing = flow_run.run(1)

    assert timing.jobs == len(timing.labels) == 3
    assert timing.prompt_tokens > 0
    assert timing.began_s - asked_s > timing.ended_s - timing.began_s  # loading takes longer than three answers
    assert timing.ended_s <= time.time()
    assert EngineProcess.start is start
    assert dict(os.environ) == variables
