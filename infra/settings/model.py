"""The model that answers questions, how they are worded, and the server that may answer instead."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator

from infra.settings.engine_args import EngineArgs, TemplateArgs  # noqa: TC001 - pydantic reads it
from infra.settings.types import AbsolutePath, SettingsSection, Template, absolute_if_exists
from infra.text_bounds import MAX_OUTPUT_TOKENS, Text

# Shared by the setting and by the option of a run, which may turn it off.
VideoPruningRate = Annotated[
    float | None,
    Field(ge=0, lt=1, description="Fraction of redundant video tokens that vLLM prunes (EVS), such as 0.5; default 0."),
]


MaxTokens = Annotated[
    int | None,
    Field(
        ge=1,
        le=MAX_OUTPUT_TOKENS,
        description="Maximum tokens of an answer in words, to a row without choices; default 64. Part of the spec, "
        "also for rows with choices.",
    ),
]


class PromptDefaults(SettingsSection):
    """Options of how a question is worded that also have a setting."""

    template: Template | None = None
    """Question template with {prompt} and {choices}, for rows without their own."""
    system_prompt: Text | None = None
    """System message, for rows without their own."""


class PromptOptions(PromptDefaults):
    """Prompt options; those left empty are taken from the settings, if they have one."""

    examples: Text | None = None
    """Solved examples as text, put before the question of rows without their own."""
    choice_scoring: Literal["letter", "text"] | None = None
    """Score each choice by its letter, or by the first token of its text; defaults to letter."""
    permutations: int | None = Field(None, ge=1, le=26)
    """Orders in which a question's choices are shown, over which probabilities are averaged; defaults to 1."""


class ModelSettings(PromptDefaults):
    """The vision-language model, and the backend that runs it."""

    backend: str = Field("vllm", min_length=1, max_length=100)
    """vllm loads the model on this machine; openai uses the server in [server]; or package.module:OBJECT."""
    name: str | None = None
    """Hub name or folder, also of a LoRA adapter; required, except with openai, which uses the server's model."""
    revision: str | None = None
    """Hub revision."""
    python: AbsolutePath | None = None
    """Python that runs the engine; defaults to this one if it has vLLM, otherwise .venv-engine/bin/python next to
    it."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Data type of the weights."""
    tensor_parallel_size: int = Field(1, ge=1, le=64)
    """GPUs per engine, across which the model is split."""
    engines: Annotated[int, Field(ge=1, le=64)] | Literal["auto"] = 1
    """Engines to run in parallel, each on its own GPUs; auto uses all visible GPUs."""
    video_pruning_rate: VideoPruningRate = None
    chat_template_args: TemplateArgs = Field(default_factory=dict)
    """Arguments of the chat template, also of a server's, such as enable_thinking = false."""
    engine_args: EngineArgs = Field(default_factory=dict)
    """Arguments of vLLM's engine, such as max_num_seqs = 64; a server has its own."""
    keep_warm_s: float = Field(0, ge=0, le=86400)
    """Seconds for which a run's engine stays loaded for the next run with the same model and settings."""
    min_choice_mass: float = Field(0.01, ge=0, le=1)
    """A run stops at a shard if the total probability of all choices, as the median over its jobs, is lower: its labels
    are noise; 0 turns this off."""
    max_concurrent_shards: int = Field(3, ge=1, le=16)
    """Shards per engine that read frames, wait for answers or write labels at the same time."""

    @field_validator("name")
    @classmethod
    def _make_absolute(cls, name: str | None) -> str | None:
        return absolute_if_exists(name)


class ServerSettings(SettingsSection):
    """The OpenAI-compatible server that is used if `model.backend` is openai."""

    url: str | None = Field(None, pattern=r"^https?://[^@]+$")
    """The URL of the server's API, such as http://gpu-1:8000/v1, without a key."""
    api_key: SecretStr | None = None
    """API key, if the server requires one."""
    model: str | None = None
    """Name under which the server offers the model; defaults to its only one."""
    frames: Literal["auto", "frame_file", "png", "images"] = "auto"
    """How frames are sent: frame_file (requires Reelabel's plugin on the server) and png (requires vLLM with
    --trust-request-mm-kwargs) send exact pixels and times; auto uses the first of them that works. images sends no
    times, and leads to different labels."""
    audio_input: bool = False
    """The server accepts audio, which live sessions then send."""
    voice: str | None = Field(None, min_length=1, max_length=100)
    """The server's voice, such as alloy, unless a live session names another speaker; if empty, it answers in text."""
    ca_file: AbsolutePath | None = None
    """CA certificate for a server whose certificate is not signed by a public authority."""
    concurrency: int = Field(32, ge=1, le=1024)
    """Concurrent requests, one video each."""
    timeout_s: float = Field(300, ge=1, le=7200)
    """Maximum seconds for one answer."""
    max_attempts: int = Field(5, ge=1, le=20)
    """Attempts per request, with increasing pauses, before giving up."""
    probe_tolerance: float = Field(0.5, gt=0, le=100)
    """Maximum mean difference of logprobs, in nats, between one model's answers to the same question; a run stops if
    the server's differ more. Raise it for a server whose answers vary."""
    gpus: int = Field(0, ge=0, le=4096)
    """GPUs that the server uses, for figures per GPU-hour; 0 counts as one."""
