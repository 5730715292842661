"""Settings: `REELABEL_*` variables, over files of secrets, over `reelabel.toml`, over defaults.

A setting is named by its section and field: `store.uri` is `REELABEL_STORE_URI` in the environment, `uri` under
`[store]` in the file (`./reelabel.toml`, or the path in `REELABEL_CONFIG`), and the file `reelabel_store_uri` in the
folder `REELABEL_SECRETS_DIR`, such as /run/secrets. The string below a field describes it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from tomllib import TOMLDecodeError
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from pydantic import Field, IPvAnyNetwork, JsonValue, SecretStr, ValidationError, field_validator, model_validator
from pydantic.dataclasses import dataclass
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NestedSecretsSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from infra.settings.engine_args import EngineArgs  # noqa: TC001 - pydantic reads it
from infra.settings.types import (
    SAMPLER_FIELD,
    SECTION,
    AbsolutePath,
    Cron,
    DenseSamplerName,
    Login,
    Origin,
    SamplerName,
    SettingsSection,
    Started,
    Template,
    Timezone,
    fields_of,
    library_field,
    meaning_of,
    sampling_option,
)
from infra.text_bounds import MAX_CHOICE, MAX_OUTPUT_TOKENS, Text
from infra.validation import UNKNOWN, describe_fault
from reelabel.errors import ConfigurationError
from reelabel.options import S3Options, WebOptions
from reelabel.seal import NO_KEY, Seal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

CONFIG_VARIABLE = "REELABEL_CONFIG"
SECRETS_VARIABLE = "REELABEL_SECRETS_DIR"
_PREFIX = "REELABEL_"
_DEPTH = 2  # of a setting: its section and its name
_KEY_LENGTH = 32
_SHORTEST_CHUNK_S = 1.0


class DatabaseSettings(SettingsSection):
    """The Postgres database that holds results."""

    url: SecretStr | None = None
    """postgresql://user:password@host:port/database, with libpq's options; if none is set, Postgres is embedded."""
    reader_url: SecretStr | None = None
    """The same database with a read-only login, for queries; defaults to url."""
    owner_url: SecretStr | None = None
    """The same database with the login that owns its tables, for upgrades; defaults to url."""

    @property
    def is_set(self) -> bool:
        """Whether any URL is set: each names the user's own database, so that no embedded one is used."""
        return (self.url or self.reader_url or self.owner_url) is not None


