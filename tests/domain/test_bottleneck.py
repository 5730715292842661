import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.settings import Settings
from tasks.domain import RunPhase
from tasks.domain.cost import describe_bottleneck
from tests.domain.test_cost import cost

SETTINGS = Settings()


def sentence(wall_ms, *, gpus=0, processes=2, cores=2):
    return describe_bottleneck(cost(wall_ms, gpus=gpus), processes=processes, cores=cores)


@pytest.mark.parametrize(
    ("wall_ms", "expected"),
    [
        pytest.param(
            {"answer": 38, "decode": 48, "fetch": 14},
            "The engine waited 62% of the time, 48% for decoding: "
            "give the run more cores, or run extraction on more machines.",
            id="decoding",
        ),
        pytest.param(
            {"answer": 97, "database": 3},
            "The engine was busy 97% of the time: a GPU, or fewer frames (sampling.num_frames), would help.",
            id="busy",
        ),
        pytest.param(
            {"answer": 60, "database": 30, "decode": 10},
            "The engine waited 40% of the time, 30% for the database: move it closer, or raise shard.target_jobs.",
            id="the database",
        ),
        pytest.param(
            {"engine start": 80, "answer": 5, "decode": 15},
            "Loading the model took 80% of the time the engine was held: put more jobs into one run.",
            id="loading",
        ),
        pytest.param({"setup": 5, "audit": 5}, "", id="nothing asked"),
    ],
)
def test_the_sentence_names_what_to_change(wall_ms, expected):
    assert sentence(wall_ms) == expected


def test_a_run_with_idle_cores_is_told_to_decode_on_them():
    assert "raise extract.processes from 2 to 16, the number of cores." in sentence({"decode": 1}, cores=16)


@pytest.mark.parametrize("part", ["decode", "fetch", "cache write", "cache read"])
def test_a_run_whose_own_process_is_busy_is_not_advised_to_add_cores(part):
    got = describe_bottleneck(cost({"answer": 40, part: 60}), processes=8, cores=16, own_cores=1.02)

    assert "extract in several flows (run.executor, run.extract_flows)." in got
    assert "extract.processes" not in got


def test_a_busy_process_is_not_blamed_if_the_engine_waits_for_something_else():
    got = describe_bottleneck(cost({"answer": 40, "database": 60}), processes=8, cores=16, own_cores=1.02)

    assert "raise shard.target_jobs" in got


def test_a_run_with_a_busy_gpu_is_advised_to_use_a_larger_one():
    assert "a larger or faster GPU, or fewer frames" in sentence({"answer": 1}, gpus=1)


@given(st.dictionaries(st.sampled_from(RunPhase), st.floats(0.001, 1e9)), st.integers(0, 8))
def test_for_any_parts_there_is_at_most_one_sentence_and_no_share_exceeds_100_percent(wall_ms, gpus):
    got = sentence(wall_ms, gpus=gpus)

    assert (got == "") == (cost(wall_ms).loaded_ms == 0)
    assert got == "" or got.endswith(".")
    shares = [int(word.rstrip("%,")) for word in got.split() if word.rstrip(",").endswith("%")]
    assert all(0 <= share <= 100 for share in shares)


@given(st.sampled_from(RunPhase), st.integers(1, 64))
def test_every_setting_it_names_exists(part, processes):
    got = sentence({part: 1.0}, processes=processes, cores=8)

    named = [word.strip("(),.:").split(".") for word in got.split() if "." in word.strip("(),.:")]
    assert all(hasattr(getattr(SETTINGS, section), field) for section, field in named)
