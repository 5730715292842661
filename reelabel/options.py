"""Options as frozen dataclasses whose fields declare their valid values: limits on videos, S3, and the web.

`option` stores bounds and descriptions in a field's metadata under pydantic's names, so that an application can read
them; `check_options` enforces them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from numbers import Integral, Real  # also NumPy's, and fractions
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

from reelabel.errors import InvalidOptionError, OptionFault

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Options = TypeVar("Options", bound=DataclassInstance)

_BOUNDS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "gt": (lambda value, bound: value > bound, "must be greater than {}"),
    "ge": (lambda value, bound: value >= bound, "must be at least {}"),
    "lt": (lambda value, bound: value < bound, "must be less than {}"),
    "le": (lambda value, bound: value <= bound, "must be at most {}"),
    "min_length": (lambda value, bound: len(value) >= bound, "must have at least {} entries"),
    "max_length": (lambda value, bound: len(value) <= bound, "must have at most {:,} entries"),
}


def option(
    default: Any = MISSING,  # noqa: ANN401 - any type, as of `dataclasses.field`
    description: str = "",
    *,
    convert: Callable[[Any], Any] | None = None,
    check: Callable[[Any], Any] | None = None,
    is_secret: bool = False,
    **about: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Describe a field of a dataclass of options, by a sentence for help and forms.

    Args:
        default: Its default, if it has one.
        description: That sentence.
        convert: Converts a given value before its type is checked; raises ValueError to refuse it.
        check: Validates a value other than None, and returns it or a normalized one; raises ValueError, with a clause,
            to refuse it.
        is_secret: Whether its value must not be shown.
        about: Its bounds: gt, ge, lt, le, min_length and max_length; and `exclude_if`, a function that returns
            whether `to_dict` leaves a value out.
    """
    metadata = {"description": description, "convert": convert, "check": check, **about}
    return field(default=default, repr=not is_secret, metadata=metadata)


def is_none(value: object) -> bool:
    """Return whether an option is unset: the `exclude_if` of options that specs leave out if they are unset."""
    return value is None


def to_dict(options: DataclassInstance) -> dict[str, Any]:
    """Return options by name, with tuples as lists, except those that their `exclude_if` excludes."""
    values = {each.name: (getattr(options, each.name), each.metadata.get("exclude_if")) for each in fields(options)}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, (value, leaves_out) in values.items()
        if leaves_out is None or not leaves_out(value)
    }


def check_options(options: DataclassInstance, kind: type[DataclassInstance]) -> None:
    """Validate each field by its type and its metadata, and replace its value by the converted one.

    Integers become floats, lists tuples, strings paths, and dictionaries nested options. `kind` is the class in whose
    `__post_init__` this is called; a subclass checks its own fields.

    Raises InvalidOptionError, whose message names all invalid values.
    """
    faults: list[OptionFault] = []
    for rule in _rules_of(kind):
        value = getattr(options, rule.name)
        try:
            checked = rule.check(value)
        except InvalidOptionError as error:
            faults += [each.within(rule.name) for each in error.faults]
        except ValueError as error:
            faults.append(OptionFault(rule.name, value, str(error)))
        else:
            object.__setattr__(options, rule.name, checked)
    if faults:
        raise InvalidOptionError.of(_title(options), faults)


def conflict(options: DataclassInstance, clause: str) -> InvalidOptionError:
    """Return the error for options that contradict each other."""
    return InvalidOptionError.of(_title(options), [OptionFault("", None, clause)])


def read_options(kind: type[Options], given: Mapping[str, Any]) -> Options:
    """Build options from a dictionary; raise InvalidOptionError if one is unknown, missing or invalid."""
    unknown = [name for name in given if name not in {each.name for each in fields(kind)}]
    missing = [
        each.name
        for each in fields(kind)
        if each.name not in given and each.default is MISSING and each.default_factory is MISSING
    ]
    if unknown or missing:
        faults = [OptionFault(str(name), given[name], "unknown option") for name in unknown]
        faults += [OptionFault(name, None, "is required") for name in missing]
        raise InvalidOptionError.of(f"options of {kind.__name__}", faults)
    return kind(**given)


def _title(options: DataclassInstance) -> str:
    return f"options of {type(options).__name__}"


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str
    kind: Any
    metadata: Mapping[str, Any]

    def check(self, value: Any) -> Any:  # noqa: ANN401 - any type
        convert, check = self.metadata.get("convert"), self.metadata.get("check")
        if convert is not None:
            value = convert(value)
        value = _as_kind(value, self.kind)
        if value is None:
            return None
        if not isinstance(value, str):
            for name, (holds, clause) in _BOUNDS.items():
                if name in self.metadata and not holds(value, self.metadata[name]):
                    raise ValueError(clause.format(self.metadata[name]))
        return value if check is None else check(value)


@lru_cache
def _rules_of(kind: type[DataclassInstance]) -> tuple[_Rule, ...]:
    types = get_type_hints(kind)
    return tuple(_Rule(each.name, types[each.name], each.metadata) for each in fields(kind))


