import os

import pytest
from prefect.client.orchestration import get_client

from infra.embedded import export
from tasks.demo.clips import make_demo
from tests.command_line import reelabel, reelabel_process

pytestmark = pytest.mark.xdist_group("prefect")


@pytest.fixture(scope="module")
def environment(prefect_services):
    return os.environ | export(prefect_services) | {"COLUMNS": "160"}


@pytest.mark.usefixtures("prefect_api")
def test_deploying_twice_leaves_the_same_deployments_with_forms(environment):
    for _ in range(2):
        deployed = reelabel(environment, "deploy")
        assert deployed.returncode == 0, deployed.stderr
        assert "Deployed infer/gpu to work pool gpu." in deployed.stdout

    with get_client(sync_client=True) as client:
        found = {deployment.name: deployment for deployment in client.read_deployments()}
    assert found.keys() == {"on-demand", "nightly", "by-ids", "labelled", "manifests", "daily", "cpu", "gpu"}
    assert found["nightly"].paused
    assert str(found["nightly"].schedules[0].schedule.cron) == "0 2 * * *"
    assert found["on-demand"].entrypoint == "flows.classify.classify"
    fields = found["on-demand"].parameter_openapi_schema["properties"]
    assert "Parquet file of jobs" in fields["manifest"]["description"]
    assert (found["cpu"].work_pool_name, found["gpu"].work_pool_name) == ("cpu", "gpu")
    assert "if empty, every open plan" in found["gpu"].parameter_openapi_schema["properties"]["plan"]["description"]
    for name in ("on-demand", "by-ids"):
        groups = found[name].parameter_openapi_schema["definitions"]
        assert groups["SpecOverrides"]["properties"].keys() == {"model", "sampling", "prompts"}
        sampling, prompts = (groups[kind]["properties"] for kind in ("SamplingOptions", "PromptOptions"))
        assert any(kind.get("maximum") == 512 for kind in sampling["num_frames"]["anyOf"])
        assert "Orders in which each question's choices are shown" in prompts["permutations"]["description"]
        assert {"keyframes", "qwen2_vl"} <= set(sampling["sampler"]["anyOf"][0]["enum"])
        assert "such as 0.95" in sampling["drop_similar"]["description"]
    words = found["by-ids"].parameter_openapi_schema["definitions"]["Selection"]["properties"]
    assert all(word["description"] for word in words.values())
    assert {"failed", "code", "missing", "label", "margin_below", "run", "task", "where", "limit"} <= words.keys()
    assert words["margin_below"]["anyOf"][0] == {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
    assert words["since"]["anyOf"][0]["format"] == "date-time"
    ways = found["labelled"].parameter_openapi_schema["properties"]["samplers"]
    assert ways["default"] == ["keyframes"]
    assert "such as keyframes, uniform:32" in ways["description"]


def test_every_command_has_help_with_an_example():
    for command in (
        "demo",
        "up",
        "down",
        "status",
        "deploy",
        "catch-up",
        "classify",
        "backfill",
        "evaluate",
        "database roles",
        "database upgrade",
        "results",
        "calibrate",
        "audit",
        "frames",
        "prompt",
    ):
        shown = reelabel(os.environ, *command.split(), "--help")
        assert shown.returncode == 0, command
        assert "Example: reelabel" in shown.stdout


@pytest.mark.system
@pytest.mark.usefixtures("prefect_api")
def test_a_deployment_asks_chosen_jobs_where_the_worker_is(environment, tmp_path):
    make_demo(tmp_path, seed=77, clips=2).write_parquet(tmp_path / "manifest.parquet")
    first = reelabel(environment, "classify", str(tmp_path / "manifest.parquet"), "--dataset", "deployed")
    assert "Reconciled: 6 jobs = 6 labels + 0 failures." in first.stdout, first.stderr
    assert reelabel(environment, "deploy").returncode == 0
    of_it = ["--manifest", str(tmp_path / "manifest.parquet"), "--dataset", "deployed", "--submit", "--wait"]

    there = reelabel_process(environment, "backfill", "--ids", "clip-0001-colour", "--force", *of_it)
    failed = reelabel_process(environment, "backfill", "--ids", "nobody", *of_it)

    assert "1 (1 label, 0 failures)" in there.stdout, there.stderr
    assert failed.returncode == 1
    assert "run_failed: The run failed:" in failed.stderr
    assert "1 job id is not in the manifest: nobody" in " ".join(failed.stderr.split())
