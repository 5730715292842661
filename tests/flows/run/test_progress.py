import hashlib
import time
from resource import RUSAGE_SELF, getrusage

import pytest

from flows.run.progress import Progress
from tasks.domain import RunPhase

_SPIN_S = 0.5


def test_a_run_whose_jobs_all_failed_reports_no_bottleneck():
    progress = Progress(processes=1)
    with progress.profile.doing(RunPhase.LOAD):
        time.sleep(0.05)
    progress.jobs_failed = 8

    assert progress.columns()["bottleneck"] == ""
    progress.jobs_labelled = 1
    assert "put more jobs into one run" in progress.columns()["bottleneck"]


def test_work_of_the_own_process_is_measured_once_the_engine_is_loaded():
    progress = Progress(processes=1)
    _hash_for(_SPIN_S)
    assert progress.own_cores == 0.0

    progress.start_cpu_clock()
    before_s, began_s = _cpu_s(), time.perf_counter()
    _hash_for(_SPIN_S)
    time.sleep(_SPIN_S)

    used = (_cpu_s() - before_s) / (time.perf_counter() - began_s)  # of a core: a half, or less beside others
    assert progress.own_cores == pytest.approx(used, rel=0.2)


def _cpu_s():
    return sum(getrusage(RUSAGE_SELF)[:2])


def _hash_for(seconds):
    ends_s, data = time.perf_counter() + seconds, bytes(1_000_000)
    while time.perf_counter() < ends_s:
        hashlib.sha256(data)