def _as_kind(value: Any, kind: Any) -> Any:  # noqa: ANN401, C901, PLR0911 - a case for each kind of type
    """Convert a value to a type; raise ValueError, with a clause, if it does not fit."""
    if get_origin(kind) in {Union, UnionType}:
        kinds = [each for each in get_args(kind) if each is not NoneType]
        return None if value is None and len(kinds) < len(get_args(kind)) else _first_fit(value, kinds)
    if get_origin(kind) is Literal:
        if not isinstance(value, str) or value not in get_args(kind):
            raise ValueError(f"must be {_listed(get_args(kind))}")
        return value
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError("must be a list")
        return tuple(_as_kind(each, get_args(kind)[0]) for each in value)
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, Mapping):
        return read_options(kind, value)
    if kind is bool:
        return _require(value, isinstance(value, bool), "must be true or false")
    if kind is int:
        is_whole = isinstance(value, Integral) and not isinstance(value, bool)
        return int(_require(value, is_whole, "must be a whole number"))
    if kind is float:
        is_number = isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value)
        return float(_require(value, is_number, "must be a number"))
    if kind is str:
        return _require(value, isinstance(value, str), "must be text")
    if kind is Path:
        return Path(_require(value, isinstance(value, str | Path), "must be a path"))
    return _require(
        value,
        isinstance(value, kind),
        "must be a group of options" if is_dataclass(kind) else f"must be a {kind.__name__}",
    )


def _first_fit(value: Any, kinds: list[Any]) -> Any:  # noqa: ANN401
    clauses: list[str] = []
    for kind in kinds:
        try:
            return _as_kind(value, kind)
        except InvalidOptionError:
            raise
        except ValueError as error:
            clauses.append(str(error))
    first, *others = dict.fromkeys(clauses)
    raise ValueError(" or ".join([first, *(other.removeprefix("must be ") for other in others)]))


def _require(value: Any, fits: bool, clause: str) -> Any:  # noqa: ANN401, FBT001
    if not fits:
        raise ValueError(clause)
    return value


def _listed(choices: tuple[Any, ...]) -> str:
    *others, last = map(repr, choices)
    return f"{', '.join(others)} or {last}" if others else last


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on one video; a video that exceeds them fails with `video_too_large`."""

    max_video_bytes: int = option(4 * 1024**3, "Size of the file.", ge=1)
    max_frame_pixels: int = option(64_000_000, "Width times height of a frame.", ge=1)
    max_frames: int = option(1_000_000, "Frames of the video, if they must be counted.", ge=1)
    max_duration_s: float = option(86_400.0, "Time that its frames span, or that its header states, in seconds.", gt=0)

    def __post_init__(self) -> None:
        check_options(self, Limits)


@runtime_checkable
class Secret(Protocol):
    """A string that is never shown, such as pydantic's `SecretStr`."""

    def get_secret_value(self) -> str:
        """Return the text."""


def reveal(secret: str | Secret | None) -> str | None:
    """Return the text of a secret; None if there is none."""
    return secret.get_secret_value() if isinstance(secret, Secret) else secret or None


_CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """How S3 is reached."""

    endpoint_url: str | None = option(None, "S3 endpoint; defaults to Amazon's.")
    region: str = option("us-east-1", "S3 region.")
    access_key_id: str | Secret | None = option(
        None, "S3 access key; defaults to the AWS credential chain.", is_secret=True
    )
    secret_access_key: str | Secret | None = option(None, "S3 secret key.", is_secret=True)
    ca_file: Path | None = option(
        None,
        "CA certificate (PEM) for an https:// endpoint; defaults to the system's.",
        check=Path.absolute,  # processes that use it may run in other folders
    )
    read_timeout_s: float = option(60, "Seconds to wait for data, and up to 10 for a connection.", gt=0, le=3600)
    max_attempts: int = option(4, "Attempts per request; refusals of a busy store do not count.", ge=1, le=20)

    def __post_init__(self) -> None:
        check_options(self, S3Options)

    @property
    def connect_timeout_s(self) -> float:
        """Seconds to wait for a connection."""
        return min(self.read_timeout_s, _CONNECT_TIMEOUT_S)


def _as_networks(given: Any) -> Any:  # noqa: ANN401 - whatever a user gave
    if not isinstance(given, list | tuple):
        return given
    try:
        return tuple(map(ip_network, given))
    except ValueError:
        raise ValueError("is not a network; write it as 10.1.0.0/16, with all host bits zero") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebOptions:
    """How videos are read over `http://` and `https://`."""

    timeout_s: float = option(30, "Seconds to wait for a connection or for data.", gt=0, le=3600)
    total_timeout_s: float = option(
        900, "Maximum seconds for downloading one video, including retries.", gt=0, le=86_400
    )
    max_attempts: int = option(
        4, "Attempts per request before giving up; more than one also waits for a busy server (429, 503).", ge=1, le=20
    )
    max_concurrency: int = option(16, "Concurrent requests per process.", ge=1, le=256)
    allow_hosts: tuple[str, ...] = option(
        (), 'Allowed hosts, such as ["media.example.com", "*.example.org"]; if empty, all are.'
    )
    allow_protocols: tuple[str, ...] = option(
        (),
        'Filesystems that `fsspec+` URIs may use, such as ["sftp"]; '
        "gs, gcs, az, abfs, abfss and hf need not be listed.",
    )
    allow_networks: tuple[IPv4Network | IPv6Network, ...] = option(
        (), 'Networks allowed in addition to the public internet, such as ["10.1.0.0/16"].', convert=_as_networks
    )
    allow_private: bool = option(False, "Allow all private, link-local, loopback and other non-public addresses.")

    def __post_init__(self) -> None:
        check_options(self, WebOptions)
