"""Settings: `REELABEL_*` environment variables over `reelabel.toml` over defaults.

A section and a field make one name: `store.uri` is `REELABEL_STORE_URI` in the environment and
`uri` under `[store]` in the file (`./reelabel.toml`, or the path in `REELABEL_CONFIG`). Secrets may stand in files and
in blocks of Prefect's, too: see `infra.secret_sources`.
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    IPvAnyNetwork,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from infra.errors import ConfigurationError
from infra.observability_settings import LogSettings, MetricsSettings, ReportSettings
from infra.sampling_settings import SamplingSettings
from infra.schedule_settings import NightlySettings, WatchSettings
from infra.secret_sources import file_variables, read_files, with_blocks
from infra.section import Section
from infra.server_settings import ServerSettings
from infra.template import check_template
from infra.upkeep_settings import KeepSettings, NotifySettings

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

CONFIG_VARIABLE = "REELABEL_CONFIG"
_PREFIX = "REELABEL_"

# Workers run elsewhere: a file's name must not depend on where we are.
HeldPath = Annotated[Path, AfterValidator(Path.absolute)]


class DatabaseSettings(Section):
    """Where results live."""

    url: Annotated[
        SecretStr | None,
        Field(description="postgresql://user:password@host:port/database; empty starts the embedded Postgres."),
    ] = None
    reader_url: Annotated[
        SecretStr | None,
        Field(description="The same database by a login that can only read, for what looks; empty takes url."),
    ] = None
    owner_url: Annotated[
        SecretStr | None,
        Field(description="The same database by the login that owns its tables, for upgrades; empty takes url."),
    ] = None
    ca_file: Annotated[
        HeldPath | None,
        Field(
            description="Certificate of who signs the server's: connections are then encrypted, and the server's "
            "certificate and name are checked. Empty is as the URL says."
        ),
    ] = None
    certificate_file: Annotated[
        HeldPath | None, Field(description="Certificate to show the server, where it asks for one.")
    ] = None
    key_file: Annotated[HeldPath | None, Field(description="Its key.")] = None
    where_timeout_s: Annotated[
        float, Field(gt=0, le=3600, description="Seconds that choosing jobs by --where may take.")
    ] = 60
    connect_timeout_s: Annotated[int, Field(ge=1, le=300, description="Seconds to wait for a connection.")] = 10
    pool_size: Annotated[
        int,
        Field(
            ge=3, le=64, description="Connections held open by one process; planning takes two, a sign of life a third."
        ),
    ] = 4

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file go together; set both, or neither")
        if self.certificate_file and not self.ca_file:
            raise ValueError("certificate_file is shown to a server that ca_file vouches for; set that, too")
        return self


class StoreSettings(Section):
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
    ca_file: Annotated[
        Annotated[Path, AfterValidator(Path.absolute)] | None,
        Field(description="Authority that signed the certificate of an https:// endpoint, PEM; empty is the system's."),
    ] = None
    connect_timeout_s: Annotated[float, Field(gt=0, le=300, description="Seconds to wait for a connection.")] = 10
    read_timeout_s: Annotated[float, Field(gt=0, le=3600, description="Seconds to wait for bytes.")] = 60
    max_attempts: Annotated[int, Field(ge=1, le=20, description="Tries of one request before giving up.")] = 4


class WebSettings(Section):
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
        tuple[IPvAnyNetwork, ...],
        Field(description='Networks off the public internet that may be read, too, such as ["10.1.0.0/16"].'),
    ] = ()
    allow_private: Annotated[
        bool,
        Field(description="Read from every private, link-local, loopback or other address off the public internet."),
    ] = False


class PrefectSettings(Section):
    """Where flows are scheduled and shown."""

    api_url: Annotated[
        str | None,
        Field(description="Prefect API, http://host:port/api; empty starts the embedded server."),
    ] = None
    auth_string: Annotated[
        SecretStr | None,
        Field(description="user:password, if the API asks for a login; the embedded server's is made by itself."),
    ] = None
    work_pool: Annotated[str, Field(min_length=1, description="Work pool of the deployments.")] = "reelabel"
    cpu_pool: Annotated[str, Field(min_length=1, description="Work pool of the deployment extract/cpu.")] = "cpu"
    gpu_pool: Annotated[str, Field(min_length=1, description="Work pool of the deployment infer/gpu.")] = "gpu"

    @field_validator("auth_string")
    @classmethod
    def _names_user_and_password(cls, login: SecretStr | None) -> SecretStr | None:
        user, _, password = login.get_secret_value().partition(":") if login else ("-", ":", "-")
        if not user or not password:
            raise ValueError("a login is written as user:password")
        return login


class ExtractSettings(Section):
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
    ray_address: Annotated[
        str | None,
        Field(
            description="Ray cluster that extract flows hand shards to, such as ray://head:10001; local starts one; "
            "empty decodes in the flow.",
        ),
    ] = None
    allow_roots: Annotated[
        tuple[HeldPath, ...],
        Field(
            description='Folders that local videos must lie in, symlinks resolved, such as ["/videos"]; empty is any.'
        ),
    ] = ()
    lookahead_shards: Annotated[
        int, Field(ge=1, le=64, description="Shards extracted ahead of the one being answered.")
    ] = 2
    waiting_shards: Annotated[
        int,
        Field(
            ge=1,
            le=10_000,
            description="Extracted shards that may wait for engines on other machines; then extraction pauses.",
        ),
    ] = 64


class ShardSettings(Section):
    """How a manifest is cut, and handed out."""

    target_jobs: Annotated[int, Field(ge=50, le=200, description="Jobs a shard aims for (50 to 200).")] = 100
    lease_s: Annotated[
        float,
        Field(ge=1, le=3600, description="Seconds without a sign of life, after which a worker's shards are taken up."),
    ] = 60


class RunSettings(Section):
    """Where a run's work is done."""

    place: Annotated[
        Literal["here", "workers"],
        Field(description="here works in the run's own flow; workers starts extract and infer flows elsewhere."),
    ] = "here"
    at_once: Annotated[
        int,
        Field(
            ge=1,
            le=1000,
            description="Runs of classify/on-demand that work here at a time; others wait. As many as machines.",
        ),
    ] = 1
    extract_flows: Annotated[
        int, Field(ge=0, le=1000, description="extract/cpu flows that a run starts; 0 leaves that to you.")
    ] = 1
    infer_flows: Annotated[
        int, Field(ge=0, le=1000, description="infer/gpu flows that a run starts; 0 leaves that to you.")
    ] = 1
    idle_s: Annotated[
        float,
        Field(ge=0, le=86_400, description="Seconds without a shard, after which an extract or infer flow ends."),
    ] = 300


