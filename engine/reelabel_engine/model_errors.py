"""One sentence about an error of vLLM or PyTorch, with what to do about a GPU that is missing, full or broken."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pydantic import ValidationError

from reelabel_engine.errors import InferenceError, PromptTooLongError, SchemaRefusedError

if TYPE_CHECKING:
    from pathlib import Path

    from reelabel.errors import JobError

_FINDS_NO_GPU = (
    r"Device string must not be empty|Failed to infer device type|Found no NVIDIA driver|No CUDA GPUs are available|"
    r"CUDA driver initialization failed|CUDA unknown error|no CUDA-capable device|libcuda\.so"
)
# By what vLLM, PyTorch, CUDA and NCCL write; the first that is found counts.
_ADVICE = {
    r"driver on your system is too old|driver version is insufficient": "the GPU's driver is too old; update it",
    _FINDS_NO_GPU: (
        "no GPU can be used; check that nvidia-smi lists one, that CUDA_VISIBLE_DEVICES names it and that the "
        "container was given it, or install requirements/engine-cpu.txt on a machine without one"
    ),
    r"system not yet initialized": "the GPUs' fabric is down; start nvidia-fabricmanager, of the driver's version",
    r"World size .* is larger than the number of available GPUs|invalid device ordinal": (
        "there are fewer GPUs than the engine needs; lower model.tensor_parallel_size, or list others in "
        "CUDA_VISIBLE_DEVICES"
    ),
    r"Free memory on device .* on startup": (
        "other processes use the GPU's memory; end those that nvidia-smi lists, or lower gpu_memory_utilization in "
        "model.engine_args"
    ),
    r"No available memory for the cache blocks|To serve at least one request": (
        "the model leaves too little memory for a prompt; lower max_model_len in model.engine_args, give the engine "
        "more memory, or split the model by model.tensor_parallel_size"
    ),
    r"CUDA out of memory|Error 2: out of memory|CUDA error: out of memory|STATUS_ALLOC_FAILED": (
        "the GPU's memory is full; end what else uses it, lower max_num_batched_tokens in model.engine_args, or split "
        "the model by model.tensor_parallel_size"
    ),
    r"uncorrectable|GPU is lost|fallen off the bus|hardware stack error|busy or unavailable": (
        "the GPU has failed, or another process has it for itself; see nvidia-smi and, in dmesg, NVRM and Xid, and "
        "restart the machine, or leave out the GPU by CUDA_VISIBLE_DEVICES"
    ),
    r"\bNCCL\b": (
        "the engine's GPUs cannot reach each other; give a container more shared memory (--shm-size), or set "
        "NCCL_DEBUG=INFO and see the log"
    ),
    r"Failed to find C compiler|CalledProcessError: Command .*\b(gcc|clang|cc)\b": (
        "Triton cannot compile its kernels; install a C compiler and Python's headers (apt install gcc python3-dev)"
    ),
    r"trust_remote_code": (
        "the model's folder has Python code of its own, which is not run; use the folder or hub name of a version that "
        "transformers and vLLM know, often one that ends in -hf"
    ),
    r"not initialized from checkpoint|There is no module or parameter named": (
        "the names in the weights are not those of the architecture in config.json; copy both from the same model"
    ),
    r"does not support LoRA yet": (
        "vLLM applies no LoRA adapter to this architecture; merge the adapter into the model's folder"
    ),
    r"Bfloat16 is only supported on GPUs": "the GPU has no bfloat16; set model.dtype to auto or float16",
}


_LOG_BYTES = 64 * 1024
_MAX_CHARACTERS = 300  # vLLM lists every parameter
_OF_RANKS = "exception in a background process"
# As vLLM logs the last line of an exception in a rank.
_RANK_ERROR = re.compile(r"^\(Worker.*\] (\w+(?:Error|Exception): .+)$", re.MULTILINE)


def describe_error(error: BaseException, log: Path | None = None) -> str:
    """Say what went wrong, in one line where vLLM or CUDA write several; what to do comes first, if it is known.

    This process and the engine's ranks write to `log`, where vLLM leaves the errors of ranks.
    """
    sentence = f"{type(error).__name__}: {_text(error)}"
    if _OF_RANKS in sentence and log and log.is_file():
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_BYTES))
            sentence = (_RANK_ERROR.findall(file.read().decode(errors="replace")) or [sentence])[-1]
    advice = find_advice(sentence)
    return f"{advice} ({_shortened(sentence.partition('. ')[0].rstrip('.'))})" if advice else sentence


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}..."


def find_advice(text: str) -> str | None:
    """Return what to do about an error of this text; None if it is not known."""
    return next((advice for pattern, advice in _ADVICE.items() if re.search(pattern, text)), None)


def _text(error: BaseException) -> str:
    text = str(error).strip()
    if isinstance(error, ValidationError):  # of a configuration of vLLM, whose first fault says it all
        first = error.errors()[0]
        text = first["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
        text = ": ".join([*map(str, first["loc"]), text])
    elif "CUDA" not in text:
        return text
    return text.partition("\n")[0]  # advice for programmers follows


def translate_vllm_error(error: Exception, max_model_len: int, *, schema: str | None = None) -> JobError:
    if "max_model_len" not in str(error) and "context length" not in str(error):
        if schema is not None:
            return SchemaRefusedError(f"vLLM cannot answer by the schema: {_first_line(error)}.")
        return InferenceError(f"The model's processor rejects the question: {_first_line(error)}.")
    return PromptTooLongError(
        f"The prompt with its video is longer than the model's limit of {max_model_len} tokens; "
        f"shorten the prompt, or lower num_frames or max_pixels."
    )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")
