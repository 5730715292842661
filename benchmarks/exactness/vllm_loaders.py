"""Let vLLM's own loaders read files: a script for the Python that has vLLM, and nothing of ours.

Reads a JSON list of `[path, loader, options]` from standard input, and writes one of the fields of
`benchmarks.exactness.against_vllm.LoaderChoice` to standard output. vLLM takes seconds to import, and decodes in its
own process, so it gets one of its own.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from vllm.multimodal.video import VIDEO_LOADER_REGISTRY

# Loaders that only the modules of their models register.
_MODULES = {
    "llava_onevision2": "vllm.model_executor.models.llava_onevision2",
    "minimax_m3_vl": "vllm.models.minimax_m3.common.mm_preprocess",
}
# Loaders that repeat the last frame of an odd number, after they have chosen.
_PAIRING = frozenset({"glmga", "clef_omni"})


def choose(data: bytes, loader: str, options: dict[str, Any]) -> dict[str, Any]:
    """Let a loader read a video, and describe what it chooses."""
    if loader in _MODULES:
        import_module(_MODULES[loader])
    asked: list[tuple[Any, list[int]]] = []

    class Recording(type(VIDEO_LOADER_REGISTRY.load(loader))):  # type: ignore[misc]
        """The loader, whose choice is kept: its metadata hold only what could be read of it."""

        @classmethod
        def compute_frames_index_to_sample(cls, source: Any, target: Any, **kwargs: Any) -> list[int]:  # noqa: ANN401
            positions: list[int] = super().compute_frames_index_to_sample(source, target, **kwargs)
            asked.append((source, positions))
            return positions

    try:
        shown = Recording.load_bytes(data, **options)[1]["frames_indices"]
        refusal = ""
    except Exception as error:  # noqa: BLE001 - whatever it raises is its refusal
        shown, refusal = [], " ".join(f"{error}".split()) or type(error).__name__
    source, positions = asked[0] if asked else ((0, 0.0, 0.0), [])
    if loader in _PAIRING:
        shown, positions = _paired(shown), _paired(positions)
    return {
        "chosen": list(map(int, positions)),
        "shown": list(map(int, shown)),
        "total_frames": source[0],
        "fps": source[1],
        "duration_s": source[2],
        "refusal": refusal,
    }


def _paired(positions: list[int]) -> list[int]:
    return [*positions, *positions[-1:]] if len(positions) % 2 else positions


def main() -> None:
    # OpenCV and vLLM may print to standard output; keep that out of the answer.
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    choices = [choose(Path(path).read_bytes(), loader, options) for path, loader, options in json.load(sys.stdin)]
    with answer:
        answer.write(json.dumps(choices).encode())


if __name__ == "__main__":
    main()
