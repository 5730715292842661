"""Backends of the towers: what embeds frames and texts. A backend of your own is one file and one line."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from reelabel.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from infra.settings import Settings
    from reelabel_engine.protocol import TowersInfo
    from tasks.model.identity import ModelCard

ENTRY_POINT_GROUP = "reelabel.towers"
DEFAULT_BACKEND = "transformers"

# Imported on use.
_OURS = {DEFAULT_BACKEND: "tasks.embedding.transformers_backend:TRANSFORMERS"}
_LOADERS: dict[str, Callable[[], object]] = {
    name: EntryPoint(name, value, ENTRY_POINT_GROUP).load for name, value in _OURS.items()
}


class EmbeddingBackend(Protocol):
    """Embeds frames and texts; a context manager. See `TowersProcess` for what each method takes and raises."""

    def __enter__(self) -> Self:
        """Start."""
        ...

    def __exit__(self, *_raised: object) -> None:
        """Close."""
        ...

    def start(self) -> None:
        """Start loading; return at once."""
        ...

    def wait_ready(self) -> TowersInfo:
        """Wait until the model is loaded."""
        ...

    def embed_frames(self, videos: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
        """Embed frames (N, H, W, 3) of several videos; shape (sum of N, D), L2-normalised."""
        ...

    def embed_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed texts; shape (K, D), L2-normalised."""
        ...

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of texts."""
        ...

    def close(self) -> None:
        """Shut down everything that was started; idempotent."""
        ...


# Of one request to the image tower.
BATCH_FRAMES = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class TowersOptions:
    """How the towers are run.

    Attributes:
        log_path: File that receives their output.
        log_as_json: Write each line of it as JSON.
        start_timeout_s: Seconds allowed for loading.
        answer_timeout_s: Seconds without a reply after which they count as hung.
        batch_frames: Frames that the image tower is given at once.
        devices: GPUs, as `CUDA_VISIBLE_DEVICES` names them; empty uses what is visible, or the CPU.
        python: Python that runs them; None finds one.
    """

    log_path: Path
    log_as_json: bool = False
    start_timeout_s: float = 900.0
    answer_timeout_s: float = 600.0
    batch_frames: int = BATCH_FRAMES
    devices: tuple[str, ...] = ()
    python: Path | None = None


class TowersBackend(ABC):
    """A backend as the registry holds it.

    Attributes:
        name: Its name.
    """

    name: ClassVar[str]

    @abstractmethod
    def card(self, name: str | None, *, revision: str | None = None) -> ModelCard:
        """Read the card of a model, without loading it; None leaves the choice to the backend.

        Raises:
            ConfigurationError: None is named, and the backend has none of its own.
            ModelError: The model cannot be used.
        """

    @abstractmethod
    def open(self, card: ModelCard, options: TowersOptions) -> EmbeddingBackend:
        """Create what embeds, without starting it."""


def register(backend: TowersBackend) -> None:
    """Make a backend known to this process; packages declare theirs as entry points of the group `reelabel.towers`."""
    _LOADERS[backend.name] = lambda: backend


def towers_backend(name: str = DEFAULT_BACKEND) -> TowersBackend:
    """Return a backend by its name.

    Raises:
        ConfigurationError: There is none, or it cannot be imported, or is not a `TowersBackend`.
    """
    declared = (
        {found.name: found.load for found in entry_points(group=ENTRY_POINT_GROUP)} if name not in _LOADERS else {}
    )
    load = _LOADERS.get(name) or declared.get(name)
    if load is None:
        known = ", ".join(dict.fromkeys([*_LOADERS, *declared]))
        raise ConfigurationError(f"There is no backend {name} for embeddings; use one of {known}.")
    try:
        backend = load()
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"Cannot import the backend {name}: {error}.") from error
    if not isinstance(backend, TowersBackend):
        kind = type(backend).__name__
        raise ConfigurationError(f"The backend {name} is of type {kind}; it must be an instance of TowersBackend.")
    return backend


def towers_card(settings: Settings, name: str | None = None, *, revision: str | None = None) -> ModelCard:
    """Read the card of a model of the settings' backend; what is not named is as in the settings.

    Raises:
        ConfigurationError: As `towers_backend`, or no model is named.
        ModelError: The model cannot be used.
    """
    describe = settings.describe
    return towers_backend(describe.backend).card(name or describe.model, revision=revision or describe.revision)
