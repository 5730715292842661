import json
import os
import subprocess
import sys

import pytest

from flows.run.result import cost_lines
from tasks.domain import RunCost, RunPhase
from tasks.domain.cost import format_price, part_of_tally, tallied


def cost(wall_ms, *, jobs=100, **engines):
    return RunCost(jobs=jobs, wall_ms=wall_ms, **{"gpus": 0} | engines, prompt_tokens=900, cached_tokens=300)


WALL_MS = {"setup": 500, "engine start": 8000, "answer": 6000, "decode": 3000, "fetch": 1000, "engine end": 2000}


def test_an_engine_counts_from_its_start_to_its_end():
    got = cost(WALL_MS)

    assert got.held_ms == 20_000
    assert got.loaded_ms == 10_000
    assert got.jobs_per_s == 10
    assert got.jobs_per_hour_held == pytest.approx(18_000)


def test_an_engine_that_began_to_start_before_the_run_is_held_since_then():
    row = {"wall_ms": WALL_MS, "stage_ms": {"engine start": 38_000}, "engines": 1, "gpus": 0}
    row |= {"jobs_labelled": 99, "jobs_failed": 1, "prompt_tokens": 0, "cached_tokens": 0}
    row |= {"bottleneck": "", "videos_rewritten": 0, "cost": None}

    assert RunCost.of_run(row).held_ms == 50_000
    never_waited = {part: ms for part, ms in WALL_MS.items() if part != "engine start"}
    assert RunCost.of_run(row | {"wall_ms": never_waited}).ahead_ms == 38_000
    assert dict(cost_lines(row)) == {
        "jobs per second": "10.0 after engine start; 7,200 per engine-hour held, including start",
        "engine": "38.0 s to start, 30.0 s of them before the run needed it, then 60% answering; "
        "waited for: 30% decode, 10% fetch",
    }


def test_hours_are_those_of_held_gpus_and_of_decoding_processes():
    stages = {"engine start": 38_000, "fetch": 600_000, "decode": 1_000_000, "cache write": 200_000, "inference": 9e9}

    got = cost(WALL_MS, gpus=4, stage_ms=stages)

    assert got.gpu_ms == 50_000 * 4
    assert got.cpu_hours == pytest.approx(1800 / 3600)


def test_an_engine_without_a_gpu_counts_as_a_cpu():
    got = cost(WALL_MS, engines=2, stage_ms={"decode": 60_000})

    assert got.gpu_ms == 0
    assert got.cpu_hours == pytest.approx((20 * 2 + 60) / 3600)


def test_every_gpu_counts_separately():
    assert cost(WALL_MS, gpus=4).jobs_per_hour_held == pytest.approx(4_500)


def test_every_engine_counts_separately():
    assert cost(WALL_MS, engines=2).jobs_per_hour_held == pytest.approx(9_000)
    assert cost(WALL_MS, engines=2, gpus=4).jobs_per_hour_held == pytest.approx(4_500)


def test_time_in_which_only_others_work_is_not_charged_to_the_engine():
    assert cost(WALL_MS | {"work elsewhere": 9000}).held_ms == 20_000


def test_shares_refer_to_the_time_for_which_the_engine_was_loaded():
    got = cost(WALL_MS)

    assert got.busy == 0.6
    assert got.waits == [(RunPhase.DECODE, 0.3), (RunPhase.FETCH, 0.1)]


def test_a_run_that_asks_nothing_costs_nothing():
    got = cost({"audit": 30}, jobs=0)

    assert (got.loaded_ms, got.held_ms, got.jobs_per_s, got.jobs_per_hour_held, got.busy, got.waits) == (0,) * 5 + ([],)
    assert got.cpu_hours == cost(WALL_MS, gpus=1).cpu_hours == 0


def test_sums_are_the_same_in_every_process():
    code = "from tasks.domain import RunCost; import sys, json; w = json.loads(sys.argv[1]); "
    code += "print(RunCost(jobs=1, wall_ms=w, gpus=0, prompt_tokens=0, cached_tokens=0).loaded_ms)"
    wall_ms = json.dumps({part: 10 ** (number % 7) / 3 for number, part in enumerate(RunPhase)})
    command = [sys.executable, "-c", code, wall_ms]

    seeds = [os.environ | {"PYTHONHASHSEED": str(seed)} for seed in range(1, 9)]
    sums = {subprocess.run(command, env=seed, capture_output=True, check=True).stdout for seed in seeds}

    assert len(sums) == 1


def test_a_run_has_a_cost_once_it_has_ended():
    assert RunCost.of_run({"wall_ms": None}) is None


def test_a_part_of_a_tally_is_what_was_tallied():
    tally = tallied("stage_ms", {"decode": 2.0, "fetch": 1.0}) | tallied("stage", {"x": 3.0}) | {"jobs": 4.0}

    assert tally.keys() == {"stage_ms.decode", "stage_ms.fetch", "stage.x", "jobs"}
    assert part_of_tally(tally, "stage_ms") == {"decode": 2.0, "fetch": 1.0}


@pytest.mark.parametrize(
    ("value", "text"), [(1234.5, "1,234.50"), (0.1, "0.10"), (0.0994, "0.099"), (0.000123, "0.00012"), (0.0, "0")]
)
def test_a_small_price_has_two_digits_and_any_other_two_decimals(value, text):
    assert format_price(value) == text
