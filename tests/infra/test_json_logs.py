import json
import logging

from infra.json_logs import JsonLines


def line_of(message, *arguments, error=None, **known):
    record = logging.getLogger("some.logger").makeRecord(
        "some.logger", logging.WARNING, "file.py", 1, message, arguments, error, extra=known
    )
    return JsonLines("default", None, "%").format(record)


def test_a_message_that_looks_like_another_line_stays_one():
    line = line_of('%s\n{"level": "info"}', "clip", shard=0, job="a\nb")

    assert "\n" not in line
    assert json.loads(line)["message"] == 'clip\n{"level": "info"}'
    assert json.loads(line)["job"] == "a␊b"
    assert json.loads(line)["shard"] == 0
    assert json.loads(line)["level"] == "warning"


def test_prefects_own_records_name_the_run_too():
    line = json.loads(line_of("x", flow_run_id="a-run", task_run_name="<unknown>"))

    assert line["run"] == "a-run"
    assert "task" not in line


def test_an_error_is_logged_with_its_type():
    line = json.loads(line_of("x", error=(KeyError, KeyError("gone"), None)))

    assert "KeyError: 'gone'" in line["error"]
