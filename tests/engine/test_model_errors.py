"""Messages about errors of vLLM, PyTorch and CUDA, from their original texts."""

import pytest
from pydantic.dataclasses import dataclass

from reelabel_engine.model_errors import describe_error, find_advice, translate_vllm_error

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
    message = describe_error(ValueError(f"Following weights were not initialized from checkpoint: {names}"))

    assert message.startswith("the names in the weights are not those of the architecture in config.json; copy both")
    assert len(message) < 500


def test_the_error_says_that_code_of_the_model_is_not_run():
    message = describe_error(
        ValueError(
            "The repository m contains custom code which must be executed to correctly load the model. You can inspect "
            "it at https://hf.co/m .\n Please pass the argument `trust_remote_code=True` to allow that code."
        )
    )

    assert message.startswith("the model's folder has Python code of its own, which is not run; use the folder")
    assert "trust_remote_code" not in message


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


@pytest.mark.parametrize(("before", "is_found"), [(0, True), (60_000, True), (70_000, False)])
def test_only_the_end_of_a_long_log_is_looked_at_and_its_last_error_counts(tmp_path, before, is_found):
    log = tmp_path / "engine.log"
    error = "(Worker pid=7) ERROR 11-26 13:59:14 [executor.py:953] {}\n"
    later = error.format("Traceback (most recent call last):") + "." * before
    log.write_text(error.format("OSError: gone") + error.format("ValueError: bad") + later)

    message = describe_error(Exception("an exception in a background process"), log)

    assert message == ("ValueError: bad" if is_found else "Exception: an exception in a background process")


def test_what_is_quoted_beside_advice_is_shortened():
    message = describe_error(ValueError(f"There is no module or parameter named {'x' * 1000}"))

    assert len(message) < 500
    assert message.endswith("...)")


@pytest.mark.parametrize(
    ("text", "schema", "code", "message"),
    [
        ("The decoder prompt is longer than max_model_len 5.", None, "prompt_too_long", "model's limit of 2048 tokens"),
        ("It exceeds the context length.", "{}", "prompt_too_long", "longer than the model's limit of 2048 tokens"),
        ("No grammar.\nAt all.", "{}", "schema_refused", "vLLM cannot answer by the schema: No grammar."),
        ("No such thing.\nAt all.", None, "inference_failed", "processor rejects the question: No such thing."),
    ],
)
def test_an_error_of_vllm_about_a_question_is_one_of_its_own(text, schema, code, message):
    error = translate_vllm_error(ValueError(text), 2048, schema=schema)

    assert error.code == code
    assert message in error.message
    assert "At all" not in error.message


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
    with pytest.raises(ValueError, match="heads") as raised:
        ParallelConfig(heads=28, size=8)

    assert describe_error(raised.value) == (
        "ValidationError: Total number of attention heads (28) must be divisible by 8."
    )


@dataclass
class CacheConfig:
    dtype: int


def test_a_value_of_another_type_is_named():
    with pytest.raises(ValueError, match="dtype") as raised:
        CacheConfig(dtype="tiny")

    assert describe_error(raised.value).startswith("ValidationError: dtype: Input should be a valid integer")


def test_nothing_is_advised_about_what_is_unknown():
    assert find_advice("Something else.") is None
    assert describe_error(ValueError("Something else.\nIn two lines.")) == "ValueError: Something else.\nIn two lines."