class PromptChoice(Section):
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

    engine: Annotated[
        Literal["vllm", "openai"],
        Field(description="vllm loads the model here; openai asks the server of [server], which has loaded it."),
    ] = "vllm"
    name: Annotated[
        str | None,
        Field(
            description="Hub name or folder; empty is the tiny model that ships with Reelabel, "
            "or with openai whatever the server answers by."
        ),
    ] = None
    revision: Annotated[str | None, Field(description="Hub revision.")] = None
    dtype: Annotated[Literal["auto", "float32", "bfloat16", "float16"], Field(description="Numeric type.")] = "auto"
    tensor_parallel_size: Annotated[
        int, Field(ge=1, le=64, description="GPUs that one engine spreads the model over.")
    ] = 1
    engines: Annotated[
        Annotated[int, Field(ge=1, le=64)] | Literal["auto"],
        Field(description="Engines side by side, each on GPUs of its own; auto is as many as the visible GPUs allow."),
    ] = 1
    max_model_len: Annotated[
        int | None, Field(ge=128, description="Longest prompt in tokens; empty takes the model's own.")
    ] = None
    max_num_seqs: Annotated[
        int | None,
        Field(ge=1, le=4096, description="Prompts in one engine step; empty is chosen by model and memory."),
    ] = None
    max_num_batched_tokens: Annotated[
        int | None,
        Field(ge=32, le=1_048_576, description="Tokens in one engine step; empty is chosen by model and memory."),
    ] = None
    cpu_kv_cache_gib: Annotated[
        int | None,
        Field(ge=1, le=1024, description="KV cache on a CPU, in GiB; empty is chosen by model and memory."),
    ] = None
    gpu_memory_utilization: Annotated[
        float | None,
        Field(gt=0, le=1, description="Share of the GPU's memory that the engine takes; empty is 0.9 of it, if free."),
    ] = None
    enforce_eager: Annotated[
        bool | None,
        Field(description="Neither compile the model nor capture graphs; empty is so on a CPU, and not on a GPU."),
    ] = None
    start_timeout_s: Annotated[float, Field(ge=10, le=7200, description="Seconds the engine may take to load.")] = 900
    answer_timeout_s: Annotated[
        float, Field(ge=1, le=7200, description="Seconds without any answer, after which the engine is started anew.")
    ] = 600
    batch_mib: Annotated[int, Field(ge=1, le=65536, description="Frames handed to the engine at once, in MiB.")] = 256
    shards_at_once: Annotated[
        int,
        Field(
            ge=1,
            le=16,
            description="Shards that read frames, wait for answers or write labels at once; for each engine.",
        ),
    ] = 3
    render_processes: Annotated[
        int | None,
        Field(
            ge=1,
            le=64,
            description="Processes that render prompts for one engine; empty shares out a quarter of the cores.",
        ),
    ] = None
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


