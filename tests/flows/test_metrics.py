"""What a whole run tells while it goes on: metrics at its endpoint, and log lines as JSON."""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from infra.embedded import export
from infra.embedded.processes import free_port
from tests.observed import MISSING, dashboard_queries, write_observed_manifest


@pytest.fixture(scope="module")
def observed(prefect_services, tmp_path_factory):
    """The last metrics that a run of some shards showed, five jobs without a video among them, and its log lines."""
    folder = tmp_path_factory.mktemp("observed")
    manifest = write_observed_manifest(folder)
    port = free_port()
    settings = {"REELABEL_METRICS_PORT": str(port), "REELABEL_LOG_FORMAT": "json", "REELABEL_SHARD_TARGET_JOBS": "50"}
    with (folder / "log").open("wb") as log:
        run = subprocess.Popen(
            [sys.executable, "-P", "-m", "flows.cli", "classify", str(manifest)],
            env=os.environ | export(prefect_services) | settings,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
    shown = ""
    while run.poll() is None:
        shown = _read(port) or shown
        time.sleep(0.1)
    text = (folder / "log").read_text()
    assert run.returncode == 1, text
    return shown, [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def _read(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return answer.read().decode()
    except OSError:
        return ""


def test_the_endpoint_shows_how_jobs_ended_and_what_each_stage_took(observed):
    values = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(observed[0])
        for sample in family.samples
    }
    dataset = ("dataset", "observed")

    assert values["reelabel_jobs_total", dataset, ("outcome", "labelled")] >= 50
    failed = ("reelabel_failures_total", ("code", "video_missing"), dataset, ("stage", "fetch"))
    assert values[failed] == values["reelabel_jobs_total", dataset, ("outcome", "failed")] == MISSING
    for stage in ("fetch", "decode", "cache write", "cache read", "preprocess", "inference", "database"):
        assert values["reelabel_stage_duration_seconds_count", ("stage", stage)] > 0, stage
        # A video on this machine is read as it is decoded, and not fetched before.
        assert values["reelabel_stage_duration_seconds_sum", ("stage", stage)] > 0 or stage == "fetch", stage
    assert values["reelabel_run_time_seconds", ("part", "engine start")] > 0
    assert values["reelabel_transferred_bytes_total", ("kind", "pixels")] > 0
    assert values["reelabel_tokens_total", ("kind", "cached")] > 0


def test_every_metric_and_label_of_the_dashboard_is_shown(observed):
    labels = {}
    for family in text_string_to_metric_families(observed[0]):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)

    for title, query in dashboard_queries(interval="1m"):
        names = set(re.findall(r"reelabel_\w+", query))
        assert names, title
        assert names <= labels.keys(), title
        chosen = set(re.findall(r"(\w+)=~?\"", query))
        grouped = {label for group in re.findall(r"(?:by|ignoring) \(([^)]*)\)", query) for label in group.split(", ")}
        assert chosen | grouped <= set().union(*(labels[name] for name in names)), title


def test_log_lines_are_json_and_carry_run_shard_and_job(observed):
    lines = observed[1]

    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    reports = [line for line in lines if line["message"].startswith("Shard ")]
    assert {line["shard"] for line in reports} == set(range(len(reports)))
    failures = [line for line in lines if line.get("code") == "video_missing"]
    assert {line["job"] for line in failures} == {f"gone-{number}" for number in range(MISSING)}
    assert {line["run"] for line in (*reports, *failures)} == {reports[0]["run"]}
    assert {line["level"] for line in failures} == {"warning"}
