import hashlib
import time
from resource import RUSAGE_SELF, getrusage

import pytest

from flows.run.progress import Progress
from flows.shard.report import ShardReport
from infra.errors import BudgetReachedError
from infra.settings import CostSettings
from tasks.domain import RunPhase, WallClockProfile
from tasks.domain.cost import tallied
from tasks.plans.plan import ShardSums

_SPIN_S = 0.5


def test_a_run_whose_jobs_all_failed_reports_no_bottleneck():
    progress = Progress(processes=1)
    with progress.profile.doing(RunPhase.LOAD):
        time.sleep(0.05)
    progress.tally["jobs_failed"] = 8

    assert progress.columns()["bottleneck"] == ""
    progress.tally["jobs_labelled"] = 1
    assert "put more jobs into one run" in progress.columns()["bottleneck"]


def test_the_price_is_of_held_gpus_and_of_decoding_processes_and_is_a_runs_budget():
    prices = CostSettings(per_gpu_hour=3.6e5, per_cpu_hour=3.6e3)  # 0.1 a millisecond of a GPU, 1 a second of a CPU
    progress = Progress(processes=1, prices=prices, max_cost=27.9)
    stages = {"fetch": 1000.0, "decode": 2000.0, "cache write": 500.0, "inference": 9e9}
    tally = tallied("stage_ms", stages) | tallied("engines_ms", {"answer": 11.0}) | {"gpu_ms": 245.0}

    progress.take_over(ShardSums(tally, engines=2, gpus=9), earlier=progress.tally)

    assert progress.columns()["cost"] == pytest.approx(24.5 + 3.5)
    assert not progress.is_over_budget()  # without an answer, the next run would get no further
    progress.tally["jobs_labelled"] = 1
    with pytest.raises(BudgetReachedError, match=r"The run has cost 28\.00, and run\.max_cost is 27\.90"):
        progress.require_budget()


def test_gpus_are_charged_for_as_long_as_a_worker_holds_them():
    report = ShardReport(index=0, tally={"jobs_labelled": 1}, between_s={})

    row = report.row({"engine start": 2.0, "answer": 10.0, "setup": 5.0, "audit": 5.0}, 8)

    assert row["gpus"] == 8
    assert (row["tally"]["jobs_labelled"], row["tally"]["gpu_ms"]) == (1, 8 * 12)


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


def test_the_time_of_engines_elsewhere_replaces_that_of_the_run_but_for_its_own_parts():
    progress = Progress(processes=1)
    progress.profile = WallClockProfile(clock_s=iter([0.0, 1.0, 3.0, 10.0, *[10.0] * 20]).__next__)
    with progress.profile.doing(RunPhase.SETUP):
        pass
    with progress.profile.doing(RunPhase.ELSEWHERE):
        pass
    engines = {"engine start": 40.0, "answer": 20.0, "setup": 9e9, "audit": 9e9, "work elsewhere": 9e9}

    progress.take_over(ShardSums(tallied("engines_ms", engines) | {"jobs_labelled": 2}, engines=2, gpus=4), earlier={})

    wall_ms = progress.columns()["wall_ms"]
    assert {part: wall_ms[part] for part in ("engine start", "answer")} == {"engine start": 20.0, "answer": 10.0}
    assert wall_ms["setup"] == 2000
    assert not {"work elsewhere", "audit"} & wall_ms.keys()


def test_what_a_plan_takes_over_adds_to_earlier_plans_and_never_shrinks_engines():
    progress = Progress(processes=1)

    progress.take_over(ShardSums({"jobs_labelled": 2, "jobs_failed": 1}, engines=3, gpus=6), earlier={})
    assert (progress.jobs_ended, progress.engines, progress.gpus) == (3, 3, 6)
    progress.take_over(ShardSums({"jobs_labelled": 4}, engines=1, gpus=2), earlier={"jobs_labelled": 2})

    assert (progress.jobs_ended, progress.engines, progress.gpus) == (6, 3, 6)


def test_without_a_price_or_a_limit_no_run_is_over_its_budget():
    spent = {"jobs_labelled": 1, "gpu_ms": 9e12, "engines_ms.answer": 1.0}
    unpriced, unlimited = Progress(processes=1, max_cost=1), Progress(processes=1, prices=CostSettings(per_gpu_hour=1))
    for progress in (unpriced, unlimited):
        progress.take_over(ShardSums(spent, engines=1, gpus=1), earlier={})
        progress.require_budget()

    assert unpriced.columns()["cost"] is None
    assert unlimited.columns()["cost"] == pytest.approx(2.5e6)
