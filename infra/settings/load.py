"""Loading all settings, and errors that name each one that is wrong."""

from __future__ import annotations

import os
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path
from tomllib import TOMLDecodeError
from typing import TYPE_CHECKING, Any, get_args

from pydantic import SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NestedSecretsSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from infra.settings.describe import DescribeSettings
from infra.settings.model import ModelSettings, ServerSettings
from infra.settings.monitoring import LogSettings, MetricsSettings, NotifySettings
from infra.settings.results import ReportSettings, ResultsSettings, RetentionSettings
from infra.settings.runs import (
    CostSettings,
    ExtractSettings,
    NightlySettings,
    RunSettings,
    ShardSettings,
    WatchSettings,
)
from infra.settings.sampling import SamplingSettings
from infra.settings.serve import LiveSettings, ServeSettings
from infra.settings.services import DatabaseSettings, PrefectSettings, StoreSettings, WebSettings
from infra.settings.types import fields_of, meaning_of
from infra.validation import UNKNOWN, describe_fault
from reelabel.errors import ConfigurationError
from reelabel.sources.object_info import expand_home

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

CONFIG_VARIABLE = "REELABEL_CONFIG"
SECRETS_VARIABLE = "REELABEL_SECRETS_DIR"
_PREFIX = "REELABEL_"
_DEPTH = 2  # of a setting: its section and its name


class _Environment(EnvSettingsSource):
    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:  # noqa: ANN401
        """Pass text that is not JSON on unchanged, so that validation names the field."""
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value


class _File(TomlConfigSettingsSource):
    def __call__(self) -> dict[str, Any]:
        """Leave out what variables set: tables would be merged with theirs."""
        found, above = super().__call__(), self.current_state
        for section, fields in found.items():
            if isinstance(fields, dict):
                found[section] = {name: each for name, each in fields.items() if name not in above.get(section, ())}
        return found


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
        return expand_home(home) if isinstance(home, str) else home

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
        file = _File(settings_cls, toml_file=config_file())
        return init_settings, _Environment(settings_cls), secrets, file


def config_file() -> Path:
    return Path(os.environ.get(CONFIG_VARIABLE) or "reelabel.toml")


def load_settings() -> Settings:
    """Load and validate all settings; a ConfigurationError names each that is unknown, malformed or out of bounds."""
    file = config_file()
    is_named = bool(os.environ.get(CONFIG_VARIABLE))
    if is_named and not file.exists():
        raise ConfigurationError(f"{CONFIG_VARIABLE} is {file}, but that file does not exist.")
    if is_named and file.is_dir():
        raise ConfigurationError(f"{CONFIG_VARIABLE} is {file}, which is a folder; name a file.")
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


_SIMILARITY = 0.8  # of difflib; long names with a common section reach it whatever their ends are
_MAX_TYPOS = 2  # characters; swapping two counts as two


def _nearest(name: str, known: Iterable[str]) -> str:
    nearest = get_close_matches(name, known, 1, _SIMILARITY)
    if nearest and _count_typos(name, nearest[0]) <= _MAX_TYPOS:
        return f"; did you mean {nearest[0]}?"
    return "; `reelabel config` lists the settings."


def _count_typos(name: str, known: str) -> int:
    edits = SequenceMatcher(None, name, known).get_opcodes()
    return sum(max(end - start, to - at) for kind, start, end, at, to in edits if kind != "equal")


def _is_secret(info: FieldInfo) -> bool:
    kinds = (info.annotation, *get_args(info.annotation))
    return any(SecretStr in (kind, *get_args(kind)) for kind in kinds)


def _by_setting(error: ValidationError) -> Iterable[Sequence[ErrorDetails]]:
    """Group faults by setting: one that may have several types has a fault for each, at a location of its own."""
    found: dict[tuple[int | str, ...], list[ErrorDetails]] = {}
    for fault in error.errors():
        if fault["type"] == "too_short" and len(fault["input"]) >= fault["ctx"]["min_length"]:
            continue  # its invalid entries, which have faults of their own, are not counted
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
    clauses = {"tuple_type": a_list, "list_type": a_list}
    if info and _is_secret(info):
        clauses["too_short"] = "must have at least {min_length} characters"
    first, *others = (describe_fault(each, clauses) for each in faults)
    clause = " or ".join([first, *(other.removeprefix("must be ") for other in others)])
    if fault["type"] == "string_pattern_mismatch" and info:
        clause += f"; expected: {meaning_of(info)}".rstrip(".")
    names_value = clause.startswith(("must", "has", "is not")) and not (info and _is_secret(info))
    return f"{where}: {fault['input']!r} {clause}" if names_value else f"{where}: {clause}"
