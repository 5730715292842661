"""What the pages of all runs are rendered with: one self-contained file, whose texts stay texts."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import fields, is_dataclass
from datetime import UTC
from functools import cache, partial
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from reelabel.text import pluralize, printable
from tasks.evaluation.scores import format_p_value

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tasks.evaluation.scores import Proportion

# The most bytes of a page.
MAX_BYTES = 3_000_000
_MINUTE_S, _HOUR_S = 60, 3600
# From here on, tenths of a millisecond say nothing.
_WHOLE_FROM_MS = 1000


@cache
def environment() -> Environment:
    """Return the environment of the templates."""
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown_text,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(partial(read, "assets")),  # of what pages share
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "ensure_ascii": False}
    environment.filters |= {
        "count": lambda number: f"{number:,}",
        "counted": pluralize,
        "percent": lambda share: f"{share:.1%}",
        "duration": duration,
        "p_value": format_p_value,
        "ms": lambda ms: f"{ms:,.1f}" if ms < _WHOLE_FROM_MS else f"{ms:,.0f}",
        "moment": _moment,
        "points": lambda share: f"{share * 100:+.1f}",
        "interval": _interval,
        "interval_points": lambda found: f"{found.low * 100:+.1f} to {found.high * 100:+.1f}",
        "value": lambda value: "none" if value is None else str(value),
    }
    return environment


def page_value(value: Any) -> Any:  # noqa: ANN401 - any value of the page
    """Return a value with dataclasses as dicts, and with invisible characters of texts as pictures."""
    if isinstance(value, Markup):  # our own, or escaped already
        return value
    if isinstance(value, str):
        return printable(value, keep="\n\t")
    if isinstance(value, dict):
        return {page_value(name): page_value(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [page_value(inner) for inner in value]
    if is_dataclass(value):
        return {field.name: page_value(getattr(value, field.name)) for field in fields(value)}
    return value


def _shown_text(value: Any) -> Any:  # noqa: ANN401 - any value of the page
    return page_value(value) if isinstance(value, str) else value


def policy(scripts: Sequence[str]) -> str:
    """Return a content security policy that allows these scripts alone, by hash, and no requests to other hosts."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    # Charts set inline styles; scripts are allowed by hash only.
    loads = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}"
    return f"{loads}; form-action 'none'; base-uri 'none'"


def render_page(template: str, *, own: Sequence[str], charts: bool = True, **values: Any) -> str:  # noqa: ANN401
    """Render a page in one file, with our style, and with scripts that its policy allows.

    The assets named by `own` make up its script; charts take the vendored libraries.
    """
    joined = "\n".join(read("assets", name) for name in own)
    vendored = [read("vendor", name) for name in ("d3.min.js", "plot.umd.min.js")] if charts else []
    scripts = [*vendored, f'"use strict";\n{{\n{joined}\n}}']
    return (
        environment()
        .from_string(read("assets", template))
        .render(
            style=Markup(read("assets", "style.css")),  # noqa: S704 - our own files
            scripts=[Markup(script) for script in scripts],  # noqa: S704
            policy=policy(scripts),
            version=version("reelabel"),
            **values,
        )
    )


@cache
def read(folder: str, name: str, *, package: str = "tasks.report") -> str:
    """Read a file of a package."""
    return (files(package) / folder / name).read_text(encoding="utf-8").strip()


def duration(seconds: float) -> str:
    """Format seconds, minutes or hours."""
    if seconds < _MINUTE_S:
        return f"{seconds:.1f} s"
    if seconds < _HOUR_S:
        return f"{seconds / _MINUTE_S:.1f} min"
    return f"{seconds / _HOUR_S:.1f} h"


def _interval(share: Proportion) -> str:
    return f"{share.low:.1%} to {share.high:.1%}"


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
