"""An interrupted session, or one out of time, lists what it has not run, with and without workers."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.wait import until

_ROOT = Path(__file__).parents[1]
_CONFTEST = """
from pathlib import Path

import pytest
from tests.unfinished import UnfinishedSession

class Begun:
    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logstart(self, nodeid):
        if nodeid.endswith("test_second"):
            Path(__file__).with_name("begun").touch()

@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(UnfinishedSession(config.pluginmanager.get_plugin("terminalreporter")))
        config.pluginmanager.register(Begun())
"""
_TESTS = """
import threading

def test_first():
    pass

def test_second():
    threading.Event().wait(60)

def test_third():
    pass
"""


@pytest.mark.system
@pytest.mark.parametrize("workers", ["0", "1"])
def test_an_interrupted_session_lists_what_was_not_finished_and_not_begun(tmp_path, workers):
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    (tmp_path / "test_it.py").write_text(_TESTS)
    (tmp_path / "test_late.py").write_text("def test_one(): pass\n\ndef test_other(): pass\n")
    command = [sys.executable, "-m", "pytest", "-n", workers, "--rootdir", tmp_path, "-p", "no:cacheprovider"]
    run = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(_ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until((tmp_path / "begun").exists)
    os.killpg(run.pid, signal.SIGINT)

    shown, _ = run.communicate(timeout=180)

    assert run.returncode == pytest.ExitCode.INTERRUPTED
    assert "s: test_it.py::test_second" in shown
    assert "not begun: 1 of test_it.py" in shown
    assert "not begun: 2 of test_late.py" in shown


@pytest.mark.system
@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_session_that_is_out_of_time_lists_what_was_not_begun_and_passes(workers):
    command = [sys.executable, "-m", "pytest", "-n", workers, "-p", "no:cacheprovider", "--minutes", "0"]
    command += ["tests/reelabel/sampling/test_pick_evenly.py"]
    run = subprocess.run(command, check=False, cwd=_ROOT, capture_output=True, text=True)

    assert run.returncode == 0
    assert re.search("not begun: [0-9]+ of tests/reelabel/sampling/test_pick_evenly.py", run.stdout)
    assert "passed" not in run.stdout
