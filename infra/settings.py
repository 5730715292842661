"""Settings: `REELABEL_*` environment variables over `reelabel.toml` over defaults.

A section and a field make one name: `store.uri` is `REELABEL_STORE_URI` in the environment and
`uri` under `[store]` in the file (`./reelabel.toml`, or the path in `REELABEL_CONFIG`).
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Network  # noqa: TC003 - read at run time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from infra.errors import ConfigurationError
from infra.template import check_template

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

CONFIG_VARIABLE = "REELABEL_CONFIG"
_CRON_FIELDS = {5, 6}

SamplerName = Literal[
    "keyframes",
    "uniform",
    "dynamic",
    "qwen2_vl",
    "qwen3_vl",
    "glm46v",
    "molmo2",
    "openpangu",
    "fps",
    "num_frames",
]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DatabaseSettings(_Section):
    """Where results live."""

    url: Annotated[
        SecretStr | None,
        Field(description="postgresql://user:password@host:port/database; empty starts the embedded Postgres."),
    ] = None
    connect_timeout_s: Annotated[int, Field(ge=1, le=300, description="Seconds to wait for a connection.")] = 10
    pool_size: Annotated[int, Field(ge=1, le=64, description="Connections held open by one process.")] = 4


class StoreSettings(_Section):
    """Where frame files live, and how S3 is reached."""

    uri: Annotated[
        str | None,
        Field(
            pattern=r"^(s3|file)://.+",
            description="s3://bucket/prefix or file:///folder; empty starts the embedded S3 server.",
        ),
    ] = None
    encoding: Annotated[
        Literal["raw", "lz4", "zstd", "packets"],
        Field(description="How frame files hold their pixels, each one exact; labels do not depend on it."),
    ] = "zstd"
    endpoint_url: Annotated[str | None, Field(description="S3 endpoint, if it is not Amazon's.")] = None
    region: Annotated[str, Field(description="S3 region.")] = "us-east-1"
    access_key_id: Annotated[SecretStr | None, Field(description="S3 key; empty uses the AWS credential chain.")] = None
    secret_access_key: Annotated[SecretStr | None, Field(description="S3 secret key.")] = None
    connect_timeout_s: Annotated[float, Field(gt=0, le=300, description="Seconds to wait for a connection.")] = 10
    read_timeout_s: Annotated[float, Field(gt=0, le=3600, description="Seconds to wait for bytes.")] = 60
    max_attempts: Annotated[int, Field(ge=1, le=20, description="Tries of one request before giving up.")] = 4


class WebSettings(_Section):
    """How videos are read from `http://` and `https://`."""

    timeout_s: Annotated[float, Field(gt=0, le=3600, description="Seconds to wait for a connection or for bytes.")] = 30
    total_timeout_s: Annotated[
        float, Field(gt=0, le=86_400, description="Seconds one video may take to arrive, all attempts together.")
    ] = 900
    max_attempts: Annotated[int, Field(ge=1, le=20, description="Tries of one request before giving up.")] = 4
    max_concurrency: Annotated[int, Field(ge=1, le=256, description="Requests at once of one process.")] = 16
    max_redirects: Annotated[int, Field(ge=0, le=20, description="Redirects followed; each one is checked.")] = 5
    max_unsized_bytes: Annotated[
        int, Field(ge=1, description="Most bytes read to learn the length of a video whose server does not tell it.")
    ] = 1024**3
    allow_hosts: Annotated[
        tuple[str, ...],
        Field(description='Hosts that may be read, such as ["media.example.com", "*.example.org"]; empty is any.'),
    ] = ()
    allow_networks: Annotated[
        tuple[IPv4Network | IPv6Network, ...],
        Field(description='Networks off the public internet that may be read, too, such as ["10.1.0.0/16"].'),
    ] = ()
    allow_private: Annotated[
        bool,
        Field(description="Read from every private, link-local, loopback or other address off the public internet."),
    ] = False


class PrefectSettings(_Section):
    """Where flows are scheduled and shown."""

    api_url: Annotated[
        str | None,
        Field(description="Prefect API, http://host:port/api; empty starts the embedded server."),
    ] = None
    work_pool: Annotated[str, Field(min_length=1, description="Work pool of the deployments.")] = "reelabel"


class ExtractSettings(_Section):
    """Decoding processes and their limits."""

    processes: Annotated[int | None, Field(ge=1, le=256, description="Decoding processes; empty is one per core.")] = (
        None
    )
    timeout_s: Annotated[float, Field(gt=0, le=3600, description="Seconds one video may take to decode.")] = 60
    memory_mib: Annotated[int, Field(ge=256, le=65536, description="Memory limit of a decoding process.")] = 4096
    max_video_bytes: Annotated[int, Field(ge=1024, description="Larger videos fail with video_too_large.")] = (
        4 * 1024**3
    )
    max_frame_pixels: Annotated[
        int, Field(ge=1024, description="Videos with larger frames fail with video_too_large.")
    ] = 64_000_000
    max_frames: Annotated[
        int, Field(ge=1, description="Videos with more frames fail with video_too_large, where they must be counted.")
    ] = 1_000_000
    max_duration_s: Annotated[float, Field(gt=0, description="Longer videos fail with video_too_large.")] = 86_400
    max_cpu_s: Annotated[int, Field(ge=1, le=3600, description="Seconds of a processor one video may take.")] = 120
    allow_roots: Annotated[
        tuple[Annotated[Path, AfterValidator(Path.absolute)], ...],
        Field(
            description='Folders that local videos must lie in, symlinks resolved, such as ["/videos"]; empty is any.'
        ),
    ] = ()
    lookahead_shards: Annotated[
        int, Field(ge=1, le=64, description="Shards extracted ahead of the one being answered.")
    ] = 2


class ShardSettings(_Section):
    """How a manifest is cut."""

    target_jobs: Annotated[int, Field(ge=50, le=200, description="Jobs a shard aims for (50 to 200).")] = 100


class SamplingChoice(_Section):
    """How frames are chosen; what is empty is as the settings have it, or as the sampler does by itself."""

    sampler: Annotated[SamplerName | None, Field(description="How frames are chosen.")] = None
    fps: Annotated[
        float | None,
        Field(gt=0, le=240, description="Frames a second; empty is 2, for uniform no limit."),
    ] = None
    max_duration_s: Annotated[
        float | None,
        Field(gt=0, le=86_400, description="Seconds up to which dynamic samples by fps; empty is 300."),
    ] = None
    min_frames: Annotated[
        int | None, Field(ge=1, le=768, description="Fewest frames of Qwen's samplers; empty is 4.")
    ] = None
    max_frames: Annotated[
        int | None, Field(ge=2, le=768, description="Most frames of fps and Qwen's samplers; empty is 768.")
    ] = None
    frame_sample_mode: Annotated[
        Literal["uniform_last_frame", "fps"] | None,
        Field(description="How molmo2 samples; empty is uniform_last_frame."),
    ] = None
    drop_similar: Annotated[
        float | None,
        Field(
            gt=0,
            lt=1,
            description="Drop a frame that is more similar than this to the last one kept, such as 0.95; empty is off.",
        ),
    ] = None
    jpeg_quality: Annotated[
        int | None,
        Field(
            ge=1,
            le=100,
            description="Store frames as JPEG of this quality, such as 90, and show the model those: lossy; "
            "empty keeps every pixel.",
        ),
    ] = None


class SamplingSettings(SamplingChoice):
    """Which frames the model sees; see `tasks.domain.spec.Sampling`, which says the same."""

    sampler: Annotated[SamplerName, Field(description="How frames are chosen.")] = "keyframes"
    num_frames: Annotated[
        int,
        Field(
            ge=1,
            le=512,
            description="Frames shown to the model per video; the most of them for uniform, molmo2 and openpangu; "
            "without effect on dynamic, fps, glm46v and Qwen's.",
        ),
    ] = 16
    max_pixels: Annotated[
        int | None,
        Field(ge=784, le=16_777_216, description="Most pixels of one frame; empty takes the model's own limit."),
    ] = None


class PromptChoice(_Section):
    """What the model is told besides a row's own question; what is empty is as the settings have it."""

    template: Annotated[
        Annotated[str, AfterValidator(check_template)] | None,
        Field(description="Question layout with {prompt} and {choices}, for every row without its own."),
    ] = None
    system_prompt: Annotated[str | None, Field(description="System message of every row without its own.")] = None
    examples: Annotated[
        str | None,
        Field(description="Solved examples as text, shown before the question of every row without its own."),
    ] = None


