"""A run request, and its resolved spec, if it asks questions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flows.run.parameters import NO_OVERRIDES, SpecOverrides
from flows.run.spec import make_spec, require_unchanged
from reelabel.errors import ConfigurationError
from tasks.domain import RunSpec
from tasks.model.backend import backend_of

if TYPE_CHECKING:
    import polars as pl

    from flows.run.selection import JobSelector
    from infra.settings import DescribeOptions, Settings
    from tasks.domain import Spec
    from tasks.model.identity import ModelCard


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A run request.

    Attributes:
        kind: `classify`, `describe` or `backfill`.
        overrides: Changes to the spec from the settings or `base`.
        shared: Whether runs with the same manifest and spec share a plan.
        base: Spec of an earlier run; None uses the settings.
        describes: How videos are described; None if the run answers questions.
        selector: Selects among the manifest's jobs; None selects all of them.
        force: Also answer jobs that have a valid label.
        keep_going: Reject invalid rows of the manifest instead of all of it.
        limit: Maximum jobs to answer; None is no limit.
    """

    kind: str
    manifest: str
    dataset: str | None = None
    overrides: SpecOverrides = NO_OVERRIDES
    shared: bool = False
    base: Spec | None = None
    describes: DescribeOptions | None = None
    selector: JobSelector | None = None
    force: bool = False
    keep_going: bool = False
    limit: int | None = None

    @property
    def only(self) -> pl.Series | None:
        """Ids of the only jobs that can be selected; None if any job can."""
        return self.selector.only if self.selector else None

    @property
    def questions_base(self) -> RunSpec | None:
        """The earlier spec, if it asks questions."""
        return self.base if isinstance(self.base, RunSpec) else None

    @property
    def kept(self) -> set[str]:
        """Fields of the spec that must not differ from the earlier run."""
        if self.overrides == NO_OVERRIDES:
            return set(RunSpec.model_fields)
        return set() if self.overrides.model is not None else {"model", "frames_as"}


def resolve_spec(request: RunRequest, settings: Settings) -> tuple[ModelCard, RunSpec]:
    """Read the requested model's card, and resolve the spec.

    Raises:
        ModelError: The model cannot be used.
        ConfigurationError: The options conflict, or the earlier spec cannot be reproduced.
    """
    base = request.questions_base
    # The spec does not include a folder's path, so a folder other than that in the settings must be named.
    backend = backend_of(settings)
    named = request.overrides.model
    if base and not named and backend.takes_hub_models:
        named = base.model.name if base.model.revision is not None else settings.model.name
        if not named:
            raise ConfigurationError(
                f"The earlier run's model, {base.model.name}, was a folder; name that folder as the model, or set "
                "REELABEL_MODEL_NAME."
            )
    card = backend.card(named, settings)
    spec = make_spec(card, settings, request.overrides, base=base)
    if base:
        require_unchanged(spec, base, request.kept)
    return card, spec
