"""The command line that does again what a flow run did, to be pasted into the shell that showed it."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

from infra.program import command
from infra.settings import CONFIG_VARIABLE, secret_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def settings_inline(*sections: str) -> list[str]:
    """Return settings of the environment as a shell assigns them before a command, without secrets.

    They are those of the sections, and those that say where the settings and the embedded services are.
    """
    starts = (CONFIG_VARIABLE, "REELABEL_HOME", *(f"REELABEL_{section}_".upper() for section in sections))
    ours = {name: value for name, value in os.environ.items() if name.startswith(starts)}
    return [f"{name}={shlex.quote(value)}" for name, value in sorted(ours.items()) if name not in secret_variables()]


def repeat_flow(flow: str, parameters: Mapping[str, Any]) -> str | None:
    """Return the command that starts a flow again, or a sentence on what to do where there is none."""
    repeat = _REPEATS.get(flow)
    return repeat(parameters) if repeat else None


def _classify(parameters: Mapping[str, Any]) -> str:
    return command("classify", parameters["manifest"], **_given(parameters, "overrides", "force", "keep_going"))


def _describe(parameters: Mapping[str, Any]) -> str:
    return command("describe", parameters["manifest"], **_given(parameters, "options", "force", "keep_going"))


def _backfill(parameters: Mapping[str, Any]) -> str:
    ids_file = parameters.get("ids_file") or ""
    is_stored = "://" in ids_file  # the command reads only files of this machine
    repeated = command(
        "backfill",
        ids=parameters.get("job_ids"),
        ids_file="ids.txt" if is_stored else ids_file,
        selection=parameters.get("jobs"),
        manifest=parameters["manifest"],
        **_given(parameters, "overrides", "force"),
    )
    return f"Save {ids_file} as ids.txt, then: {repeated}" if is_stored else repeated


def _evaluate(parameters: Mapping[str, Any]) -> str:
    return command(
        "evaluate",
        parameters["manifest"],
        sampler=tuple(parameters.get("samplers") or ()),
        model=tuple(parameters.get("models") or ()),
        no_references=parameters.get("references") is False,
        **_given(parameters, "baseline", "live"),
    )


def _survey(parameters: Mapping[str, Any]) -> str:
    overrides = parameters.get("overrides") or {}
    if overrides.get("model"):
        return f"Start it again in the Prefect UI: {command('manifest survey')} takes the model of the settings."
    # A form leaves the sample empty for all clips; a missing one is the flow's default.
    options = {"sample": parameters.get("sample", 2000), "sampling": overrides.get("sampling")}
    return command("manifest survey", parameters["manifest"], **options, keep_going=parameters.get("keep_going"))


def _given(parameters: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: parameters.get(name) for name in ("dataset", *names)}


_REPEATS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "classify": _classify,
    "describe": _describe,
    "backfill": _backfill,
    "evaluate": _evaluate,
    "survey": _survey,
    "maintain": lambda _: command("maintain"),
    "watch": lambda _: "It looks again by itself, unless watch/manifests is paused.",
}
