"""What any program prints becomes lines of JSON, and the program's end stays its own."""

import json
import signal
import subprocess
import sys

import pytest

from infra.json_filter import json_lines
from tests.wait import until

_FILTERED = [sys.executable, "-P", "-m", "infra.json_filter", sys.executable, "-c"]


def lines_of(output):
    return [json.loads(line) for line in output.splitlines()]


def test_lines_of_json_pass_and_any_other_becomes_the_message_of_one():
    own = '{"message": "mine", "shard": 3}'
    code = f"import os; print({own!r}); print(); os.write(2, b'a\\x1b[2J\\xff\\n'); print('[1]'); print('x' * 70_000)"

    ended = subprocess.run([*_FILTERED, code], capture_output=True, text=True, check=True)

    lines = lines_of(ended.stdout)
    assert json.loads(own) in lines
    assert {"a␛[2J\N{REPLACEMENT CHARACTER}", "[1]"} <= {line["message"] for line in lines}
    assert sum(line["message"].count("x") for line in lines) == 70_000
    assert all({"time", "level", "logger"} <= line.keys() for line in lines if line != json.loads(own))
    assert ended.stderr == ""


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param("raise SystemExit(7)", 7, id="exit code"),
        pytest.param("import os; os.abort()", 128 + signal.SIGABRT, id="signal"),
    ],
)
def test_it_ends_as_the_program_does(code, expected):
    assert subprocess.run([*_FILTERED, code], capture_output=True, check=False).returncode == expected


def test_signals_reach_the_program():
    code = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit('told')); "
        "print('ready', flush=True); signal.pause()"
    )
    filtering = subprocess.Popen([*_FILTERED, code], stdout=subprocess.PIPE, text=True)
    assert json.loads(filtering.stdout.readline())["message"] == "ready"

    filtering.terminate()

    assert json.loads(filtering.communicate(timeout=30)[0])["message"] == "told"
    assert filtering.returncode == 1


def test_a_log_is_filtered_until_the_last_process_that_writes_to_it_has_ended(tmp_path):
    path = tmp_path / "log"
    with json_lines(path.open("ab"), logger="engine") as output:
        child = subprocess.Popen(
            ["sh", "-c", "echo first; read line; echo last >&2"], stdin=subprocess.PIPE, stdout=output, stderr=output
        )
    child.communicate(b"go on\n")
    until(lambda: path.read_text().count("\n") >= 2)

    assert [(line["logger"], line["message"]) for line in lines_of(path.read_text())] == [
        ("engine", "first"),
        ("engine", "last"),
    ]
