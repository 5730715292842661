"""From the settings, and what a run asks for instead, to its spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from flows.parameters import AS_SET, WORDED_AS_SET
from infra.errors import ConfigurationError
from tasks.domain import ROUTING_OPTIONS, SAMPLER_OPTIONS, RunSpec, Sampling

if TYPE_CHECKING:
    from collections.abc import Collection

    from infra.sampling_settings import SamplingChoice, SamplingSettings
    from infra.settings import PromptChoice, Settings
    from tasks.model.identity import ModelCard

# Of one frame, where the user names no limit: what Qwen's own video processing aims at, 768 x 28 x 28.
_MOST_PIXELS = 602_112
_WORDING = ("template", "system_prompt", "examples", "choice_scoring")


def make_spec(
    card: ModelCard,
    settings: Settings,
    *,
    num_frames: int | None = None,
    choice: SamplingChoice = AS_SET,
    prompts: PromptChoice = WORDED_AS_SET,
    permutations: int | None = None,
    base: RunSpec | None = None,
) -> RunSpec:
    """Put together everything on the run's side that can change an answer.

    Args:
        card: The model.
        settings: What holds unless the run asks for something else.
        num_frames: What the run asks for; None is as set.
        choice: The same for the other options of sampling.
        prompts: The same for what the model is told besides each job's question.
        permutations: In how many orders the choices are shown; None is as set.
        base: An earlier way of asking, which holds in the place of the settings.

    Raises:
        ConfigurationError: The sampling options do not go together.
    """
    identity = card.identity.model_copy(update={"dtype": settings.model.dtype})
    usual = base.sampling if base else settings.sampling
    shown = usual.num_frames if num_frames is None else num_frames
    is_as_before = base is not None and base.model == identity and base.sampling.num_frames == shown
    numbers = _chosen(usual, choice) | {
        "num_frames": shown,
        "size_multiple_px": card.size_multiple_px,
        "max_pixels": usual.max_pixels if is_as_before else most_pixels(card, settings, num_frames=shown),
    }
    try:
        sampling = Sampling(**numbers)
    except ValidationError as error:
        fault = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigurationError(f"The sampling options do not go together: {fault}.") from None
    told = base or settings.model
    wording = {name: value for name in _WORDING if (value := getattr(told, name)) is not None}
    are_images = settings.model.backend == "openai" and settings.server.frames == "images"
    frames_as: Literal["video", "images"] = "images" if are_images else "video"
    return RunSpec(
        model=identity,
        sampling=sampling,
        permutations=permutations or told.permutations,
        frames_as=frames_as,
        **wording | prompts.model_dump(exclude_none=True),
    )


def require_same(spec: RunSpec, base: RunSpec, kept: Collection[str]) -> None:
    """Make sure that a run asks as the earlier one did, but for what it asks for.

    Args:
        spec: How it would ask.
        base: How the earlier one did.
        kept: Fields of the spec that it asks no other value for.

    Raises:
        ConfigurationError: The settings, or the model that they name, are other ones by now.
    """
    changed = [name.replace("_", " ") for name in RunSpec.model_fields if name in kept and _differ(spec, base, name)]
    if changed:
        raise ConfigurationError(
            f"The run before asked by another {' and another '.join(changed)} than the settings have now (its model "
            f"was {base.model.name}); set it as it was, or name the model that is to answer by --model."
        )


def _differ(spec: RunSpec, base: RunSpec, name: str) -> bool:
    found: bool = getattr(spec, name) != getattr(base, name)
    return found


def most_pixels(card: ModelCard, settings: Settings, *, num_frames: int) -> int:
    """Give most pixels of one frame of some: as set, or what the model takes, within reason."""
    return settings.sampling.max_pixels or min(card.most_pixels(num_frames) or _MOST_PIXELS, _MOST_PIXELS)


def _chosen(usual: Sampling | SamplingSettings, choice: SamplingChoice) -> dict[str, Any]:
    """Lay a choice over what is usual; options that are set for the usual sampler are not for another one."""
    options = usual.model_dump()
    sampler = choice.sampler or usual.sampler
    if sampler != usual.sampler:
        options |= dict.fromkeys(SAMPLER_OPTIONS - ROUTING_OPTIONS)
    escalate_below = usual.escalate_below if choice.escalate_below is None else choice.escalate_below
    options |= dict.fromkeys(_idle(sampler, escalate_below or None)) | choice.model_dump(exclude_none=True)
    return options | {"escalate_below": options["escalate_below"] or None}


def _idle(sampler: str, escalate_below: float | str | None) -> frozenset[str]:
    """Name what is usual for the choice between samplers, and means nothing to a run that makes no such choice."""
    if sampler == "auto":
        return frozenset()
    if sampler == "keyframes" and escalate_below is not None:
        return ROUTING_OPTIONS - {"escalate_below", "dense_sampler"}
    return ROUTING_OPTIONS
