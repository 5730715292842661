import pytest

from reelabel.errors import ConfigurationError
from reelabel_engine import devices
from reelabel_engine.devices import assign_gpus, compute_capabilities, gpu_memory_bytes, visible_gpus

GPUS = ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("gpus", "engines", "tensor_parallel_size", "expected"),
    [
        pytest.param(GPUS, "auto", 2, [("0", "1"), ("2", "3")], id="as many as the GPUs allow"),
        pytest.param(GPUS, 3, 1, [("0",), ("1",), ("2",)], id="one each"),
        pytest.param(GPUS, 5, 1, [("0",), ("1",), ("2",), ("3",), ("4",)], id="all of them"),
        pytest.param(GPUS, 1, 4, [()], id="one engine takes the first of all"),
        pytest.param([], "auto", 1, [()], id="a CPU has one"),
        pytest.param([], 2, 1, [(), ()], id="several, in order"),
    ],
)
def test_gpus_are_divided_among_engines(gpus, engines, tensor_parallel_size, expected):
    assert assign_gpus(gpus, engines=engines, tensor_parallel_size=tensor_parallel_size) == expected


def test_more_engines_than_gpus_are_refused():
    with pytest.raises(ConfigurationError, match="3 engines with 2 GPUs each need 6, but only 5 can be seen"):
        assign_gpus(GPUS, engines=3, tensor_parallel_size=2)


@pytest.mark.parametrize(
    ("allowed", "seen"),
    [
        ("3, GPU-7f", ["3", "GPU-7f"]),
        ("MIG-7f", ["MIG-7f"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1,-1,2", ["1"]),
    ],
)
def test_only_gpus_that_the_environment_allows_are_used(monkeypatch, allowed, seen):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", allowed)

    assert visible_gpus() == seen


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Have `nvidia-smi` print some lines, or do something else."""

    def install(script):
        command = tmp_path / "nvidia-smi"
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return install


def test_a_line_of_the_driver_about_no_gpu_is_none(driver):
    driver("echo Unable to determine the device handle")

    assert gpu_memory_bytes() == (0, 0)


@pytest.mark.parametrize(
    ("mig", "visible", "mib"),
    [
        pytest.param("[N/A]", "0,1", (40_000, 81_559), id="the fullest"),
        pytest.param("Disabled", "GPU-b", (80_000, 81_559), id="by name"),
        pytest.param("Enabled", "MIG-c", (0, 0), id="part of one"),
        pytest.param("Enabled", "0", (0, 0), id="part of one, by number"),
    ],
)
def test_the_memory_of_the_fullest_gpu_counts_unless_it_is_divided(driver, monkeypatch, mig, visible, mib):
    driver(f"echo '0, GPU-a, {mig}, 40000, 81559'; echo '1, GPU-b, {mig}, 80000, 81559'")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    assert gpu_memory_bytes() == tuple(count * 1024**2 for count in mib)


def test_compute_capabilities_are_listed_once_each(driver):
    driver("echo 9.0; echo 8.9; echo 9.0; echo '[N/A]'; echo 8")

    assert compute_capabilities() == ["8.9", "9.0"]


def test_a_driver_that_fails_means_no_gpus_and_one_that_hangs_is_named(driver, monkeypatch):
    driver("echo 'NVIDIA-SMI has failed'; exit 9")
    assert visible_gpus() == []

    driver("exec sleep 60")
    monkeypatch.setattr(devices, "_TIMEOUT_S", 0.1)
    with pytest.raises(ConfigurationError, match="a GPU or its driver hangs"):
        visible_gpus()
