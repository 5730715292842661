"""What is wrong with Prefect's own settings: it reads the user's when it is imported."""

from __future__ import annotations

import os
import traceback

from pydantic import ValidationError

from infra.validation import first_fault

_SOURCES = "PREFECT_* variables, its profile, .env, prefect.toml and pyproject.toml"


def fault_of_prefect(error: ValueError) -> str | None:
    """Return a sentence on the setting of Prefect that an error is due to; None if it is due to something else."""
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not any(module.startswith("prefect.settings") for module in modules):
        return None
    if not isinstance(error, ValidationError):
        return f"Prefect's settings cannot be read ({' '.join(str(error).split())}); it reads {_SOURCES}."
    place, value, clause = first_fault(error)
    named = [name for name, text in os.environ.items() if _is_meant(name, text, value)]
    # What is part of a value, such as a header, may be a secret.
    fault = f"{' or '.join(sorted(named))}: {value!r}" if named else f"Prefect's setting {place}: it"
    return f"{fault} {clause}; correct or remove it. Prefect reads {_SOURCES}."


def _is_meant(name: str, text: str, value: object) -> bool:
    return name.startswith("PREFECT_") and text.casefold() == str(value).casefold()
