"""What a run is asked to do, and how that makes it ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flows.asker import read_card
from flows.parameters import AS_SET, WORDED_AS_SET
from flows.spec import make_spec, require_same
from tasks.domain import RunSpec

if TYPE_CHECKING:
    import polars as pl

    from flows.choosing import Choosing
    from infra.sampling_settings import SamplingChoice
    from infra.settings import PromptChoice, Settings
    from tasks.model.identity import ModelCard


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What a run is asked to do.

    Attributes:
        kind: `classify` or `backfill`.
        shared: Whether runs that ask the same share the work.
        base: An earlier way of asking, which holds but for what is asked for here; None takes the settings.
        choosing: Chooses among the manifest's jobs; None takes all of them.
        force: Ask again even where a valid label stands.
        limit: Ask at most so many of the jobs; None is no limit.
    """

    kind: str
    manifest: str
    dataset: str | None = None
    num_frames: int | None = None
    sampling: SamplingChoice = AS_SET
    model: str | None = None
    prompts: PromptChoice = WORDED_AS_SET
    permutations: int | None = None
    shared: bool = False
    base: RunSpec | None = None
    choosing: Choosing | None = None
    force: bool = False
    limit: int | None = None

    @property
    def only(self) -> pl.Series | None:
        """Ids of the only jobs of the manifest that matter; None where all do."""
        return self.choosing.only if self.choosing else None

    @property
    def asks_anew(self) -> bool:
        """Whether it asks for anything that makes a way of asking of its own."""
        sizes = (self.num_frames, self.model, self.permutations)
        return any(each is not None for each in sizes) or (self.sampling, self.prompts) != (AS_SET, WORDED_AS_SET)

    @property
    def kept(self) -> set[str]:
        """What of an earlier way of asking must stay as it was, as fields of the spec."""
        if not self.asks_anew:
            return set(RunSpec.model_fields)
        return set() if self.model is not None else {"model", "frames_as"}


def read_spec_of(request: RunRequest, settings: Settings) -> tuple[ModelCard, RunSpec]:
    """Look at the model that a request names, and put together how it asks.

    Raises:
        ModelError: The model cannot be used.
        ConfigurationError: The options do not go together, or the earlier way of asking cannot be repeated.
    """
    base = request.base
    # A folder's place is not in the spec: that of another one than the settings' must be named.
    on_hub = base is not None and base.model.revision is not None and settings.model.backend == "vllm"
    card = read_card(request.model or (base.model.name if base and on_hub else None), settings)
    spec = make_spec(
        card,
        settings,
        num_frames=request.num_frames,
        choice=request.sampling,
        prompts=request.prompts,
        permutations=request.permutations,
        base=base,
    )
    if base:
        require_same(spec, base, request.kept)
    return card, spec
