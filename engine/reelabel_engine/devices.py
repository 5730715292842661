"""Assign GPUs to engines."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from itertools import takewhile
from typing import Literal

from reelabel.errors import ConfigurationError
from reelabel.text import pluralize

_DRIVER = "nvidia-smi"
_TIMEOUT_S = 60
_GPU_NAME = re.compile(r"\d+|(GPU|MIG)-.+")


def visible_gpus() -> list[str]:
    """List the GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` names them; empty without any."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        # CUDA ignores all values from the first one that names no GPU, such as -1 or Slurm's NoDevFiles.
        return list(takewhile(_GPU_NAME.fullmatch, map(str.strip, chosen.split(","))))
    return [index for [index] in _query_driver("index")]


def gpu_memory_bytes() -> tuple[int, int]:
    """Return free and total bytes of the GPU with the least free memory; zeros if unknown, as for a part of a GPU."""
    visible = visible_gpus()
    known = _query_driver("index", "uuid", "mig.mode.current", "memory.free", "memory.total")
    seen = [
        (int(free), int(total))
        for index, uuid, mig, free, total in known
        # With MIG, these are the memory of the whole GPU, of which an engine gets a part.
        if mig != "Enabled" and {index, uuid} & set(visible) and (free + total).isdecimal()
    ]
    free_mib, total_mib = min(seen, default=(0, 0))
    return free_mib * 1024**2, total_mib * 1024**2


def extra_of_engines() -> str:
    """Return the extra that brings the engines for this machine: `gpu` where there is a driver, else `cpu`."""
    return "gpu" if shutil.which(_DRIVER) else "cpu"


def compute_capabilities() -> list[str]:
    """List the compute capabilities of this machine's GPUs, such as `9.0`; empty without any."""
    found = {capability for [capability] in _query_driver("compute_cap")}
    return sorted(filter(re.compile(r"\d+\.\d+").fullmatch, found))


def _query_driver(*fields: str) -> list[list[str]]:
    """Query the driver by `nvidia-smi`: CUDA, initialised in this process, would hold memory that the engines need.

    Raises:
        ConfigurationError: The driver does not answer.
    """
    command = shutil.which(_DRIVER)
    if command is None:
        return []
    query = [command, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        found = subprocess.run(query, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise ConfigurationError(
            f"nvidia-smi has not answered within {_TIMEOUT_S} s: a GPU or its driver hangs; look for NVRM and Xid in "
            "`dmesg`, and restart the machine."
        ) from None
    rows = found.stdout.splitlines() if found.returncode == 0 else []
    split = [[value.strip() for value in row.split(",")] for row in rows]
    return [values for values in split if len(values) == len(fields)]


def assign_gpus(gpus: list[str], *, engines: int | Literal["auto"], tensor_parallel_size: int) -> list[tuple[str, ...]]:
    """Assign the visible GPUs, none on a CPU, to engines; `auto` is as many as there is room for, and one on a CPU.

    Returns:
        One group per engine; empty groups on a CPU, and for a single engine, which sees all GPUs.

    Raises:
        ConfigurationError: There are too few GPUs.
    """
    count = max(1, len(gpus) // tensor_parallel_size) if engines == "auto" else engines
    if gpus and count * tensor_parallel_size > len(gpus):
        raise ConfigurationError(
            f"{pluralize(count, 'engine')} with {pluralize(tensor_parallel_size, 'GPU')} each need "
            f"{count * tensor_parallel_size}, but only {len(gpus)} can be seen; lower model.engines or "
            "model.tensor_parallel_size, or list more in CUDA_VISIBLE_DEVICES."
        )
    if count == 1:
        return [()]
    starts = range(0, count * tensor_parallel_size, tensor_parallel_size)
    return [tuple(gpus[start : start + tensor_parallel_size]) for start in starts]