class ModelSettings(PromptChoice):
    """The vision-language model and its engine."""

    name: Annotated[
        str | None, Field(description="Hub name or folder; empty is the tiny model that ships with Reelabel.")
    ] = None
    revision: Annotated[str | None, Field(description="Hub revision.")] = None
    dtype: Annotated[Literal["auto", "float32", "bfloat16", "float16"], Field(description="Numeric type.")] = "auto"
    max_model_len: Annotated[
        int | None, Field(ge=128, description="Longest prompt in tokens; empty takes the model's own.")
    ] = None
    max_num_seqs: Annotated[int, Field(ge=1, le=4096, description="Prompts in one engine step.")] = 64
    cpu_kv_cache_gib: Annotated[int, Field(ge=1, le=1024, description="KV cache on a CPU, in GiB.")] = 1
    gpu_memory_utilization: Annotated[
        float, Field(gt=0, le=1, description="Share of the GPU's memory that the engine takes.")
    ] = 0.9
    start_timeout_s: Annotated[float, Field(ge=10, le=7200, description="Seconds the engine may take to load.")] = 900
    answer_timeout_s: Annotated[
        float, Field(ge=1, le=7200, description="Seconds the engine may take over one batch; then it is started anew.")
    ] = 600
    batch_mib: Annotated[int, Field(ge=1, le=65536, description="Frames handed to the engine at once, in MiB.")] = 256
    choice_scoring: Annotated[
        Literal["letter", "text"], Field(description="Answer by letter, or by the choice's own first token.")
    ] = "letter"
    permutations: Annotated[
        int, Field(ge=1, le=26, description="Orders in which a question's choices are shown and averaged.")
    ] = 1

    @field_validator("name")
    @classmethod
    def _hold_from_any_folder(cls, name: str | None) -> str | None:
        """Workers run elsewhere: a folder's name must not depend on where we are."""
        folder = Path(name).expanduser() if name else None
        return str(folder.absolute()) if folder and folder.is_dir() else name


