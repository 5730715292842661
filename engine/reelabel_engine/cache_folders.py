"""The folders that an engine writes to: its temporary files, and the caches of vLLM and its libraries."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from reelabel.disk import temporary_root

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def cache_folders(environment: Mapping[str, str]) -> list[Path]:
    """Return the folders that an engine with these variables writes to; some may not exist."""
    # For a user without a home, it stays as it is, as with these libraries.
    caches = Path(environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111
    named = [Path(environment.get(variable) or caches / default) for variable, default in _CACHES.items()]
    return [*dict.fromkeys([temporary_root(), _SHARED_MEMORY, caches, *named])]
