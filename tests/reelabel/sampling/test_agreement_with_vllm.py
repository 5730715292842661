"""Every sampler of vLLM compared with the installed vLLM's own function, including refusals."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from reelabel.errors import SamplingRefusedError
from reelabel.sampling.options import Sampling
from reelabel.sampling.registry import BUILT_IN, choose_indices, find_sampler
from reelabel.sampling.spec import VideoProperties
from tests.engine_python import run_by_engine
from tests.reelabel.sampling.test_choose_indices import KNOWN

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("samplers-of-vllm")]

LOADER = "vLLM's loader "
LOADER_OF = {
    name: spec.source.removeprefix(LOADER) for name, spec in BUILT_IN.items() if spec.source.startswith(LOADER)
}
SAMPLERS = tuple(LOADER_OF)
# They differ in what they decode with, or hand on beside the frames.
SAME_CHOICE = {"nemotron_vl": "uniform", "pynvvideocodec": "uniform"}
SOURCES_EACH = 3500
COMMON_FPS = (1.0, 10.0, 12.5, 15.0, 24000 / 1001, 24.0, 25.0, 30000 / 1001, 30.0, 50.0, 60000 / 1001, 60.0, 120.0)
EXTREMES = tuple(
    (total, fps, duration)
    for total, fps in product((1, 2, 3, 4, 451, 1_000_000), (0.0, 0.01, 0.9, 24.0, 1000.0))
    for duration in {0.0, total / fps if fps else 0.0}
)


def make_source(rng):
    total = int(rng.integers(1, 60)) if rng.random() < 0.3 else int(10 ** rng.uniform(0, 4.7))
    rates = [0.0, rng.choice(COMMON_FPS), rng.integers(1, 121), rng.uniform(0.1, 240)]
    fps = rng.choice(rates, p=[0.04, 0.48, 0.24, 0.24])
    duration = total / fps if fps else 0.0
    # Some containers state a duration that does not fit, or none.
    stated = rng.choice(
        [duration, 0.0, duration * rng.uniform(0.5, 2), 10 ** rng.uniform(-2, 5)], p=[0.8, 0.06, 0.1, 0.04]
    )
    return total, float(fps), float(stated)


def make_options(sampler, rng):
    spec = BUILT_IN[sampler]
    options = {"num_frames": int(rng.integers(1, 513))}
    if "num_frames" in spec.unlimited and rng.random() < 0.1:
        options["num_frames"] = -1
    fps = rng.choice([float(rng.integers(1, 9)), rng.uniform(0.05, 12), rng.uniform(12, 60)], p=[0.6, 0.3, 0.1])
    drawn = {
        "fps": float(fps),
        "max_duration_s": float(10 ** rng.uniform(0, 2.7)),
        "min_frames": int(rng.integers(1, 20)),
        "max_frames": int(rng.integers(20, 769)) if rng.random() < 0.9 else 20,
        "frame_sample_mode": str(rng.choice(["fps", "uniform_last_frame", "every_frame"])),
    }
    if "fps" in spec.unlimited and rng.random() < 0.2:
        drawn["fps"] = -1.0
    drawn |= {name: min(drawn[name], most) for name, most in spec.at_most}
    options |= {name: drawn[name] for name in drawn if name in spec.options and rng.random() < 0.6}
    if options.get("frame_sample_mode") == "every_frame" or (
        options.get("frame_sample_mode") == "fps" and options.get("fps") == -1
    ):
        options.pop("fps", None)
    return options


def make_cases(sampler, loader=None):
    rng = np.random.default_rng(SAMPLERS.index(sampler))
    sources = [*EXTREMES, *(make_source(rng) for _ in range(SOURCES_EACH))]
    names = {"sampler": sampler, "loader": loader or LOADER_OF[sampler]}
    cases = [{"options": make_options(sampler, rng), "source": source} for source in sources]
    cases += [{name: known[name] for name in ("options", "source")} for known in KNOWN if known["sampler"] == sampler]
    return [names | case for case in cases]


@pytest.fixture(scope="module")
def vllm(tmp_path_factory):
    """vLLM's answers to all cases, and which loader it uses for which processor."""
    folder = tmp_path_factory.mktemp("vllm")
    cases = [case for sampler in SAMPLERS for case in make_cases(sampler)]
    cases += [case for loader, sampler in SAME_CHOICE.items() for case in make_cases(sampler, loader)]
    (folder / "cases.json").write_text(json.dumps(cases))
    script = Path(__file__).with_name("ask_vllm.py")
    run_by_engine(script, folder / "cases.json", folder / "answers.npz", cwd=folder)
    return cases, np.load(folder / "answers.npz")


@pytest.fixture(scope="module")
def answers_of_vllm(vllm):
    """By sampler, pairs of a case and vLLM's indices; None where it refuses, or is left without a frame."""
    cases, answers = vllm
    chosen = np.split(answers["indices"], np.cumsum(answers["counts"].clip(min=0))[:-1])
    by_sampler = {sampler: [] for sampler in SAMPLERS}
    for case, count, indices in zip(cases, answers["counts"], chosen, strict=True):
        by_sampler[case["sampler"]].append((case, indices.tolist() if count > 0 else None))
    return by_sampler


def choose(case):
    total, fps, duration = case["source"]
    try:
        return choose_indices(
            Sampling(sampler=case["sampler"], **case["options"]),
            VideoProperties(total_frames=total, fps=fps, duration_s=duration),
        ).tolist()
    except SamplingRefusedError:
        return None


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_indices_and_refusals_equal_those_of_vllm(sampler, answers_of_vllm):
    answers = answers_of_vllm[sampler]

    different = [(case, expected, got) for case, expected in answers if (got := choose(case)) != expected]

    assert different[:3] == []
    assert sum(expected is not None for _, expected in answers) >= 2000


def test_samplers_claim_the_processors_for_which_vllm_uses_their_loader(vllm):
    ours = {f"{processor} {loader}" for name, loader in LOADER_OF.items() for processor in BUILT_IN[name].processors}

    assert ours == set(vllm[1]["processors"].tolist())


def test_samplers_claim_the_model_types_for_which_transformers_has_those_processors(vllm):
    ours = {f"{each} {loader}" for name, loader in LOADER_OF.items() for each in BUILT_IN[name].model_types}

    assert ours - {"openpangu_vl openpangu"} == set(vllm[1]["model_types"].tolist())


def test_no_loader_of_vllm_is_passed_over(vllm):
    loaders = set(vllm[1]["loaders"].tolist())

    assert {*LOADER_OF.values(), *SAME_CHOICE} == loaders
    assert {find_sampler(name).name for name in loaders} == set(SAMPLERS)
