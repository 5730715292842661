import json
import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest

from infra.logs import JsonLines, PrintableRecord, json_copy, logged, logged_by_all, message_of
from tests.wait import until


def line_of(message, *arguments, error=None, **known):
    record = PrintableRecord("some.logger", logging.WARNING, "file.py", 1, message, arguments, error)
    vars(record).update(known)
    return JsonLines("default", None, "%").format(record)


def fields_of(**known):
    return json.loads(line_of("x", **known))


def test_a_message_that_looks_like_another_line_stays_one():
    line = line_of('%s\n{"level": "info"}', "clip", shard=0, job="a\nb")

    assert "\n" not in line
    assert json.loads(line)["message"] == 'clip␊{"level": "info"}'.replace("␊", "\n")
    assert json.loads(line)["job"] == "a␊b"
    assert json.loads(line)["shard"] == 0
    assert json.loads(line)["level"] == "warning"
    assert message_of(line) == json.loads(line)["message"]
    assert message_of("{no JSON") == "{no JSON"


def test_prefects_own_records_name_the_run_too():
    line = fields_of(flow_run_id="a-run", flow_name="classify", task_run_name="<unknown>")

    assert (line["run"], line["flow_run"]) == ("a-run", "a-run")
    assert "task" not in line


def test_the_flow_run_of_a_stage_is_not_taken_for_the_run_that_it_works_on():
    line = fields_of(flow_run_id="a-worker", flow_name="extract")

    assert (line["flow_run"], line["stage"]) == ("a-worker", "extract")
    assert "run" not in line
    with logged(run="a-run", plan="a-plan", shard=4, stage="extract"):
        line = fields_of(flow_run_id="a-worker", flow_name="extract")
    assert [line[name] for name in ("run", "plan", "shard", "stage", "flow_run")] == [
        *("a-run", "a-plan", 4, "extract", "a-worker")
    ]


def test_what_a_record_says_itself_goes_before_what_its_context_says():
    with logged(run="one", shard=1), logged(shard=2, plan=None):
        line = fields_of(run="other")

    assert (line["run"], line["shard"]) == ("other", 2)
    assert "plan" not in line
    assert "shard" not in fields_of()


def test_threads_say_what_their_context_or_the_whole_process_is_about():
    with ThreadPoolExecutor(1) as threads, logged_by_all(stage="infer"), logged(shard=7):
        bare = threads.submit(fields_of).result()
        copied = threads.submit(copy_context().run, fields_of).result()

    assert (bare["stage"], bare.get("shard")) == ("infer", None)
    assert (copied["stage"], copied["shard"]) == ("infer", 7)
    assert "stage" not in fields_of()


def test_an_error_is_logged_with_its_type():
    line = json.loads(line_of("x", error=(KeyError, KeyError("gone"), None)))

    assert "KeyError: 'gone'" in line["error"]


def test_lines_of_json_are_copied_and_any_other_becomes_the_message_of_one(tmp_path):
    path, own = tmp_path / "log", '{"message": "mine", "shard": 3}'
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with os.fdopen(json_copy(log, logger="engine"), "wb") as sink:
        child = subprocess.Popen(["sh", "-c", "read line; echo last >&2"], stdin=subprocess.PIPE, stderr=sink)
        sink.write(f"{own}\n\n".encode() + b"a\x1b[2J\xff\n[1]\n" + b"x" * 70_000 + b"\n")
    child.communicate(b"go on\n")
    until(lambda: "last" in path.read_text())

    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0] == json.loads(own)
    messages = [line["message"] for line in lines[1:]]
    assert [messages[0], messages[1], messages[-1]] == ["a␛[2J\N{REPLACEMENT CHARACTER}", "[1]", "last"]
    assert sum(message.count("x") for message in messages) == 70_000
    assert {line["logger"] for line in lines[1:]} == {"engine"}


@pytest.mark.parametrize(
    ("code", "message"),
    [
        pytest.param("import warnings; warnings.warn('old')", "UserWarning: old", id="warning"),
        pytest.param("1 / 0", "ZeroDivisionError: division by zero", id="uncaught exception"),
        pytest.param(
            "import threading; threading.Thread(target=lambda: [][1]).start()", "IndexError: list", id="in a thread"
        ),
        pytest.param(
            "class Odd:\n    def __del__(self): {}['k']\nOdd()", "Exception ignored in", id="where nobody can catch it"
        ),
    ],
)
def test_what_python_itself_prints_is_json(code, message):
    environment = os.environ | {"REELABEL_LOG_FORMAT": "json"}
    completed = subprocess.run(
        [sys.executable, "-P", "-c", f"import flows\n{code}"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    [line] = map(json.loads, completed.stderr.splitlines())
    assert message in line["message"]
    assert completed.stdout == ""
    assert completed.returncode == (1 if code == "1 / 0" else 0)