@dataclass(frozen=True, kw_only=True, config=SECTION)
class StoreSettings(S3Options):
    """Where frame files are stored, and how S3 is reached."""

    access_key_id: Annotated[SecretStr | None, library_field(S3Options, "access_key_id")] = None
    secret_access_key: Annotated[SecretStr | None, library_field(S3Options, "secret_access_key")] = None
    uri: Annotated[str | None, Field(pattern=r"^(s3|file)://.+")] = None
    """s3://bucket/prefix or file:///folder; if unset, the embedded S3 server is started."""
    encoding: Literal["raw", "zstd", "sparse"] = "zstd"
    """Pixel encoding of frame files. All are exact, so labels do not depend on it."""
    read_buckets: tuple[str, ...] = ()
    """S3 buckets that videos may be read from, such as ["videos"]; if empty, any."""
    video_access_key_id: SecretStr | None = None
    """S3 access key for reading videos only; defaults to access_key_id."""
    video_secret_access_key: SecretStr | None = None
    """Secret key of video_access_key_id."""
    mac_key: SecretStr | None = None
    """Signs frame, index and plan files, so that those altered by others are not used: 32 or more random characters,
    the same on all machines. Generated for the embedded S3 server."""

    @field_validator("mac_key")
    @classmethod
    def _is_long(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and len(key.get_secret_value()) < _KEY_LENGTH:
            raise ValueError(f"use at least {_KEY_LENGTH} random characters, such as those of `openssl rand -hex 32`")
        return key

    @model_validator(mode="after")
    def _video_keys_go_together(self) -> Self:
        if (self.video_access_key_id is None) != (self.video_secret_access_key is None):
            raise ValueError("video_access_key_id and video_secret_access_key must be set together")
        return self

    def for_videos(self) -> S3Options:
        if self.video_access_key_id is None:
            return self
        return replace(self, access_key_id=self.video_access_key_id, secret_access_key=self.video_secret_access_key)

    @property
    def seal(self) -> Seal:
        """What signs the files on the store: with `mac_key`, or without a key."""
        return Seal(self.mac_key.get_secret_value().encode()) if self.mac_key else NO_KEY


@dataclass(frozen=True, kw_only=True, config=SECTION)
class WebSettings(WebOptions):
    """How videos are read over `http://` and `https://`."""

    allow_networks: Annotated[tuple[IPvAnyNetwork, ...], library_field(WebOptions, "allow_networks")] = ()


class PrefectSettings(SettingsSection):
    """The Prefect server and its work pools."""

    api_url: str | None = Field(None, pattern=r"^https?://.+")
    """The address of Prefect's API, http://host:port/api; if unset, the embedded server is started."""
    auth_string: Login | None = None
    """user:password, if the API requires a login; generated for the embedded server."""
    work_pool: str = Field("reelabel", min_length=1)
    """Work pool of the deployments."""


class ExtractSettings(SettingsSection):
    """Decoding processes and their limits."""

    processes: int | None = Field(None, ge=1, le=256)
    """Decoding processes; defaults to one per core that the container may use."""
    timeout_s: float = Field(60, gt=0, le=3600)
    """Maximum seconds for decoding one video; its CPU time is limited to twice as many."""
    memory_mib: int = Field(4096, ge=256, le=65536)
    """Memory limit of a decoding process, in MiB."""
    max_video_bytes: int = Field(4 * 1024**3, ge=1024)
    """Larger videos fail with video_too_large."""
    max_duration_s: float = Field(86_400, gt=0)
    """Longer videos fail with video_too_large."""
    sandbox: Literal["auto", "require", "off"] = "auto"
    """auto uses every protection that the kernel supports, require fails without all of them, off only limits
    resources."""
    videos_per_process: int = Field(1000, ge=1, le=1_000_000)
    """Videos until a decoding process is replaced; with 1, a hostile video cannot change the frames of others."""
    ray_address: str | None = None
    """Ray cluster on which extract flows decode, such as ray://head:10001; local starts one; if empty, none."""
    allow_roots: tuple[AbsolutePath, ...] = ()
    """Folders that local videos must be in (symlinks resolved), such as ["/videos"]; if empty, any."""
    lookahead_shards: int = Field(2, ge=1, le=64)
    """Shards extracted ahead of the one being inferred."""


class ShardSettings(SettingsSection):
    """How a manifest is split into shards, and how long they are leased."""

    target_jobs: int = Field(100, ge=50, le=200)
    """Target number of jobs per shard (50 to 200)."""
    lease_s: float = Field(60, ge=1, le=3600)
    """Seconds without a heartbeat before a worker's shards go to other workers."""


class RunSettings(SettingsSection):
    """Where runs are executed, and how many at a time."""

    executor: Literal["local", "remote"] = "local"
    """local extracts and infers in the run's own flow; remote starts extract and infer flows."""
    max_concurrent_runs: int = Field(1, ge=1, le=1000)
    """With the local executor, concurrent runs of classify/on-demand; set it to the number of machines."""
    extract_flows: int = Field(1, ge=0, le=1000)
    """extract/cpu flows started per run; with 0, start them yourself."""
    infer_flows: int = Field(1, ge=0, le=1000)
    """infer/gpu flows started per run; with 0, start them yourself."""
    max_cost: float | None = Field(None, gt=0)
    """Cost, by the prices of [cost], at which a run stops; the next one continues. If unset, there is no limit."""


class CostSettings(SettingsSection):
    """Prices of machines, in any currency; 0 is not counted."""

    per_gpu_hour: float = Field(0.0, ge=0, le=1e6)
    """Price of a GPU-hour, charged from the start of the engine to its end."""
    per_cpu_hour: float = Field(0.0, ge=0, le=1e6)
    """Price of a core-hour, charged while a process fetches and decodes videos, and for an engine without a GPU."""

    @property
    def is_set(self) -> bool:
        return self.per_gpu_hour + self.per_cpu_hour > 0


class SamplingOptions(SettingsSection):
    """Sampling options; those left empty are taken from the settings, or from the sampler's defaults.

    Here a model is known, so that `native` can stand for the sampler that it was trained with.
    """

    sampler: Annotated[SamplerName | None, SAMPLER_FIELD] = None
    num_frames: Annotated[int | None, sampling_option("num_frames")] = None
    fps: Annotated[float | None, sampling_option("fps")] = None
    max_duration_s: Annotated[float | None, sampling_option("max_duration_s")] = None
    min_frames: Annotated[int | None, sampling_option("min_frames")] = None
    max_frames: Annotated[int | None, sampling_option("max_frames")] = None
    frame_sample_mode: Annotated[
        Literal["uniform_last_frame", "fps", "every_frame"] | None, sampling_option("frame_sample_mode")
    ] = None
    frame_recovery: Annotated[bool | None, sampling_option("frame_recovery")] = None
    drop_similar: Annotated[float | None, sampling_option("drop_similar")] = None
    jpeg_quality: Annotated[int | None, sampling_option("jpeg_quality")] = None
    hdr: Annotated[Literal["sdr", "as_decoded"] | None, sampling_option("hdr", check=None)] = None
    dense_sampler: Annotated[
        DenseSamplerName | None,
        sampling_option(
            "dense_sampler",
            check=None,
            description="Sampler to use if keyframes are not enough; defaults to native, the one that the model was "
            "trained with.",
        ),
    ] = None
    min_keyframes: Annotated[int | None, sampling_option("min_keyframes")] = None
    max_gap_s: Annotated[float | None, sampling_option("max_gap_s")] = None
    coverage_radius_s: Annotated[float | None, sampling_option("coverage_radius_s")] = None
    min_coverage: Annotated[float | None, sampling_option("min_coverage")] = None
    motion_tasks: Annotated[tuple[str, ...] | None, sampling_option("motion_tasks")] = None
    still_tasks: Annotated[tuple[str, ...] | None, sampling_option("still_tasks")] = None
    escalate_below: Annotated[float | Literal["fitted"] | None, sampling_option("escalate_below")] = None


class SamplingSettings(SamplingOptions):
    """Which frames the model sees."""

    sampler: Annotated[SamplerName, SAMPLER_FIELD] = "keyframes"
    num_frames: Annotated[int, sampling_option("num_frames")] = 16
    max_pixels: Annotated[
        int | None,
        sampling_option(
            "max_pixels", exclude_if=None, description="Maximum pixels per frame; defaults to the model's limit."
        ),
    ] = None


class ChunkOptions(SettingsSection):
    """How jobs on long videos are cut into jobs on consecutive chunks, and how their answers are aggregated."""

    chunk_s: float | None = Field(None, ge=0, le=86_400)
    """Ask about each chunk of this many seconds of a video; off (0) by default."""
    chunk_rule: str | None = Field(None, min_length=1, max_length=len("any:") + MAX_CHOICE)
    """How the answers are aggregated: majority (default), mean of the probabilities, or any:CHOICE if one suffices."""

    @field_validator("chunk_s")
    @classmethod
    def _is_long_enough(cls, chunk_s: float | None) -> float | None:
        if chunk_s is not None and 0 < chunk_s < _SHORTEST_CHUNK_S:
            raise ValueError(f"use at least {_SHORTEST_CHUNK_S:g} second, or 0 to cut nothing")
        return chunk_s


class DescribeOptions(SettingsSection):
    """What videos are compared with, and how; what is left empty is taken from the settings, or has its default."""

    tags: str | None = Field(None, min_length=1, max_length=2000)
    """Label set of tags: a text file with one per line, CSV or Parquet; defaults to 20 places."""
    captions: str | None = Field(None, min_length=1, max_length=2000)
    """Label set of captions: a text file with one per line, CSV or Parquet; defaults to 40 activities."""
    top_k: int | None = Field(None, ge=1, le=1000)
    """Tags per chunk and per video; defaults to 5."""
    chunk_s: float | None = Field(None, ge=1, le=86_400)
    """Length of a chunk in seconds; each is described separately; defaults to 10."""
    frames_per_chunk: int | None = Field(None, ge=1, le=512)
    """Frames of each chunk, evenly spread; defaults to 16."""
    sampler: Literal["dense", "keyframes"] | None = None
    """How frames are selected: dense, exact frames anywhere in a chunk (the default); or keyframes only, which is
    cheaper."""
    model: str | None = Field(None, max_length=1000)
    """Folder or Hugging Face name of a SigLIP, SigLIP 2 or CLIP model; required."""
    scene_method: str | None = Field(None, max_length=100)
    """How scene changes are found: auto (default), by pixels and embeddings; ema, by embeddings; or published."""
    scene_threshold: float | None = Field(None, ge=0, le=255)
    """Lowest score that counts as a change; defaults to the method's."""
    method: Literal["default", "published"] | None = None
    """How chunks are aggregated: default, weighted by length; or published, as in the published method."""

    @field_validator("model", "tags", "captions")
    @classmethod
    def _make_absolute(cls, name: str | None) -> str | None:
        return _absolute_if_exists(name)


class DescribeSettings(DescribeOptions):
    """How videos are described."""

    revision: str | None = Field(None, max_length=200)
    """Hub revision of the model."""
    engines: Annotated[int, Field(ge=1, le=64)] | Literal["auto"] = 1
    """Embedding models to run in parallel, each on its own GPU; auto uses all visible GPUs."""
    nightly_manifest: str | None = None
    """Manifest of describe/nightly; if empty, the deployment is paused."""
    nightly_dataset: str | None = Field(None, max_length=200)
    """Dataset of describe/nightly; defaults like nightly.dataset."""
    nightly_cron: Cron | None = None
    """Schedule of describe/nightly; defaults to nightly.cron."""


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


class PromptOptions(SettingsSection):
    """Prompt options; those left empty are taken from the settings."""

    template: Template | None = None
    """Question template with {prompt} and {choices}, for rows without their own."""
    system_prompt: Text | None = None
    """System message, for rows without their own."""
    examples: Text | None = None
    """Solved examples as text, put before the question of rows without their own."""
    choice_scoring: Literal["letter", "text"] | None = None
    """Score each choice by its letter, or by the first token of its text; defaults to letter."""
    permutations: int | None = Field(None, ge=1, le=26)
    """Orders in which a question's choices are shown, over which probabilities are averaged; defaults to 1."""


class ModelSettings(PromptOptions):
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
    max_tokens: MaxTokens = None
    chat_template_args: dict[str, JsonValue] = Field(default_factory=dict)
    """Arguments of the chat template, also of a server's, such as enable_thinking = false."""
    engine_args: EngineArgs = Field(default_factory=dict)
    """Arguments of vLLM's engine, such as max_num_seqs = 64; a server has its own."""
    start_timeout_s: float = Field(900, ge=10, le=7200)
    """Maximum seconds for loading the engine."""
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
        return _absolute_if_exists(name)


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


class ServeSettings(SettingsSection):
    """The HTTP service of `reelabel serve`."""

    host: str = Field("127.0.0.1", min_length=1)
    """Address to listen on; any but loopback requires a token."""
    port: int = Field(8020, ge=0, le=65_535)
    """Port to listen on; 0 takes a free one."""
    token: SecretStr | None = Field(None, min_length=16)
    """Token that clients must send, as Authorization: Bearer TOKEN; if empty, none."""
    without_token: bool = False
    """Allow an address other than loopback without a token, such as behind a proxy with logins."""
    origins: tuple[Origin, ...] = ()
    """Web sites whose pages may send requests, such as ["https://example.com"]; if empty, none."""
    load: tuple[Literal["classify", "analyze", "live"], ...] = Field(("classify", "analyze", "live"), min_length=1)
    """What to load and answer: "classify", "analyze", "live", or several."""
    max_requests: int = Field(16, ge=1, le=1024)
    """Maximum requests in progress; further ones are refused at once with 429."""
    max_upload_mib: int = Field(512, ge=1, le=65_536)
    """Largest uploaded video, in MiB."""
    idle_timeout_s: float = Field(20, ge=1, le=3600)
    """Seconds without a byte of a request, or under 1 KiB/s of its fields, before its connection is closed."""
    stop_timeout_s: float = Field(30, ge=1, le=3600)
    """Maximum seconds, after SIGTERM, for the requests in progress to finish."""


class LiveSettings(SettingsSection):
    """Live sessions of `reelabel serve`."""

    max_sessions: int = Field(16, ge=1, le=1024)
    """Maximum sessions at once; further ones are refused with too_many_sessions."""
    resume_s: float = Field(30, ge=0, le=3600)
    """Seconds that a session waits for a lost client to reconnect."""
    max_window_frames: int = Field(2048, ge=4, le=65_536)
    """Maximum frames and 2 s spans of audio that a query sees; all are held in memory."""


class NightlySettings(SettingsSection):
    """The nightly run, deployment classify/nightly."""

    manifest: str | None = None
    """Manifest, such as s3://bucket/jobs/dt={scheduled_date}/*.parquet; if empty, the deployment keeps its own, and is
    paused without one."""
    dataset: str | None = Field(None, max_length=200)
    """Dataset, which may contain {scheduled_date}; defaults to one per date, such as jobs-{scheduled_date}, or
    without dates to the manifest's file name."""
    cron: Cron = "0 2 * * *"
    """Schedule of classify/nightly."""
    timezone: Timezone = "UTC"
    """Time zone of the schedule, and of {scheduled_date}."""
    when_running: Literal["queue", "skip"] = "queue"
    """What to do if the previous run is still running: wait for it, or skip this one."""
    may_be_empty: bool = True
    """Whether a run without a manifest completes, with a note; if false, it fails."""


class WatchSettings(SettingsSection):
    """The deployment that starts a run for each new manifest."""

    manifests: str | None = None
    """Glob of manifests to watch for, such as s3://bucket/in/*.parquet; if empty, none."""
    dataset: str | None = Field(None, max_length=200)
    """Dataset of their jobs; defaults to each manifest's file name."""
    starts: Started = "classify"
    """What is started for each manifest: classify, or describe for descriptions."""


class NotifySettings(SettingsSection):
    """Where to report runs that fail or stall."""

    webhook_url: SecretStr | None = None
    """Webhook to which {"text": ...} is posted, as for Slack; if empty, nothing is sent."""


class RetentionSettings(SettingsSection):
    """What the deployment maintain/daily removes; limits left empty remove nothing."""

    frames_days: float | None = Field(None, gt=0)
    """Days to keep cached frames; they are extracted again if needed."""
    frames_bytes: int | None = Field(None, ge=0)
    """Maximum bytes of cached frames; the oldest are removed first."""
    results_days: float | None = Field(None, gt=0)
    """Days to keep labels and failures, from when they were written."""
    history_days: float | None = Field(90, gt=0)
    """Days to keep labels that were replaced, for `reelabel diff`."""
    reports_days: float | None = Field(365, gt=0)
    """Days to keep reports, on the store and in home; `reelabel report` recreates them."""
    live_days: float | None = Field(None, gt=0)
    """Days to keep live sessions, with their frames and queries, after they were last seen."""


class LogSettings(SettingsSection):
    """Format of log lines."""

    format: Literal["text", "json"] = "text"
    """text is for people; json writes one object per line, with run, plan, shard, stage and job if known."""


class MetricsSettings(SettingsSection):
    """The Prometheus endpoint. The standard variables OTEL_EXPORTER_OTLP_* export metrics and traces as well."""

    port: int | None = Field(None, ge=1, le=65_526)
    """Port of a Prometheus endpoint during runs; if it is taken, one of the next nine. If empty, there is none."""
    host: str = Field("127.0.0.1", min_length=1)
    """Address that the endpoint listens on. It requires no login."""


class ResultsSettings(SettingsSection):
    """Export of the rows of runs, in addition to the database."""

    export_uri: str | None = Field(None, pattern=r"^(s3|file)://.+")
    """s3://bucket/prefix or file:///folder, to which the rows of each run are written when it ends; if unset, none
    are."""
    export_format: Literal["parquet", "delta", "iceberg"] = "parquet"
    """parquet writes files by dataset and date; delta writes Delta Lake tables (needs the extra lake); iceberg writes
    tables in iceberg_namespace (needs the extra iceberg), and only the list of runs goes to export_uri."""
    iceberg_namespace: str | None = Field(None, pattern=r"^[^.]+(\.[^.]+)+$")
    """CATALOG.NAMESPACE of Iceberg tables; the catalog is configured by PyIceberg's own settings."""

    @model_validator(mode="after")
    def _names_the_tables(self) -> Self:
        if (self.export_format == "iceberg") != (self.iceberg_namespace is not None):
            raise ValueError("export_format iceberg and iceberg_namespace go together; set both or neither")
        if self.export_format != "parquet" and self.export_uri is None:
            raise ValueError(f"export_format {self.export_format} needs export_uri, where runs are listed")
        return self


class ReportSettings(SettingsSection):
    """The HTML report of a run."""

    at_end: bool = True
    """Write a report to reports/ on the store when a run ends; `reelabel report` does so any time."""
    base_url: str | None = Field(None, pattern=r"^https?://[^@]+$")
    """The address at which browsers reach the store's folder reports/, such as https://reports.example.com. Prefect
    links to reports there; if unset, it does not."""


class _Environment(EnvSettingsSource):
    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:  # noqa: ANN401
        """Pass text that is not JSON on unchanged, so that validation names the field."""
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value


class Settings(BaseSettings):
    """Every setting, by section."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        env_nested_delimiter="_",
        env_nested_max_split=1,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        secrets_dir_missing="error",
    )

    home: Path = Path(".reelabel")
    """Folder for data, passwords and logs of the embedded services."""
    database: DatabaseSettings = DatabaseSettings()
    store: StoreSettings = StoreSettings()
    web: WebSettings = WebSettings()
    prefect: PrefectSettings = PrefectSettings()
    extract: ExtractSettings = ExtractSettings()
    shard: ShardSettings = ShardSettings()
    run: RunSettings = RunSettings()
    cost: CostSettings = CostSettings()
    sampling: SamplingSettings = SamplingSettings()
    chunks: ChunkOptions = ChunkOptions()
    describe: DescribeSettings = DescribeSettings()
    model: ModelSettings = ModelSettings()
    server: ServerSettings = ServerSettings()
    serve: ServeSettings = ServeSettings()
    live: LiveSettings = LiveSettings()
    nightly: NightlySettings = NightlySettings()
    watch: WatchSettings = WatchSettings()
    notify: NotifySettings = NotifySettings()
    retention: RetentionSettings = RetentionSettings()
    log: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()
    report: ReportSettings = ReportSettings()
    results: ResultsSettings = ResultsSettings()

    @field_validator("home", mode="before")
    @classmethod
    def _is_named(cls, home: object) -> object:
        if home == "":
            raise ValueError("must name a folder; leave it out for .reelabel")
        return os.path.expanduser(home) if isinstance(home, str) else home  # noqa: PTH111 - of nobody, as it is

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the library's signature
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        secrets = NestedSecretsSettingsSource(
            file_secret_settings, secrets_dir=os.environ.get(SECRETS_VARIABLE) or None
        )
        file = TomlConfigSettingsSource(settings_cls, toml_file=config_file())
        return init_settings, _Environment(settings_cls), secrets, file


def config_file() -> Path:
    return Path(os.environ.get(CONFIG_VARIABLE, "reelabel.toml"))


def load_settings() -> Settings:
    """Load and validate all settings; a ConfigurationError names each that is unknown, malformed or out of bounds."""
    file = config_file()
    if CONFIG_VARIABLE in os.environ and not file.exists():
        raise ConfigurationError(f"{CONFIG_VARIABLE} is {file}, but that file does not exist.")
    if file.is_dir():
        raise ConfigurationError(f"{file} is a folder, where the settings file is expected; move it away.")
    _refuse_unknown_variables()
    try:
        return Settings()
    except ValidationError as error:
        faults = "; ".join(map(_explain, _by_setting(error)))
        end = "" if faults.endswith("?") else "."
        raise ConfigurationError(f"Invalid settings: {faults}{end} Fix REELABEL_* or {file}.") from None
    except TOMLDecodeError as error:
        raise ConfigurationError(f"{file} is not valid TOML in UTF-8: {error}.") from None
    except (SettingsError, OSError, UnicodeDecodeError) as error:
        secrets = os.environ.get(SECRETS_VARIABLE)
        where = f"{file}, or {SECRETS_VARIABLE}, which is {secrets}," if secrets else f"{file}"
        raise ConfigurationError(f"{where} cannot be read: {error}.") from None


def variable_of(name: str) -> str:
    known = _names()
    if name not in known:
        raise ConfigurationError(f"{name} is not a setting{_nearest(name, known)}")
    return _variable(name)


def secret_variables() -> set[str]:
    return {_variable(name) for name, info in _names().items() if _is_secret(info)}


def _refuse_unknown_variables() -> None:
    """Raise for a misspelled variable, which would otherwise be ignored silently."""
    known = {CONFIG_VARIABLE, SECRETS_VARIABLE, *map(_variable, _names())}
    for name in sorted(os.environ):
        if name.startswith(_PREFIX) and name not in known:
            raise ConfigurationError(f"{name} is not a setting{_nearest(name, known)}")


def _names() -> dict[str, FieldInfo]:
    found: dict[str, FieldInfo] = {}
    for section, info in Settings.model_fields.items():
        inner = fields_of(info.annotation)
        found |= {f"{section}.{name}": each for name, each in inner.items()} if inner else {section: info}
    return found


def _variable(name: str) -> str:
    return f"{_PREFIX}{name}".replace(".", "_").upper()


def _nearest(name: str, known: Iterable[str]) -> str:
    nearest = get_close_matches(name, known, 1)
    return f"; did you mean {nearest[0]}?" if nearest else "; `reelabel config` lists the settings."


def _is_secret(info: FieldInfo) -> bool:
    kinds = (info.annotation, *get_args(info.annotation))
    return any(SecretStr in (kind, *get_args(kind)) for kind in kinds)


def _by_setting(error: ValidationError) -> Iterable[Sequence[ErrorDetails]]:
    """Group faults by setting: one that may have several types has a fault for each, at a location of its own."""
    found: dict[tuple[int | str, ...], list[ErrorDetails]] = {}
    for fault in error.errors():
        location = tuple(part for depth, part in enumerate(fault["loc"]) if depth < _DEPTH or isinstance(part, int))
        found.setdefault(location, []).append({**fault, "loc": location})
    return found.values()


def _explain(faults: Sequence[ErrorDetails]) -> str:
    fault = faults[0]
    where, known = ".".join(map(str, fault["loc"])), _names()
    info = known.get(".".join(map(str, fault["loc"][:_DEPTH])))
    if fault["type"] in UNKNOWN:
        return f"{where}: unknown setting{_nearest(where, [*known, *Settings.model_fields])}".rstrip(".")
    a_list = f'must be a list; write it as ["a", "b"] (JSON in {_variable(where)})'
    clauses = {"tuple_type": a_list, "list_type": a_list, "too_short": "must have at least {min_length} characters"}
    first, *others = (describe_fault(each, clauses) for each in faults)
    clause = " or ".join([first, *(other.removeprefix("must be ") for other in others)])
    if fault["type"] == "string_pattern_mismatch" and info:
        clause += f"; expected: {meaning_of(info)}".rstrip(".")
    names_value = clause.startswith(("must", "has", "is not")) and not (info and _is_secret(info))
    return f"{where}: {fault['input']!r} {clause}" if names_value else f"{where}: {clause}"


def _absolute_if_exists(name: str | None) -> str | None:
    """Make the path of a file or folder absolute, as workers run in other folders; leave any other name alone."""
    path = Path(name).expanduser() if name and "://" not in name else None
    exists = path and os.path.exists(path)  # noqa: PTH110 - accepts a name that is too long, unlike Path.exists
    return str(path.absolute()) if path and exists else name
