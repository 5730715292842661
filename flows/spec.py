"""From the settings, and what a run asks for instead, to its spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from flows.parameters import AS_SET, WORDED_AS_SET
from infra.errors import ConfigurationError
from tasks.domain import SAMPLER_OPTIONS, RunSpec, Sampling

if TYPE_CHECKING:
    from infra.settings import PromptChoice, SamplingChoice, SamplingSettings, Settings
    from tasks.model.identity import ModelCard

# Of one frame, where the user names no limit: what Qwen's own video processing aims at, 768 x 28 x 28.
_MOST_PIXELS = 602_112


def make_spec(
    card: ModelCard,
    settings: Settings,
    *,
    num_frames: int | None = None,
    choice: SamplingChoice = AS_SET,
    prompts: PromptChoice = WORDED_AS_SET,
    permutations: int | None = None,
) -> RunSpec:
    """Put together everything on the run's side that can change an answer.

    Args:
        card: The model.
        settings: What holds unless the run asks for something else.
        num_frames: What the run asks for; None is as set.
        choice: The same for the other options of sampling.
        prompts: The same for what the model is told besides each job's question.
        permutations: In how many orders the choices are shown; None is as set.

    Raises:
        ConfigurationError: The sampling options do not go together.
    """
    numbers = _chosen(settings.sampling, choice) | {
        "num_frames": num_frames or settings.sampling.num_frames,
        "size_multiple_px": card.size_multiple_px,
        "max_pixels": settings.sampling.max_pixels or min(card.max_pixels or _MOST_PIXELS, _MOST_PIXELS),
    }
    try:
        sampling = Sampling(**numbers)
    except ValidationError as error:
        fault = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigurationError(f"The sampling options do not go together: {fault}.") from None
    wording = {
        name: value
        for name in ("template", "system_prompt", "examples", "choice_scoring")
        if (value := getattr(settings.model, name)) is not None
    } | prompts.model_dump(exclude_none=True)
    identity = card.identity.model_copy(update={"dtype": settings.model.dtype})
    orders = permutations or settings.model.permutations
    return RunSpec(model=identity, sampling=sampling, permutations=orders, **wording)


def _chosen(settings: SamplingSettings, choice: SamplingChoice) -> dict[str, Any]:
    """Lay a choice over the settings; options that are set for the usual sampler are not for another one."""
    usual = settings.model_dump()
    if choice.sampler not in {None, settings.sampler}:
        usual |= dict.fromkeys(SAMPLER_OPTIONS)
    return usual | choice.model_dump(exclude_none=True)
