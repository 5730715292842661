"""`reelabel up`, `down`, `prepare`, `doctor` and `config`."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any

import tomli_w
import typer
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from flows.cli.console import print_line, print_notice, require_format
from flows.cli.context import running_services, startup_errors
from flows.cli.options import example
from infra.doctor import probe_store, run_checks
from infra.embedded import ServiceName, in_use, login_path, status, stop, with_running_services
from infra.embedded.home import Home
from infra.program import command
from infra.settings import Settings, load_settings
from infra.settings.types import fields_of, meaning_of
from infra.temporary import remove_stale_folders
from reelabel.errors import ConfigurationError
from reelabel.sources.object_store import ObjectStore
from sql.migrate import head
from tasks.database.schema import prepare_database
from tasks.model.backend import backend_of
from tasks.model.warm_engines import WarmEngines

if TYPE_CHECKING:
    from collections.abc import Mapping

_OK, _WARNING, _FAULT = ("ok   ", "green"), ("warn ", "yellow"), ("fault", "red")
_SETTINGS_PAGE = """\
# Settings

Written by `reelabel config --format markdown`; a test checks that it is up to date.

`store.uri` is `uri` under `[store]` in `reelabel.toml` (in the current folder, or the path in `REELABEL_CONFIG`), the
variable `REELABEL_STORE_URI`, and `--set store.uri=...` for one command. Variables override the file. Lists and tables
are JSON in variables. `reelabel config` prints the settings in use. A setting without a default is unset.
"""
_LISTED_CHOICES = 8  # values of a setting shown in the reference; its description says where to find the others
# A slash in a password should be percent-encoded; if it is not, mask it anyway, but not a port before a path.
_PASSWORD = re.compile(r"(://[^/@:]*:)(?:[^@/]*|(?!\d+/).*)@")


@example("reelabel up")
def up() -> None:
    """Start the embedded services and leave them running.

    They are Postgres, an S3 server, a Prefect server and its worker. The database's schema is upgraded.
    """
    remove_stale_folders()
    needed = ""
    with running_services(*ServiceName, keep=True) as started:
        api_url = started.prefect.api_url or ""
        try:
            with startup_errors():
                prepare_database(started.database)
        except ConfigurationError as error:
            needed = error.message
    print_line(f"Services are running. Stop them with `{command('down')}`. Prefect UI: {api_url.removesuffix('/api')}")
    if load_settings().prefect.api_url is None:
        print_line(f"The login for the Prefect UI is in {login_path(started.home)}.")
    if needed:
        print_notice(needed)


@example("reelabel prepare")
def prepare() -> None:
    """Upgrade the database's schema and create the store's bucket."""
    with running_services(ServiceName.POSTGRES, ServiceName.S3) as settings, startup_errors():
        prepare_database(settings.database)
        print_line(f"The database is at schema {head()}.")
        assert settings.store.uri is not None
        ObjectStore(settings.store).ensure_root(settings.store.uri)
        print_line(f"{probe_store(settings.store)}.")


@example("reelabel down")
def down(
    *, force: Annotated[bool, typer.Option("--force", help="Stop them even if another command is using them.")] = False
) -> None:
    """Stop the embedded services; their data remains."""
    settings = load_settings()
    Home(settings.home).require_private()
    if not force and in_use(settings.home):
        raise ConfigurationError(
            "Another command is using the services; wait for it, stop it with Ctrl-C, or use --force."
        )
    were_running = any(service.is_running for service in status(settings.home))
    stop(settings.home)  # also what a killed start left behind
    WarmEngines.of(settings.home).end()
    done = "Services stopped." if were_running else "No services were running."
    print_line(f"{done} Their data remains in {settings.home}.")


@example("reelabel doctor")
def doctor() -> None:
    """Check the installation and its services, and suggest fixes.

    Exits with 2 if a check fails.
    """
    settings, faults = load_settings(), 0
    for check in (*run_checks(with_running_services(settings)), *backend_of(settings).diagnose(settings)):
        faults += not check.ok
        mark = _FAULT if not check.ok else _WARNING if check.advice else _OK
        advice = f". {check.advice}" if check.advice else ""
        print_line(mark, f" {check.name}: {check.detail.rstrip('.')}{advice}")
    raise typer.Exit(2 if faults else 0)


@example("reelabel config")
def config(
    *,
    form: Annotated[
        str,
        typer.Option(
            "--format", help="toml, the settings in use; or markdown, a reference of all with their defaults."
        ),
    ] = "toml",
) -> None:
    """Print every setting with its value and meaning; secrets are masked."""
    require_format(form, "toml", "markdown")
    if form == "markdown":
        print(settings_page(), end="")  # noqa: T201 - may be saved as a file
    else:
        _print_settings(load_settings())


def _print_settings(settings: Settings) -> None:
    values = _without_passwords(settings.model_dump(mode="json"))
    sections = {name: value for name, value in values.items() if isinstance(value, dict)}
    print(tomli_w.dumps({"home": str(settings.home)}), end="")  # noqa: T201 - may be saved as a file
    for name, fields in sections.items():
        print(f"\n[{name}]")  # noqa: T201
        for field, about in fields_of(type(getattr(settings, name))).items():
            value = fields.get(field)
            print(f"{_line(field, value)}  # {meaning_of(about)}")  # noqa: T201


def settings_page() -> str:
    """Return docs/settings.md: every setting with its default, bounds and description."""
    lines = [_SETTINGS_PAGE]
    for section, field in Settings.model_fields.items():
        model: Any = field.annotation
        if not (fields := fields_of(model)):
            lines += [f"`{section}` (default `{field.get_default()}`): {field.description}\n"]
            continue
        lines += [f"## `[{section}]`\n\n{(model.__doc__ or '').strip()}\n"]
        lines += ["| setting | default | values | |", "|---|---|---|---|"]
        properties = TypeAdapter(model).json_schema()["properties"]
        for name, each in fields.items():
            default = to_jsonable_python(each.get_default(call_default_factory=True))
            shown = "" if default is None else f"`{_inline(default)}`"
            about = meaning_of(each).replace("|", "\\|")
            lines.append(f"| `{section}.{name}` | {shown} | {_values(properties[name])} | {about} |")
        lines.append("")
    return "\n".join(lines)


def _values(schema: Mapping[str, Any]) -> str:
    shapes = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    return "; ".join(filter(None, map(_shape, shapes)))


def _shape(schema: Mapping[str, Any]) -> str:
    choices = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if schema.get("type") == "boolean":
        choices = [True, False]
    bounds = {
        "at least": schema.get("minimum"),
        "more than": schema.get("exclusiveMinimum"),
        "at most": schema.get("maximum"),
        "less than": schema.get("exclusiveMaximum"),
    }
    named = [f"{word} {value:,}" for word, value in bounds.items() if value is not None]
    if len(choices) > _LISTED_CHOICES:
        return ""
    return ", ".join([f"`{_inline(choice)}`" for choice in choices] or named)


def _line(field: str, value: Any) -> str:  # noqa: ANN401 - any JSON value
    if value in (None, {}):
        return f"# {field} ="
    return f"{field} = {_inline(value)}" if isinstance(value, dict) else tomli_w.dumps({field: value}).strip()


def _inline(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Write a value on one line, which tomli_w cannot do; scalars are the same in JSON, except null."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(name)} = {_inline(inner)}' for name, inner in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    return json.dumps("null" if value is None else value, ensure_ascii=False)


def _without_passwords(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Mask passwords in URLs; secret fields are masked already."""
    if isinstance(value, dict):
        return {name: _without_passwords(inner) for name, inner in value.items()}
    return _PASSWORD.sub(r"\1***@", value) if isinstance(value, str) else value
