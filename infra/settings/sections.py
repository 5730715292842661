"""Settings, from `REELABEL_*` environment variables, then `reelabel.toml`, then defaults.

A setting is named by its section and field: `store.uri` is `REELABEL_STORE_URI` in the environment and
`uri` under `[store]` in the file (`./reelabel.toml`, or the path in `REELABEL_CONFIG`). Secrets can also be read from
files and from Prefect blocks: see `infra.settings.secret_sources`.
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    Field,
    IPvAnyNetwork,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.dataclasses import dataclass
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from infra.settings.base import SECTION, AbsolutePath, SettingsSection, fields_of, library_field
from infra.settings.chunks import ChunkOptions
from infra.settings.describe import DescribeSettings
from infra.settings.live import LiveSettings
from infra.settings.model import ModelSettings
from infra.settings.observability import LogSettings, MetricsSettings, ReportSettings
from infra.settings.retention import NotifySettings, RetentionSettings
from infra.settings.sampling import SamplingSettings
from infra.settings.schedule import NightlySettings, WatchSettings
from infra.settings.secret_sources import file_variables, is_secret, read_secret_files, resolve_blocks
from infra.settings.serve import ServeSettings
from infra.settings.server import ServerSettings
from infra.settings.store import StoreSettings
from infra.validation import UNKNOWN, describe_fault
from reelabel.errors import ConfigurationError
from reelabel.sources.options import WebOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

CONFIG_VARIABLE = "REELABEL_CONFIG"
_PREFIX = "REELABEL_"
_DEPTH = 2  # of a setting: its section and its name


class DatabaseSettings(SettingsSection):
    """The Postgres database that holds results."""

    url: Annotated[
        SecretStr | None,
        Field(
            description="postgresql://user:password@host:port/database; if no login is set, the embedded Postgres is "
            "started."
        ),
    ] = None
    reader_url: Annotated[
        SecretStr | None,
        Field(description="The same database with a read-only login, for queries; defaults to url."),
    ] = None
    owner_url: Annotated[
        SecretStr | None,
        Field(description="The same database with the login that owns its tables, for upgrades; defaults to url."),
    ] = None
    ca_file: Annotated[
        AbsolutePath | None,
        Field(
            description="CA certificate. If set, connections are encrypted, and the server's certificate and host name "
            "are verified; if empty, the URL decides."
        ),
    ] = None
    certificate_file: Annotated[
        AbsolutePath | None, Field(description="Client certificate, if the server requires one.")
    ] = None
    key_file: Annotated[AbsolutePath | None, Field(description="Private key of the client certificate.")] = None
    connect_timeout_s: Annotated[int, Field(ge=1, le=300, description="Seconds to wait for a connection.")] = 10
    pool_size: Annotated[
        int,
        Field(ge=3, le=64, description="Open connections per process; planning uses two, the heartbeat a third."),
    ] = 4

    @property
    def is_set(self) -> bool:
        """Whether any login is set: each names the user's own database, so that no embedded one is used."""
        return (self.url or self.reader_url or self.owner_url) is not None

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file must be set together")
        if self.certificate_file and not self.ca_file:
            raise ValueError("certificate_file requires ca_file")
        return self


@dataclass(frozen=True, kw_only=True, config=SECTION)
class WebSettings(WebOptions):
    """How videos are read over `http://` and `https://`."""

    allow_networks: Annotated[tuple[IPvAnyNetwork, ...], library_field(WebOptions, "allow_networks")] = ()