class _Environment(EnvSettingsSource):
    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:  # noqa: ANN401
        """Leave what is no JSON as it is, for the field itself to be named as wrong."""
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
    run: RunSettings = RunSettings()
    sampling: SamplingSettings = SamplingSettings()
    model: ModelSettings = ModelSettings()
    server: ServerSettings = ServerSettings()
    nightly: NightlySettings = NightlySettings()
    watch: WatchSettings = WatchSettings()
    notify: NotifySettings = NotifySettings()
    keep: KeepSettings = KeepSettings()
    log: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()
    report: ReportSettings = ReportSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the library's signature
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments win over the environment, which wins over files of secrets, and those over the settings file."""
        files = file_variables(settings_cls, prefix=_PREFIX)
        secrets = InitSettingsSource(settings_cls, read_files(files))
        environment = _Environment(settings_cls)
        variables = environment.env_vars.items()  # the names of those files are no settings
        environment.env_vars = {name: value for name, value in variables if name.upper() not in files}
        file = TomlConfigSettingsSource(settings_cls, toml_file=config_file())
        return init_settings, environment, secrets, file


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
        settings = Settings()
    except ValidationError as error:
        faults = "; ".join(_explain(fault) for fault in error.errors())
        raise ConfigurationError(f"Settings are invalid: {faults}. Fix REELABEL_* or {config_file()}.") from None
    except ValueError as error:
        raise ConfigurationError(f"Cannot read {config_file()}: {error}. It must be TOML.") from None
    return with_blocks(settings, api_url=settings.prefect.api_url, auth_string=settings.prefect.auth_string)


def _refuse_unknown_variables() -> None:
    """A misspelt variable would otherwise do nothing, silently."""
    known = {CONFIG_VARIABLE, "REELABEL_HOME", *file_variables(Settings, prefix=_PREFIX)}
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
    variable = _PREFIX + where.replace(".", "_").upper()
    message = {
        "tuple_type": f'{fault.get("input")!r} is no list; write one as ["a", "b"], in {variable} as JSON',
        "extra_forbidden": "unknown setting",
        "ip_any_network": f"{fault.get('input')!r} is no network; write one as 10.1.0.0/16, its host bits all zero",
        "string_pattern_mismatch": f"{fault.get('input')!r} has not the form it must have; `reelabel config` shows it",
    }.get(fault["type"], fault["msg"].removeprefix("Value error, "))
    return f"{where}: {message}"
