"""A run by a server whose model is replaced in the middle: labels of the other one are never written."""

import pytest
from sqlalchemy import select

from tasks.database.tables import RESULT
from tasks.demo.clips import make_demo
from tests.command_line import reelabel
from tests.flows.runs import served_by
from tests.stub_server import serve_stub
from tests.vllm_server import gate

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("test_evaluate")]


def test_labels_of_a_model_that_took_the_place_of_another_are_not_written(own_environment, engine, tmp_path):
    jobs = make_demo(tmp_path, seed=11, clips=40)
    jobs.write_parquet(tmp_path / "clips.parquet")
    prompts, requests, replaced = set(jobs["prompt"]), [], []

    def replace(_path, body):
        text = body["messages"][-1]["content"][-1]["text"] if body and "messages" in body else ""
        if any(prompt in text for prompt in prompts):
            requests.append(text)
        if len(requests) > 2.75 * len(jobs):  # in the middle of the third run
            replaced.append(True)

    def classify(dataset, url):
        settings = {"REELABEL_SHARD_TARGET_JOBS": "50", "REELABEL_MODEL_MAX_CONCURRENT_SHARDS": "1"}
        environment = served_by(url, own_environment) | settings
        return reelabel(environment, "classify", str(tmp_path / "clips.parquet"), "--dataset", dataset)

    with serve_stub(weights=lambda: b"another" if replaced else b"") as stub, gate(stub, replace) as url:
        extracted, expected, run = (classify(dataset, url) for dataset in ("extracted", "expected", "replaced"))

    query = select(RESULT.c.job_id, RESULT.c.probabilities)
    with engine.connect() as connection:
        rows = {
            dataset: {
                row.job_id: tuple(row.probabilities)
                for row in connection.execute(query.where(RESULT.c.dataset == dataset))
            }
            for dataset in ("replaced", "expected")
        }
    assert [each.returncode for each in (extracted, expected, run)] == [0, 0, 2], run.stderr
    assert "answers with another model than at the start" in run.stderr
    assert len(rows["expected"]) == len(jobs)
    assert 0 < len(rows["replaced"]) < len(jobs) * 3 // 4
    assert rows["replaced"].items() <= rows["expected"].items()