class NightlySettings(_Section):
    """The scheduled deployment."""

    manifest: Annotated[str | None, Field(description="Manifest of classify/nightly; empty leaves it paused.")] = None
    cron: Annotated[str, Field(description="When classify/nightly runs.")] = "0 2 * * *"
    timezone: Annotated[str, Field(min_length=1, description="Time zone of the schedule.")] = "UTC"

    @field_validator("timezone")
    @classmethod
    def _is_known(cls, timezone: str) -> str:
        try:
            ZoneInfo(timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"there is no time zone {timezone!r}; write one such as Europe/Berlin") from None
        return timezone

    @field_validator("cron")
    @classmethod
    def _has_fields(cls, cron: str) -> str:
        if len(cron.split()) not in _CRON_FIELDS:
            raise ValueError(f"{cron!r} is no schedule; write minute, hour, day, month and weekday, as in '0 2 * * *'")
        return cron


class Settings(BaseSettings):
    """Every setting, by section."""

    model_config = SettingsConfigDict(
        env_prefix="REELABEL_",
        env_nested_delimiter="_",
        env_nested_max_split=1,
        extra="forbid",
        frozen=True,
    )

    home: Annotated[Path, Field(description="Folder of the embedded services: their data, passwords and logs.")] = Path(
        ".reelabel"
    )
    database: DatabaseSettings = DatabaseSettings()
    store: StoreSettings = StoreSettings()
    web: WebSettings = WebSettings()
    prefect: PrefectSettings = PrefectSettings()
    extract: ExtractSettings = ExtractSettings()
    shard: ShardSettings = ShardSettings()
    sampling: SamplingSettings = SamplingSettings()
    model: ModelSettings = ModelSettings()
    nightly: NightlySettings = NightlySettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the library's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments win over the environment, which wins over the file."""
        file = TomlConfigSettingsSource(settings_cls, toml_file=config_file())
        return init_settings, env_settings, file


def config_file() -> Path:
    """Name the settings file, whether it exists or not."""
    return Path(os.environ.get(CONFIG_VARIABLE, "reelabel.toml"))


def load_settings() -> Settings:
    """Read and check all settings.

    Raises:
        ConfigurationError: A setting is unknown, malformed or out of bounds; each one is named.
    """
    if CONFIG_VARIABLE in os.environ and not config_file().exists():
        raise ConfigurationError(f"{CONFIG_VARIABLE} names {config_file()}, but there is no such file.")
    _refuse_unknown_variables()
    try:
        return Settings()
    except ValidationError as error:
        faults = "; ".join(_explain(fault) for fault in error.errors())
        raise ConfigurationError(f"Settings are invalid: {faults}. Fix REELABEL_* or {config_file()}.") from None
    except ValueError as error:
        raise ConfigurationError(f"Cannot read {config_file()}: {error}. It must be TOML.") from None


def _refuse_unknown_variables() -> None:
    """A misspelt variable would otherwise do nothing, silently."""
    known = {CONFIG_VARIABLE, "REELABEL_HOME"}
    for section, field in Settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            known |= {f"REELABEL_{section}_{name}".upper() for name in field.annotation.model_fields}
    for name in sorted(os.environ):
        if name.startswith("REELABEL_") and name not in known:
            nearest = get_close_matches(name, known, 1)
            hint = f"; did you mean {nearest[0]}?" if nearest else "; `reelabel config` lists the settings."
            raise ConfigurationError(f"{name} is no setting{hint}")


def _explain(fault: ErrorDetails) -> str:
    where = ".".join(str(part) for part in fault["loc"])
    message = {
        "extra_forbidden": "unknown setting",
        "string_pattern_mismatch": f"{fault.get('input')!r} has not the form it must have; `reelabel config` shows it",
    }.get(fault["type"], fault["msg"].removeprefix("Value error, "))
    return f"{where}: {message}"
