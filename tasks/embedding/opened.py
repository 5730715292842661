"""What embeds, from the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reelabel_engine.devices import assign_gpus, visible_gpus
from tasks.embedding.backend import TowersOptions, towers_backend
from tasks.embedding.fleet import TowersFleet
from tasks.embedding.on_demand import TowersOnDemand, TowersReports

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from infra.settings import Settings
    from tasks.embedding.backend import EmbeddingBackend
    from tasks.model.identity import ModelCard


def open_towers(settings: Settings, card: ModelCard) -> EmbeddingBackend:
    """Create the towers of a model, without starting them.

    Raises:
        ConfigurationError: There are fewer GPUs than towers, or no such backend.
    """
    backend, chosen = towers_backend(settings.describe.backend), settings.describe
    shares = assign_gpus(visible_gpus(), engines=chosen.engines, tensor_parallel_size=1)
    members = [
        backend.open(
            card,
            TowersOptions(
                log_path=settings.home / "logs" / ("towers.log" if len(shares) == 1 else f"towers-{number}.log"),
                log_as_json=settings.log.format == "json",
                start_timeout_s=settings.model.start_timeout_s,
                devices=devices,
                python=settings.model.python,
            ),
        )
        for number, devices in enumerate(shares)
    ]
    return members[0] if len(members) == 1 else TowersFleet(members)


def towers_on_demand(
    settings: Settings, card: ModelCard, *, charge: Callable[[], AbstractContextManager[object]]
) -> TowersOnDemand:
    """Create the towers of a model, which are loaded once something must be embedded.

    Args:
        settings: How to load them.
        card: The model.
        charge: Measures the time in which they are waited for.

    Raises:
        ConfigurationError: As `open_towers`.
    """
    reports = TowersReports.of(
        settings.store,
        backend=settings.describe.backend,
        model=card.identity,
        on_gpu=bool(visible_gpus()),
        python=settings.model.python,
    )
    return TowersOnDemand(open_towers(settings, card), reports, charge=charge)