class PrefectSettings(SettingsSection):
    """The Prefect server and its work pools."""

    api_url: Annotated[
        str | None,
        Field(
            pattern=r"^https?://.+",
            description="The address of Prefect's API, http://host:port/api; if empty, the embedded server is started.",
        ),
    ] = None
    auth_string: Annotated[
        SecretStr | None,
        Field(description="user:password, if the API requires a login; generated for the embedded server."),
    ] = None
    work_pool: Annotated[str, Field(min_length=1, description="Work pool of the deployments.")] = "reelabel"
    cpu_pool: Annotated[str, Field(min_length=1, description="Work pool of the deployment extract/cpu.")] = "cpu"
    gpu_pool: Annotated[str, Field(min_length=1, description="Work pool of the deployment infer/gpu.")] = "gpu"

    @field_validator("auth_string")
    @classmethod
    def _names_user_and_password(cls, login: SecretStr | None) -> SecretStr | None:
        user, _, password = login.get_secret_value().partition(":") if login else ("-", ":", "-")
        if not user or not password:
            raise ValueError("write the login as user:password")
        return login


class ExtractSettings(SettingsSection):
    """Decoding processes and their limits."""

    processes: Annotated[
        int | None,
        Field(ge=1, le=256, description="Decoding processes; defaults to one per core that the container may use."),
    ] = None
    timeout_s: Annotated[float, Field(gt=0, le=3600, description="Maximum seconds for decoding one video.")] = 60
    memory_mib: Annotated[int, Field(ge=256, le=65536, description="Memory limit of a decoding process, in MiB.")] = (
        4096
    )
    max_video_bytes: Annotated[int, Field(ge=1024, description="Larger videos fail with video_too_large.")] = (
        4 * 1024**3
    )
    max_frame_pixels: Annotated[
        int, Field(ge=1024, description="Videos with larger frames fail with video_too_large.")
    ] = 64_000_000
    max_frames: Annotated[
        int, Field(ge=1, description="Videos with more frames fail with video_too_large, if they must be counted.")
    ] = 1_000_000
    max_duration_s: Annotated[float, Field(gt=0, description="Longer videos fail with video_too_large.")] = 86_400
    max_cpu_s: Annotated[int, Field(ge=1, le=3600, description="Maximum CPU seconds for decoding one video.")] = 120
    sandbox: Annotated[
        Literal["auto", "require", "off"],
        Field(
            description="How decoding processes are locked against hostile videos: auto uses every protection that the "
            "kernel offers, require refuses to run without all of them, off only limits resources."
        ),
    ] = "auto"
    videos_per_process: Annotated[
        int,
        Field(
            ge=1,
            le=1_000_000,
            description="Videos after which a decoding process is replaced; with 1, a hostile video cannot change the "
            "frames of others.",
        ),
    ] = 1000
    ray_address: Annotated[
        str | None,
        Field(
            description="Ray cluster on which extract flows decode, such as ray://head:10001; local starts one; "
            "if empty, the flow decodes itself.",
        ),
    ] = None
    allow_roots: Annotated[
        tuple[AbsolutePath, ...],
        Field(
            description='Folders that local videos must be in (symlinks resolved), such as ["/videos"]; if empty, any.'
        ),
    ] = ()
    lookahead_shards: Annotated[
        int, Field(ge=1, le=64, description="Shards extracted ahead of the one being inferred.")
    ] = 2
    max_pending_shards: Annotated[
        int,
        Field(
            ge=1,
            le=10_000,
            description="With remote executors, extraction pauses while this many extracted shards wait for inference.",
        ),
    ] = 64


class ShardSettings(SettingsSection):
    """How a manifest is split into shards, and how long they are leased."""

    target_jobs: Annotated[int, Field(ge=50, le=200, description="Target number of jobs per shard (50 to 200).")] = 100
    lease_s: Annotated[
        float,
        Field(ge=1, le=3600, description="Seconds without a heartbeat before a worker's shards go to other workers."),
    ] = 60


