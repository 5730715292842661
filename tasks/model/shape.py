"""What tuning must know about a model and the machine it runs on.

`python -m tasks.model.shape` reads a pickled EngineConfig from standard input and writes the Tuning chosen
for it, or the error, pickled, to standard output. `reelabel doctor` uses it; no model is loaded.
"""

from __future__ import annotations

import os
import pickle
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.errors import ReelabelError
from tasks.model.devices import gpu_memory_bytes
from tasks.model.tuning import Tuning, choose_tuning

if TYPE_CHECKING:
    from tasks.model.questions import EngineConfig

_KIB = 1024
_WIDE_BYTES, _NARROW_BYTES = 4, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """A model's dimensions.

    Attributes:
        kv_bytes: Bytes of KV cache per token.
        widest_bytes: Bytes of the widest activation per video token.
        max_tokens: Maximum tokens of a prompt and its answer.
        frames_per_token: Frames that share their tokens.
        frame_tokens: Maximum tokens per frame, for models that scale all frames to one fixed size; None if they
            depend on the frame's size.
    """

    kv_bytes: int
    widest_bytes: int
    max_tokens: int
    frames_per_token: int = 1
    frame_tokens: int | None = None

    def video_tokens(self, config: EngineConfig) -> int:
        """Return the maximum tokens of a video as the run samples it."""
        frame_tokens = self.frame_tokens or config.max_pixels // config.size_multiple_px**2
        return -(-config.num_frames // self.frames_per_token) * frame_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where a model runs; memory is the GPU's, 0 if unknown, or else main memory."""

    is_cuda: bool
    free_bytes: int
    total_bytes: int


@cache
def tune_engine(config: EngineConfig) -> Tuning:
    """Choose settings for a configuration's model on this machine.

    Raises:
        ConfigurationError: Settings contradict each other, or do not fit into memory.
    """
    return choose_tuning(config, read_model_profile(config), read_machine())


def read_model_profile(config: EngineConfig) -> ModelProfile:
    """Read a model's dimensions from its configuration."""
    from transformers import AutoConfig  # noqa: PLC0415 - takes seconds, and is the engine's

    whole = AutoConfig.from_pretrained(config.model, revision=config.revision)
    text, vision = whole.get_text_config(), getattr(whole, "vision_config", None)
    heads = text.num_attention_heads
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    head = getattr(text, "head_dim", None) or text.hidden_size // heads
    # `auto` loads a 32-bit model in 16 bits, as vLLM does.
    size = _WIDE_BYTES if config.dtype == "float32" else _NARROW_BYTES
    patches = getattr(vision, "spatial_merge_size", 1) ** 2
    widths = (
        text.hidden_size,
        2 * getattr(text, "intermediate_size", 0),
        patches * 2 * getattr(vision, "intermediate_size", 0),
    )
    return ModelProfile(
        kv_bytes=2 * text.num_hidden_layers * -(-kv_heads // config.tensor_parallel_size) * head * size,
        widest_bytes=max(widths) * size,
        max_tokens=config.max_model_len or text.max_position_embeddings,
        frames_per_token=getattr(vision, "temporal_patch_size", 1),
        frame_tokens=_frame_tokens(whole, vision),
    )


def _frame_tokens(whole: Any, vision: Any) -> int | None:  # noqa: ANN401 - configurations of transformers
    if hasattr(vision, "spatial_merge_size") or not hasattr(vision, "image_size"):
        return None
    if hasattr(whole, "image_seq_length"):
        return int(whole.image_seq_length)
    side_px, patch_px = vision.image_size, vision.patch_size
    if isinstance(side_px, (list, tuple)):
        side_px, patch_px = max(side_px), min(patch_px)
    return int(side_px // patch_px) ** 2  # some pool their patches afterwards, which leaves fewer


def read_machine() -> Machine:
    """Read the memory of the GPUs that torch sees, or the main memory."""
    import torch  # noqa: PLC0415 - takes seconds, and is the engine's

    if torch.cuda.is_available():
        free_bytes, total_bytes = gpu_memory_bytes()
        return Machine(is_cuda=True, free_bytes=free_bytes, total_bytes=total_bytes)
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    memory = {words[0]: int(words[1]) * _KIB for words in lines}
    return Machine(is_cuda=False, free_bytes=memory["MemAvailable:"], total_bytes=memory["MemTotal:"])


def main() -> None:
    """Serve one request."""
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries may print to standard output; keep that out of the answer
    config = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own process
    try:
        chosen: Tuning | ReelabelError = tune_engine(config)
    except ReelabelError as error:
        chosen = error
    with answer:
        pickle.dump(chosen, answer)


if __name__ == "__main__":
    main()
