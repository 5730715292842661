"""Settings of the model and its prompts, the section `[model]`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue, field_validator

from infra.settings.backends import add_backend_names, check_backend_name
from infra.settings.base import AbsolutePath, SettingsSection
from infra.settings.engine_args import check_engine_args
from infra.settings.template import check_template
from infra.text_bounds import Text  # noqa: TC001 - of fields

# Shared by the setting and by the option of a run, which may turn it off.
VideoPruningRate = Annotated[
    float | None,
    Field(
        ge=0,
        lt=1,
        description="Fraction of a video's tokens that vLLM leaves out where they repeat earlier frames (EVS), such as "
        "0.5; for models that support it, off (0) by default.",
    ),
]


class PromptOptions(SettingsSection):
    """Prompt options; those left empty are taken from the settings."""

    template: Annotated[
        Annotated[Text, AfterValidator(check_template)] | None,
        Field(description="Question template with {prompt} and {choices}, for rows without their own."),
    ] = None
    system_prompt: Annotated[Text | None, Field(description="System message, for rows without their own.")] = None
    examples: Annotated[
        Text | None,
        Field(description="Solved examples as text, put before the question of rows without their own."),
    ] = None
    choice_scoring: Annotated[
        Literal["letter", "text"] | None,
        Field(description="Score each choice by its letter, or by the first token of its text; defaults to letter."),
    ] = None
    permutations: Annotated[
        int | None,
        Field(
            ge=1,
            le=26,
            description="Orders in which each question's choices are shown, and over which probabilities are averaged; "
            "defaults to 1.",
        ),
    ] = None


class ModelSettings(PromptOptions):
    """The vision-language model, and the backend that runs it."""

    backend: Annotated[
        str,
        AfterValidator(check_backend_name),
        Field(
            description="vllm loads the model on this machine; openai uses the OpenAI-compatible server in [server].",
            json_schema_extra=add_backend_names,
        ),
    ] = "vllm"
    name: Annotated[
        str | None,
        Field(
            description="Hub name or folder; must be named, except with openai, which asks the server for its model."
        ),
    ] = None
    revision: Annotated[str | None, Field(description="Hub revision.")] = None
    python: Annotated[
        AbsolutePath | None,
        Field(
            description="Python that runs the engine; by default this one if vLLM is installed in it, else "
            ".venv-engine/bin/python beside its environment."
        ),
    ] = None
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"], Field(description="Data type of the weights.")
    ] = "auto"
    tensor_parallel_size: Annotated[
        int, Field(ge=1, le=64, description="GPUs per engine, across which the model is split.")
    ] = 1
    engines: Annotated[
        Annotated[int, Field(ge=1, le=64)] | Literal["auto"],
        Field(description="Engines to run in parallel, each on its own GPUs; auto uses all visible GPUs."),
    ] = 1
    video_pruning_rate: VideoPruningRate = None
    chat_template_args: Annotated[
        dict[str, JsonValue],
        Field(
            description="Arguments of the model's chat template, such as enable_thinking = false for models that think "
            "before they answer; of a server's too.",
        ),
    ] = Field(default_factory=dict)
    engine_args: Annotated[
        dict[str, JsonValue],
        AfterValidator(check_engine_args),
        Field(
            description="Further arguments of vLLM's engine, handed to it unchanged, such as quantization = 'fp8'.",
        ),
    ] = Field(default_factory=dict)
    max_model_len: Annotated[
        int | None, Field(ge=128, description="Longest prompt, in tokens; defaults to the model's limit.")
    ] = None
    max_num_seqs: Annotated[
        int | None,
        Field(ge=1, le=4096, description="Prompts per engine step; by default chosen by model and memory."),
    ] = None
    max_num_batched_tokens: Annotated[
        int | None,
        Field(ge=32, le=1_048_576, description="Tokens per engine step; by default chosen by model and memory."),
    ] = None
    cpu_kv_cache_gib: Annotated[
        int | None,
        Field(ge=1, le=1024, description="KV cache on a CPU, in GiB; by default chosen by model and memory."),
    ] = None
    gpu_memory_utilization: Annotated[
        float | None,
        Field(
            gt=0, le=1, description="Fraction of GPU memory for the engine; defaults to 0.9, or less if less is free."
        ),
    ] = None
    enforce_eager: Annotated[
        bool | None,
        Field(description="Do not compile the model or capture CUDA graphs; by default true on a CPU, false on a GPU."),
    ] = None
    start_timeout_s: Annotated[float, Field(ge=10, le=7200, description="Maximum seconds for loading the engine.")] = (
        900
    )
    answer_timeout_s: Annotated[
        float, Field(ge=1, le=7200, description="Seconds without an answer before the engine is restarted.")
    ] = 600
    keep_warm_s: Annotated[
        float,
        Field(
            ge=0,
            le=86400,
            description="Seconds for which a run leaves its loaded engine to the next run of the same model and "
            "settings.",
        ),
    ] = 0
    min_choice_mass: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="A run ends at a shard whose median probability of all choices together is lower: its labels "
            "are noise; 0 never.",
        ),
    ] = 0.01
    batch_mib: Annotated[int, Field(ge=1, le=65536, description="Frames sent to the engine per batch, in MiB.")] = 256
    max_concurrent_shards: Annotated[
        int,
        Field(
            ge=1,
            le=16,
            description="Shards per engine that read frames, wait for answers or write labels at the same time.",
        ),
    ] = 3

    @field_validator("name")
    @classmethod
    def _hold_from_any_folder(cls, name: str | None) -> str | None:
        """Make a folder absolute: workers run in other folders."""
        folder = Path(name).expanduser() if name else None
        is_folder = folder and os.path.isdir(folder)  # noqa: PTH112 - accepts a name that is too long, unlike Path.is_dir
        return str(folder.absolute()) if folder and is_folder else name
