import os
import subprocess
import sys

import pytest
from prefect.client.orchestration import get_client

from infra.embedded import export
from tests.flows.test_classify import reelabel


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
    assert any(kind.get("maximum") == 512 for kind in fields["num_frames"]["anyOf"])
    assert (found["cpu"].work_pool_name, found["gpu"].work_pool_name) == ("cpu", "gpu")
    assert "if empty, every open plan" in found["gpu"].parameter_openapi_schema["properties"]["plan"]["description"]
    for name in ("on-demand", "by-ids"):
        sampling = found[name].parameter_openapi_schema["definitions"]["SamplingChoice"]["properties"]
        assert {"keyframes", "qwen2_vl"} <= set(sampling["sampler"]["anyOf"][0]["enum"])
        assert "such as 0.95" in sampling["drop_similar"]["description"]
    words = found["by-ids"].parameter_openapi_schema["definitions"]["Selection"]["properties"]
    assert all(word["description"] for word in words.values())
    assert {"failed", "code", "missing", "label", "margin_below", "run", "task", "where", "limit"} <= words.keys()
    assert words["margin_below"]["anyOf"][0] == {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
    assert words["since"]["anyOf"][0]["format"] == "date-time"
    assert "Orders in which each question's choices are shown" in fields["permutations"]["description"]
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
        shown = subprocess.run(
            [sys.executable, "-m", "flows.cli", *command.split(), "--help"], capture_output=True, text=True, check=True
        )
        assert "Example: reelabel" in shown.stdout
