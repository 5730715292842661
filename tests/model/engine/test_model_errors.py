"""Messages about errors of vLLM, PyTorch and CUDA, from their original texts."""

import pytest
from pydantic.dataclasses import dataclass

from reelabel_engine.model_errors import describe_error

COUNT = "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices()?"


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        pytest.param("Device string must not be empty", "no GPU can be used; check", id="vLLM finds none"),
        pytest.param("libcuda.so.1: cannot open shared object file", "no GPU can be used; check", id="no driver"),
        pytest.param("No CUDA GPUs are available", "no GPU can be used; check", id="hidden"),
        pytest.param(
            "The NVIDIA driver on your system is too old (found version 12020). Please update your GPU driver.",
            "the GPU's driver is too old; update it (RuntimeError: The NVIDIA driver on your system is too old "
            "(found version 12020))",
            id="old driver",
        ),
        pytest.param(f"{COUNT} Error 802: system not yet initialized", "nvidia-fabricmanager", id="no fabric"),
        pytest.param(f"{COUNT} Error 214: uncorrectable ECC error encountered", "the GPU has failed", id="ECC"),
        pytest.param(
            "Free memory on device cuda:0 (9.7/79.1 GiB) on startup is less than desired GPU memory utilization (0.9, "
            "71.2 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
            "other processes use the GPU's memory; end those that nvidia-smi lists, or lower "
            "gpu_memory_utilization in model.engine_args (RuntimeError: Free memory on device cuda:0 (9.7/79.1 GiB) on "
            "startup",
            id="memory in use",
        ),
        pytest.param(
            "No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
            "lower max_model_len in model.engine_args",
            id="no room for a prompt",
        ),
        pytest.param(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 22.0 GiB of which 1 is free",
            "the GPU's memory is full; end what else uses it, lower max_num_batched_tokens in model",
            id="too large",
        ),
        pytest.param("Failed to find C compiler. Please specify via CC.", "apt install gcc python3-dev", id="compiler"),
        pytest.param("NCCL error: unhandled system error (run with NCCL_DEBUG=INFO)", "--shm-size", id="NCCL"),
    ],
)
def test_an_error_of_a_gpu_says_what_to_do(text, advice):
    assert advice in describe_error(RuntimeError(text))


def test_weights_of_another_architecture_are_one_sentence_not_every_name():
    names = {f"language_model.layers.{number}.mlp.down_proj.weight" for number in range(100)}
    said = describe_error(ValueError(f"Following weights were not initialized from checkpoint: {names}"))

    assert said.startswith("the names in the weights are not those of the architecture in config.json; copy both")
    assert len(said) < 500


def test_code_of_the_model_is_said_not_to_be_run():
    said = describe_error(
        ValueError(
            "The repository m contains custom code which must be executed to correctly load the model. You can inspect "
            "it at https://hf.co/m .\n Please pass the argument `trust_remote_code=True` to allow that code."
        )
    )

    assert said.startswith("the model's folder has Python code of its own, which is not run; use the folder")
    assert "trust_remote_code" not in said


def test_the_error_of_a_rank_is_found_in_the_log(tmp_path):
    log = tmp_path / "engine.log"
    lines = (
        "Traceback (most recent call last):",
        "    raise RuntimeError(",
        "RuntimeError: No CUDA GPUs are available",
    )
    log.write_text("".join(f"(Worker pid=7) ERROR 11-26 13:59:14 [executor.py:953] {line}\n" for line in lines))
    error = Exception("WorkerProc initialization failed due to an exception in a background process. See stack trace.")

    assert describe_error(error, log).endswith("(RuntimeError: No CUDA GPUs are available)")
    assert describe_error(error, tmp_path / "none").startswith("Exception: WorkerProc initialization failed")


def test_advice_for_programmers_of_cuda_is_left_to_the_log():
    error = RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with `TORCH_USE_CUDA_DSA`.\n")

    assert describe_error(error) == "RuntimeError: CUDA error: an illegal memory access was encountered"


@dataclass
class ParallelConfig:
    heads: int
    size: int

    def __post_init__(self):
        if self.heads % self.size:
            raise ValueError(f"Total number of attention heads ({self.heads}) must be divisible by {self.size}.")


def test_a_configuration_that_vllm_refuses_is_one_sentence():
    with pytest.raises(ValueError, match="heads") as refused:
        ParallelConfig(heads=28, size=8)

    assert describe_error(refused.value) == (
        "ValidationError: Total number of attention heads (28) must be divisible by 8."
    )
