import pytest

from tasks.domain import Part, RunCost


def cost(wall_ms, *, jobs=100, gpus=0):
    return RunCost(jobs=jobs, wall_ms=wall_ms, gpus=gpus, prompt_tokens=900, cached_tokens=300)


WALL_MS = {"setup": 500, "engine start": 8000, "answer": 6000, "decode": 3000, "fetch": 1000, "engine end": 2000}


def test_the_engine_is_held_from_its_start_to_its_end():
    got = cost(WALL_MS)

    assert got.held_ms == 20_000
    assert got.loaded_ms == 10_000
    assert got.jobs_per_s == 10
    assert got.jobs_per_hour_held == pytest.approx(18_000)


def test_every_gpu_is_held_for_itself():
    assert cost(WALL_MS, gpus=4).jobs_per_hour_held == pytest.approx(4_500)


def test_shares_are_of_the_time_in_which_the_engine_could_answer():
    got = cost(WALL_MS)

    assert got.busy == 0.6
    assert got.waits == [(Part.DECODE, 0.3), (Part.FETCH, 0.1)]


def test_a_run_that_asks_nothing_costs_nothing():
    got = cost({"audit": 30}, jobs=0)

    assert (got.loaded_ms, got.held_ms, got.jobs_per_s, got.jobs_per_hour_held, got.busy, got.waits) == (0,) * 5 + ([],)
