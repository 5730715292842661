"""The candidates that an evaluation compares: from their names to their specs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from flows.run.request import NO_OVERRIDES, QuestionOptions
from flows.run.spec import make_spec
from infra.settings import SamplingOptions
from infra.validation import first_fault
from reelabel.errors import ConfigurationError
from reelabel.sampling.registry import NATIVE, find_sampler
from reelabel.sampling.spec import EVERY
from tasks.model.backend import backend_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from infra.settings import Settings
    from reelabel.sampling.options import Sampling
    from tasks.domain import RunSpec
    from tasks.model.identity import ModelInfo

REFERENCES = (NATIVE, "uniform:16")
_LISTS = {"motion_tasks", "still_tasks"}  # written as a|b
_FORM = "SAMPLER[:FRAMES][,OPTION=VALUE...], such as keyframes, uniform:16 or qwen3_vl,fps=4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One configuration to compare.

    Attributes:
        name: Short name, unique within the comparison.
        overrides: What its run changes of the settings.
    """

    name: str
    spec: RunSpec = field(repr=False)
    overrides: QuestionOptions


def resolve_candidates(
    samplers: Sequence[str],
    models: Sequence[str],
    settings: Settings,
    *,
    baseline: str | None = None,
    references: bool = True,
    asking: QuestionOptions = NO_OVERRIDES,
) -> tuple[list[Candidate], str]:
    """Resolve every candidate: each sampler with each model, the baseline and the references; see `EvaluateRequest`.

    `asking` has the options that all of them share.

    Returns:
        The candidates, without duplicate specs, and the baseline's name.

    Raises:
        ModelError: A model cannot be used.
        ConfigurationError: A sampler is malformed, or fewer than two candidates are left.
    """
    first = baseline or (NATIVE if references or not samplers else samplers[0])
    texts = dict.fromkeys([*samplers, first, *(REFERENCES if references else ())])
    model_names: Sequence[str | None] = models or [None]
    backend = backend_of(settings)
    resolved = [
        (text, *_resolve(text, asking, backend.model_info(model, settings), settings, model))
        for model in model_names
        for text in texts
    ]
    by_spec = {spec.spec_id: (overrides, spec) for _, overrides, spec in reversed(resolved)}
    names = dict(zip(by_spec, _names([spec for _, spec in by_spec.values()]), strict=True))
    against = next(spec.spec_id for text, _, spec in resolved if text == first)
    if len(by_spec) < 2:  # noqa: PLR2004
        raise ConfigurationError(f"Only one configuration to compare, {names[against]}; name at least two.")
    candidates = [
        Candidate(name=names[spec_id], spec=spec, overrides=overrides)
        for spec_id, (overrides, spec) in reversed(by_spec.items())
    ]
    return candidates, names[against]


def _resolve(
    text: str, asking: QuestionOptions, model_info: ModelInfo, settings: Settings, model: str | None
) -> tuple[QuestionOptions, RunSpec]:
    overrides = asking.model_copy(update={"model": model, "sampling": parse_sampler(text)})
    return overrides, make_spec(model_info, settings, overrides)


def parse_sampler(text: str) -> SamplingOptions:
    """Parse a sampler as the user writes it.

    Raises:
        ConfigurationError: The text is malformed, or a number is out of bounds.
    """
    head, *options = text.replace(" ", "").split(",")
    sampler, _, frames = head.partition(":")
    is_count = frames.isdecimal() or frames in {"", str(EVERY)}
    if not sampler or not is_count or not all("=" in option for option in options):
        raise ConfigurationError(f"{text!r} is not a sampler; write {_FORM}.")
    values: dict[str, Any] = dict(option.split("=", 1) for option in options) | {"sampler": sampler}
    values |= {name: values[name].split("|") for name in _LISTS & values.keys()}
    if frames:
        values["num_frames"] = frames
    try:
        return SamplingOptions.model_validate(values)
    except ValidationError as error:
        where, value, clause = first_fault(error)
        reason = f"{where} {value}: {clause}" if where else clause
        raise ConfigurationError(f"{text!r} cannot be used ({reason}); write {_FORM}.") from None


def format_sampling(sampling: Sampling) -> str:
    """Format sampling as `parse_sampler` parses it."""
    frames = f":{sampling.num_frames}" if find_sampler(sampling.sampler).uses_num_frames else ""
    plain = {"sampler", "num_frames", "max_pixels", "size_multiple_px"}
    options = {name: value for name, value in sampling.to_dict().items() if name not in plain}
    named = {name: "|".join(value) if name in _LISTS else value for name, value in options.items()}
    return ",".join([f"{sampling.sampler}{frames}", *(f"{name}={value}" for name, value in named.items())])


def _names(specs: Sequence[RunSpec]) -> Iterator[str]:
    has_models = len({spec.model.name for spec in specs}) > 1
    names = [format_sampling(spec.sampling) + (f" @ {spec.model.name}" if has_models else "") for spec in specs]
    for name, spec in zip(names, specs, strict=True):
        yield name if names.count(name) == 1 else f"{name} [{spec.spec_id[:6]}]"