class RunSettings(SettingsSection):
    """Where runs are executed, and how many at a time."""

    executor: Annotated[
        Literal["local", "remote"],
        Field(description="local extracts and infers in the run's own flow; remote starts extract and infer flows."),
    ] = "local"
    max_concurrent_runs: Annotated[
        int,
        Field(
            ge=1,
            le=1000,
            description="With the local executor, concurrent runs of classify/on-demand; others wait. "
            "Set it to the number of machines.",
        ),
    ] = 1
    extract_flows: Annotated[
        int, Field(ge=0, le=1000, description="extract/cpu flows started per run; with 0, start them yourself.")
    ] = 1
    infer_flows: Annotated[
        int, Field(ge=0, le=1000, description="infer/gpu flows started per run; with 0, start them yourself.")
    ] = 1
    idle_timeout_s: Annotated[
        float,
        Field(ge=0, le=86_400, description="Seconds without work before an extract or infer flow ends."),
    ] = 300


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
    )

    home: Annotated[Path, Field(description="Folder for data, passwords and logs of the embedded services.")] = Path(
        ".reelabel"
    )

    @field_validator("home", mode="before")
    @classmethod
    def _is_named(cls, home: object) -> object:
        if home == "":
            raise ValueError("must name a folder; leave it out for .reelabel")
        return os.path.expanduser(home) if isinstance(home, str) else home  # noqa: PTH111 - of nobody, as it is

    database: DatabaseSettings = DatabaseSettings()
    store: StoreSettings = StoreSettings()
    web: WebSettings = WebSettings()
    prefect: PrefectSettings = PrefectSettings()
    extract: ExtractSettings = ExtractSettings()
    shard: ShardSettings = ShardSettings()
    run: RunSettings = RunSettings()
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

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the library's signature
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order sources by precedence: arguments, environment, secret files, settings file."""
        files = file_variables(settings_cls, prefix=_PREFIX)
        secrets = InitSettingsSource(settings_cls, read_secret_files(files))
        environment = _Environment(settings_cls)
        variables = environment.env_vars.items()  # names of secret files are not settings
        environment.env_vars = {name: value for name, value in variables if name.upper() not in files}
        file = TomlConfigSettingsSource(settings_cls, toml_file=config_file())
        return init_settings, environment, secrets, file


def config_file() -> Path:
    """Return the path of the settings file, which may not exist."""
    return Path(os.environ.get(CONFIG_VARIABLE, "reelabel.toml"))


def load_settings() -> Settings:
    """Load and validate all settings.

    Raises:
        ConfigurationError: Settings are unknown, malformed or out of bounds; the message names each.
    """
    if CONFIG_VARIABLE in os.environ and not config_file().exists():
        raise ConfigurationError(f"{CONFIG_VARIABLE} is {config_file()}, but that file does not exist.")
    if config_file().is_dir():
        raise ConfigurationError(f"{config_file()} is a folder, where the settings file is expected; move it away.")
    _refuse_unknown_variables()
    try:
        settings = Settings()
    except ValidationError as error:
        faults = "; ".join(map(_explain, _by_setting(error)))
        end = "" if faults.endswith("?") else "."
        raise ConfigurationError(f"Invalid settings: {faults}{end} Fix REELABEL_* or {config_file()}.") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{config_file()} is not a text in UTF-8; save it as one.") from None
    except ValueError as error:
        raise ConfigurationError(f"{config_file()} is not valid TOML: {error}.") from None
    return resolve_blocks(settings, api_url=settings.prefect.api_url, auth_string=settings.prefect.auth_string)


def _refuse_unknown_variables() -> None:
    """Raise for a misspelled variable, which would otherwise be ignored silently."""
    known = {CONFIG_VARIABLE, "REELABEL_HOME", *file_variables(Settings, prefix=_PREFIX)}
    known |= {
        f"REELABEL_{section}_{name}".upper() for section in Settings.model_fields for name in _settings_in(section)
    }
    for name in sorted(os.environ):
        if name.startswith("REELABEL_") and name not in known:
            nearest = get_close_matches(name, known, 1)
            hint = f"; did you mean {nearest[0]}?" if nearest else "; `reelabel config` lists the settings."
            raise ConfigurationError(f"{name} is not a setting{hint}")


def variable_of(name: str) -> str:
    """Return the environment variable of a setting, such as `sampling.fps`.

    Raises:
        ConfigurationError: There is no such setting.
    """
    section, _, field = name.partition(".")
    if section not in Settings.model_fields or (field not in _settings_in(section) if field else _settings_in(section)):
        known = [f"{each}.{field}" for each in Settings.model_fields for field in _settings_in(each)]
        nearest = get_close_matches(name, known, 1)
        hint = f"; did you mean {nearest[0]}?" if nearest else "; `reelabel config` lists the settings."
        raise ConfigurationError(f"{name} is not a setting{hint}")
    return f"{_PREFIX}{name}".replace(".", "_").upper()


def secret_variables() -> set[str]:
    """Return the environment variables that hold secrets."""
    files = file_variables(Settings, prefix=_PREFIX)
    return {f"{_PREFIX}{section}_{name}".upper() for section, name in files.values()}


def _nearest_setting(place: Sequence[int | str]) -> str:
    """Return a hint at the section, or the setting of its section, that a misspelled one may be; empty if none."""
    *section, name = map(str, place)
    known = Settings.model_fields if not section else _settings_in(section[0])
    nearest = get_close_matches(name, known, 1)
    return f"; did you mean {'.'.join([*section, *nearest])}?" if nearest else ""


def _settings_in(name: str) -> Mapping[str, FieldInfo]:
    """Return the settings of a section; none if the name is that of a plain setting."""
    kind = Settings.model_fields[name].annotation
    return fields_of(kind) if isinstance(kind, type) else {}


def _is_secret_place(place: Sequence[int | str]) -> bool:
    info = _field_at(place)
    return info is not None and is_secret(info)


def _field_at(place: Sequence[int | str]) -> FieldInfo | None:
    section, name, *_ = (*map(str, place), "", "")
    return _settings_in(section).get(name) if section in Settings.model_fields else None


def _by_setting(error: ValidationError) -> Iterable[list[ErrorDetails]]:
    """Group faults by setting: one that may have several types has a fault for each, at a place of its own."""
    found: dict[tuple[int | str, ...], list[ErrorDetails]] = {}
    for fault in error.errors():
        place = tuple(part for depth, part in enumerate(fault["loc"]) if depth < _DEPTH or isinstance(part, int))
        found.setdefault(place, []).append({**fault, "loc": place})
    return found.values()


def _form(description: str) -> str:
    """Return what a description says of a value's form, and whether it may be left out."""
    form, *_ = description.rstrip(".").partition("; if empty, ")[0].partition(". ")
    return f"{form[:1].lower()}{form[1:]}{', or leave it out' if '; if empty, ' in description else ''}"


def _explain(faults: Sequence[ErrorDetails]) -> str:
    """Say what is wrong with a setting."""
    fault = faults[0]
    where = ".".join(str(part) for part in fault["loc"])
    variable = _PREFIX + where.replace(".", "_").upper()
    value = repr(fault.get("input"))
    lists = dict.fromkeys(("tuple_type", "list_type"), f'must be a list; write it as ["a", "b"] (JSON in {variable})')
    clauses = lists | dict.fromkeys(UNKNOWN, f"unknown setting{_nearest_setting(fault['loc'])}")
    is_secret_here = _is_secret_place(fault["loc"])
    if is_secret_here:
        clauses["too_short"] = "must have at least {min_length} characters"
    if info := _field_at(fault["loc"]):
        clauses["string_pattern_mismatch"] = f"has the wrong format; give {_form(info.description or '')}"
    first, *others = (describe_fault(each, clauses) for each in faults)
    clause = " or ".join([first, *(other.removeprefix("must be ") for other in others)])
    names_value = clause.startswith(("must", "has", "is not")) and not is_secret_here
    return f"{where}: {value} {clause}" if names_value else f"{where}: {clause}"
