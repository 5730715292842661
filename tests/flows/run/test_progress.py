import hashlib
import time
from resource import RUSAGE_SELF, getrusage

import pytest

from flows.run.progress import Progress
from infra.errors import BudgetReachedError
from infra.settings import CostSettings
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


def test_the_price_is_of_held_gpus_and_of_decoding_processes_and_is_a_runs_budget():
    prices = CostSettings(per_gpu_hour=3.6e5, per_cpu_hour=3.6e3)  # 0.1 a millisecond of a GPU, 1 a second of a CPU
    progress = Progress(processes=1, prices=prices, max_cost=27.9)
    stages = {"fetch": 1000.0, "decode": 2000.0, "cache write": 500.0, "inference": 9e9}
    sums = {"stage_ms": stages, "engines_ms": {"answer": 11.0}, "engines": 2, "gpus": 9, "gpu_ms": 245.0}

    progress.take_over(sums, earlier=progress.sums())

    assert progress.columns()["cost"] == pytest.approx(24.5 + 3.5)
    assert not progress.is_over_budget()  # without an answer, the next run would get no further
    progress.jobs_labelled = 1
    with pytest.raises(BudgetReachedError, match=r"The run has cost 28\.00, and run\.max_cost is 27\.90"):
        progress.require_budget()


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
