"""What a run shows while it runs: metrics, and log lines."""

import json
import re

import pytest

from tests.observed import dashboard_queries

pytestmark = pytest.mark.xdist_group("classify")  # they share a run


def test_the_endpoint_shows_how_jobs_ended_and_what_each_stage_took(metrics):
    values = {
        (sample.name, *sorted(sample.labels.items())): sample.value for family in metrics for sample in family.samples
    }
    dataset, extract, infer = ("dataset", "first"), ("stage", "extract"), ("stage", "infer")

    assert values["reelabel_jobs_total", dataset, ("outcome", "labelled"), infer] >= 50
    assert values["reelabel_jobs_total", dataset, ("outcome", "failed"), infer] == 7
    assert values["reelabel_failures_total", ("code", "video_missing"), dataset, extract, ("step", "fetch")] == 2
    steps = dict.fromkeys(("lookup", "fetch", "decode", "cache write"), extract)
    steps |= dict.fromkeys(("cache read", "preprocess", "inference", "database"), infer)
    for step, stage in steps.items():
        assert values["reelabel_step_duration_seconds_count", stage, ("step", step)] > 0, step
        assert values["reelabel_step_duration_seconds_sum", stage, ("step", step)] > 0, step
    assert values["reelabel_run_time_seconds", ("part", "engine start")] > 0
    assert values["reelabel_transferred_bytes_total", ("kind", "pixels"), extract] > 0
    assert values["reelabel_tokens_total", ("kind", "cached"), infer] > 0
    assert {("reelabel_shards_under_way", stage) for stage in (extract, infer)} <= values.keys()


def test_every_metric_and_label_of_the_dashboard_is_shown(metrics):
    labels = {}
    for family in metrics:
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)

    for title, query in dashboard_queries(interval="1m"):
        names = set(re.findall(r"reelabel_\w+", query))
        assert names, title
        assert names <= labels.keys(), title
        chosen = set(re.findall(r"(\w+)=~?\"", query))
        grouped = {label for group in re.findall(r"(?:by|ignoring) \(([^)]*)\)", query) for label in group.split(", ")}
        assert chosen | grouped <= set().union(*(labels[name] for name in names)), title


def test_log_lines_are_json_and_carry_run_shard_and_job(first_run):
    lines = [json.loads(line) for line in first_run.stderr.splitlines()]

    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    reports = [line for line in lines if line["message"].startswith("Shard ")]
    assert {line["shard"] for line in reports} == set(range(len(reports)))
    failures = [line for line in lines if line.get("code") == "video_missing"]
    assert "gone" in {line["job"] for line in failures}
    assert len(failures) == 2
    assert {(line["run"], line["plan"]) for line in (*reports, *failures)} == {(reports[0]["run"], reports[0]["plan"])}
    assert {line["stage"] for line in (*reports, *failures)} == {"infer"}
    assert {line["level"] for line in failures} == {"warning"}
