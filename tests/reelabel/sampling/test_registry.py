"""A sampler of another package is used like a built-in one, without a change to this repository."""

import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from flows.compare.candidates import format_sampling, parse_sampler
from infra.settings import SamplingOptions, SamplingSettings
from reelabel.errors import ConfigurationError, InvalidOptionError, SamplingRefusedError
from reelabel.extract import extract_local
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.sampling import registry
from reelabel.sampling.options import Sampling
from reelabel.sampling.registry import (
    BUILT_IN,
    SAMPLER_OPTIONS,
    choose_indices,
    find_sampler,
    native_sampler,
    register,
    samplers,
)
from reelabel.sampling.spec import DenseOption, RoutingOption, VideoProperties
from tests.clips import make_clip
from tests.command_line import reelabel
from tests.reelabel.sampling.every_nth import EVERY_NTH

__all__ = ["make_clip"]

ROOT = Path(__file__).parents[3]

FACTS = VideoProperties(total_frames=48, fps=12.0, duration_s=4.0)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Let a test register samplers of its own."""
    monkeypatch.setattr(registry, "_registered", dict(BUILT_IN))


@pytest.fixture
def every_nth():
    register(EVERY_NTH)
    return EVERY_NTH


@pytest.fixture
def distribution(tmp_path):
    """Make an installed distribution that has only this sampler; return the environment of a process that sees it."""

    def make(value="reelabel_every_nth:EVERY_NTH", name="every_nth"):
        folder = tmp_path / "site"
        info = folder / "reelabel_every_nth-1.0.dist-info"
        info.mkdir(parents=True)
        source = (Path(__file__).parent / "every_nth.py").read_text()
        (folder / "reelabel_every_nth.py").write_text(source.replace('name="every_nth"', f'name="{name}"'))
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: reelabel-every-nth\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[reelabel.samplers]\n{name} = {value}\n")
        path = os.pathsep.join([str(ROOT), str(folder)])
        return os.environ | {"PYTHONPATH": path, "REELABEL_HOME": str(tmp_path / "home"), "COLUMNS": "120"}

    return make


def frames_in_a_process(environment, *arguments):
    return command_in_a_process(environment, "frames", *arguments)


def command_in_a_process(environment, *arguments):
    command = [sys.executable, "-m", "flows.cli.main", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.usefixtures("every_nth")
def test_a_registered_sampler_chooses_the_frames_of_a_video(make_clip):
    clip = make_clip(frames=48, gop=12, b_frames=2)

    got = extract_local(clip, sampling=Sampling(sampler="every_nth", num_frames=4), limits=Limits())

    assert got.sampler == "every_nth"
    assert got.selection.frame_index[got.shown].tolist() == [0, 12, 24, 36]
    assert got.deviation_s is None


@pytest.mark.usefixtures("every_nth")
def test_decoding_processes_use_the_sampler_registered_here(make_clip):
    clip = make_clip(frames=48, gop=12)

    with DecodePool(processes=1, timeout_s=60, memory_mib=4096) as pool:
        got = pool.extract(clip, sampling=Sampling(sampler="every_nth", num_frames=3), limits=Limits())

    assert got.selection.frame_index[got.shown].tolist() == [0, 16, 32]


@pytest.mark.usefixtures("every_nth")
def test_the_command_line_takes_a_registered_sampler(make_clip, tmp_path):
    clip = make_clip(frames=48, gop=12)
    kept = {name: os.environ[name] for name in ("PATH", "REELABEL_MODEL_NAME")}
    environment = kept | {"REELABEL_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}

    completed = reelabel(environment, "frames", "--json", str(clip), "--sampler", "every_nth", "--num-frames", "4")

    assert completed.returncode == 0, completed.stderr
    shown = json.loads(completed.stdout)
    assert (shown["sampler"], [pick["frame_index"] for pick in shown["picks"]]) == ("every_nth", [0, 12, 24, 36])


@pytest.mark.usefixtures("every_nth")
def test_settings_forms_candidates_and_models_know_a_registered_sampler():
    form, options = (kind.model_json_schema()["properties"] for kind in (SamplingSettings, SamplingOptions))

    assert SamplingOptions(sampler="auto", dense_sampler="every_nth").dense_sampler == "every_nth"
    native, *dense = options["dense_sampler"]["anyOf"][0]["enum"]
    assert form["sampler"]["enum"] == [native, "keyframes", "auto", "relevant", *dense]
    assert form["sampler"]["enum"][-1] == "every_nth"
    assert "every_nth (every n-th frame, from the first on)" in form["sampler"]["description"]
    assert parse_sampler("every_nth:8").sampler == "every_nth"
    assert format_sampling(Sampling(sampler="every_nth", num_frames=8)) == "every_nth:8"
    assert native_sampler(processor="EveryNthVideoProcessor", model_type="any") == EVERY_NTH


@pytest.mark.usefixtures("every_nth")
def test_options_that_the_sampler_does_not_take_are_refused():
    with pytest.raises(
        InvalidOptionError, match="the sampler every_nth takes no fps; leave it out, or choose the sampler"
    ):
        Sampling(sampler="every_nth", fps=2)


@pytest.mark.system
def test_an_installed_sampler_is_found_by_its_entry_point(distribution, make_clip):
    clip, environment = make_clip(frames=48, gop=12), distribution()

    completed = frames_in_a_process(environment, "--json", str(clip), "--sampler", "every_nth", "--num-frames", "4")
    listed = command_in_a_process(environment, "samplers", "--json").stdout

    assert completed.returncode == 0, completed.stderr
    shown = json.loads(completed.stdout)
    assert (shown["sampler"], [pick["frame_index"] for pick in shown["picks"]]) == ("every_nth", [0, 12, 24, 36])
    facts = {each["sampler"]: each["shows"] for each in map(json.loads, listed.splitlines())}
    assert facts["every_nth"] == "every n-th frame, from the first on"


@pytest.mark.parametrize(
    ("entry_point", "message"),
    [
        ({"name": "uniform"}, "Two samplers are named uniform; rename or uninstall one of them."),
        (
            {"value": "reelabel_every_nth:NOTHING"},
            "every_nth of reelabel-every-nth (reelabel_every_nth:NOTHING) cannot",
        ),
        ({"value": "reelabel_every_nth:np"}, "(reelabel_every_nth:np) is not a SamplerSpec; name its record."),
    ],
)
def test_an_installed_sampler_that_cannot_be_used_is_named(distribution, entry_point, message):
    use = "from reelabel.sampling.options import Sampling; Sampling(sampler='every_n')"

    completed = subprocess.run(
        [sys.executable, "-c", use], env=distribution(**entry_point), capture_output=True, text=True, check=False
    )

    assert message in completed.stderr.splitlines()[-1]


def test_the_command_line_says_which_installed_sampler_cannot_be_used(distribution, make_clip):
    completed = frames_in_a_process(distribution(name="uniform"), str(make_clip()), "--sampler", "every_n")

    assert completed.returncode == 2
    assert "Two samplers are named uniform; rename or uninstall one of them." in " ".join(completed.stderr.split())
    assert "Traceback" not in completed.stderr


def test_two_samplers_of_one_name_are_refused():
    register(EVERY_NTH)
    register(replace(EVERY_NTH))  # an equal record is the same sampler

    with pytest.raises(ConfigurationError, match="Two samplers are named every_nth"):
        register(replace(EVERY_NTH, summary="another"))
    with pytest.raises(ConfigurationError, match="Two samplers are named uniform"):
        register(replace(EVERY_NTH, name="uniform"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "Every Nth"}, "'Every Nth' cannot name a sampler; use lowercase letters"),
        ({"name": "native"}, "'native' cannot name a sampler"),
        ({"choose": None}, "The sampler every_nth has no function `choose`"),
        ({"options": frozenset({"step", "fps"})}, "every_nth takes unknown options, step; a sampler can take fps,"),
        ({"options": frozenset({"max_gap_s"})}, "every_nth takes unknown options, max_gap_s"),
    ],
)
def test_an_invalid_record_is_refused(change, message):
    with pytest.raises(ConfigurationError, match=message):
        register(replace(EVERY_NTH, **change))


@pytest.mark.parametrize("positions", [np.array([0, 48]), np.array([-1, 3]), np.array([0.0, 1.0]), np.array([[0, 1]])])
def test_positions_that_the_video_lacks_are_refused(positions):
    register(replace(EVERY_NTH, choose=lambda *_: positions))

    with pytest.raises(SamplingRefusedError, match="returned no positions among the video's 48 frames"):
        choose_indices(Sampling(sampler="every_nth", num_frames=4), FACTS)


def test_positions_may_come_as_a_list():
    register(replace(EVERY_NTH, choose=lambda *_: [3, 5]))

    indices = choose_indices(Sampling(sampler="every_nth", num_frames=4), FACTS)

    assert (indices.tolist(), indices.dtype) == ([3, 5], np.int64)


def test_a_misspelled_sampler_gets_a_suggestion():
    with pytest.raises(ValueError, match=r"Unknown sampler unifrom; did you mean uniform\?"):
        find_sampler("unifrom")
    with pytest.raises(ValueError, match="Unknown sampler zzz; use one of keyframes, auto, relevant, uniform, "):
        find_sampler("zzz")
    with pytest.raises(ValueError, match=r"Unknown sampler z{100}\.\.\. \(1,000,000 characters\); use"):
        find_sampler("z" * 1_000_000)


def test_the_samplers_together_take_exactly_the_options_that_exist():
    common = {
        "sampler",
        "num_frames",
        "max_pixels",
        "size_multiple_px",
        "frame_recovery",
        "drop_similar",
        "jpeg_quality",
        "hdr",
    }

    assert {each.name for each in fields(Sampling)} - common == SAMPLER_OPTIONS
    assert not set(get_args(DenseOption)) & set(get_args(RoutingOption))
    assert frozenset.union(*(spec.options for spec in BUILT_IN.values())) == SAMPLER_OPTIONS


def test_no_two_samplers_claim_one_model():
    for field in ("processors", "model_types"):
        claimed = [each for spec in samplers().values() for each in getattr(spec, field)]
        assert len(claimed) == len(set(claimed)), field


@pytest.mark.parametrize(
    ("model", "sampler"),
    [
        ({"processor": "Qwen3VLVideoProcessor", "model_type": "qwen2_vl"}, "qwen3_vl"),
        ({"model_type": "glm4v"}, "dynamic"),
        ({"processor": "LlavaOnevisionVideoProcessor", "model_type": "qwen2_vl"}, None),
        ({"model_type": "another"}, None),
        ({}, None),
    ],
)
def test_the_native_sampler_is_recognised_by_the_models_processor(model, sampler):
    found = native_sampler(**model)

    assert (found and found.name) == sampler


def test_native_is_refused_where_no_model_is_known():
    with pytest.raises(InvalidOptionError, match="native stands for a model's sampler, and no model is known here"):
        Sampling(sampler="native")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_frames": 0}, "must be at least 1, or -1 for every frame"),
        ({"num_frames": -2}, "must be at least -1"),
        ({"sampler": "fps", "fps": 0}, "must be greater than 0, or -1 for the rate of the video itself"),
        ({"sampler": "qwen2_vl", "fps": -1}, "the sampler qwen2_vl takes no fps of -1; use a number greater than 0"),
        ({"sampler": "openpangu", "num_frames": -1}, "the sampler openpangu takes no num_frames of -1"),
        ({"sampler": "auto", "dense_sampler": "molmo2", "num_frames": -1}, "the sampler molmo2 takes no num_frames"),
        ({"sampler": "qwen3_vl", "max_frames": 769}, "the sampler qwen3_vl takes a max_frames of at most 768, not 769"),
        ({"sampler": "embedding_gemma2", "fps": 61}, "the sampler embedding_gemma2 takes a fps of at most 60, not 61"),
        ({"sampler": "molmo2", "frame_sample_mode": "fps", "fps": -1}, "the frame_sample_mode fps takes no fps of -1"),
        ({"sampler": "molmo2", "frame_sample_mode": "every_frame", "fps": 1}, "every_frame takes no fps; leave it out"),
        ({"frame_recovery": False}, "the sampler keyframes replaces no frames; leave out frame_recovery"),
        ({"sampler": "qwen2_vl", "min_frames": 9, "max_frames": 8}, r"min_frames \(9\) exceeds max_frames \(8\)"),
        ({"escalate_below": 1.01}, "escalate_below 1.01 is not a margin"),
        ({"escalate_below": -0.01}, "escalate_below -0.01 is not a margin"),
        ({"sampler": "auto", "motion_tasks": ["b", "a"], "still_tasks": ["a"]}, "a cannot be in both"),
        ({"sampler": "relevant", "times_ms": [5, 4]}, "times_ms do not increase"),
        ({"sampler": "fps", "min_frames": 4}, "takes no min_frames; .* the sampler qwen2_vl or qwen3_vl"),
        ({"sampler": "auto", "dense_sampler": "glm46v", "fps": 2}, "the sampler auto takes no fps; leave it out"),
    ],
)
def test_a_value_that_the_sampler_does_not_take_is_refused(options, message):
    with pytest.raises(InvalidOptionError, match=message):
        Sampling(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"num_frames": 1},
        {"num_frames": 2048},
        {"num_frames": -1},
        {"escalate_below": 0.0},
        {"escalate_below": 1.0},
        {"escalate_below": "fitted", "dense_sampler": "fps", "fps": 2.0, "frame_recovery": False},
        {"sampler": "uniform", "num_frames": -1, "fps": -1.0},
        {"sampler": "fps", "fps": 240.0, "max_frames": 2},
        {"sampler": "qwen2_vl", "min_frames": 8, "max_frames": 8},
        {"sampler": "qwen3_vl", "max_frames": 768},
        {"sampler": "embedding_gemma2", "fps": 60.0, "max_frames": 128},
        {"sampler": "glmga", "max_frames": 640},
        {"sampler": "molmo2", "frame_sample_mode": "every_frame", "num_frames": -1},
        {"sampler": "molmo2", "frame_sample_mode": "uniform_last_frame", "fps": -1.0},
        {"sampler": "relevant", "times_ms": (0, 1)},
        {"sampler": "auto", "dense_sampler": "fps", "fps": 3.0, "frame_recovery": False, "still_tasks": ("a",)},
    ],
)
def test_a_value_at_its_limit_is_taken(options):
    sampling = Sampling(**options)

    assert {name: getattr(sampling, name) for name in options} == options


def test_a_loader_of_vllm_names_one_sampler():
    assert {alias: spec.name for spec in samplers().values() for alias in spec.aliases} == {
        "opencv": "uniform",
        "nemotron_vl": "uniform",
        "pynvvideocodec": "uniform",
        "opencv_dynamic": "dynamic",
        "glm5next": "glm5_next",
    }


@pytest.mark.parametrize(
    ("uses_num_frames", "names"),
    [
        (True, "keyframes auto relevant uniform molmo2 openpangu llava_onevision2 num_frames middles"),
        (False, "dynamic qwen2_vl qwen3_vl glm46v glm5_next glmga minimax_m3_vl embedding_gemma2 clef_omni fps"),
    ],
)
def test_only_some_samplers_are_told_how_many_frames_to_show(uses_num_frames, names):
    assert [spec.name for spec in BUILT_IN.values() if spec.uses_num_frames == uses_num_frames] == names.split()


def test_a_spec_says_that_frames_are_replaced_only_if_they_are_not():
    on, off = (Sampling(sampler="fps", frame_recovery=recovers).to_dict() for recovers in (True, False))

    assert on == Sampling(sampler="fps").to_dict()
    assert off == on | {"frame_recovery": False}


@pytest.mark.parametrize(
    ("loader", "sampler"),
    [("opencv", "uniform"), ("opencv_dynamic", "dynamic"), ("glm5next", "glm5_next"), ("nemotron_vl", "uniform")],
)
def test_a_loader_of_vllm_names_the_sampler_that_chooses_as_it_does(loader, sampler):
    assert Sampling(sampler=loader) == Sampling(sampler=sampler)
    assert parse_sampler(loader) == parse_sampler(sampler)
    assert Sampling(sampler="auto", dense_sampler=loader).dense_sampler == sampler
