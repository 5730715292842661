"""The backend that loads SigLIP, SigLIP 2 and CLIP with transformers, in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reelabel.errors import ConfigurationError
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import TowersConfig
from tasks.embedding.backend import DEFAULT_BACKEND, EmbeddingBackend, TowersBackend, TowersOptions
from tasks.embedding.process import TowersProcess
from tasks.model.identity import read_model_card

if TYPE_CHECKING:
    from tasks.model.identity import ModelCard

_EXAMPLE = "google/siglip-so400m-patch14-384"


class TransformersBackend(TowersBackend):
    """Loads models from a folder or the hub."""

    name = DEFAULT_BACKEND

    def card(self, name: str | None, *, revision: str | None = None) -> ModelCard:
        """Read the configuration of a model.

        Raises:
            ConfigurationError: None is named.
            ModelError: It cannot be used.
        """
        if not name:
            raise ConfigurationError(
                "No image-text model is named; name one with REELABEL_DESCRIBE_MODEL, or --model of describe and "
                f"search: `export REELABEL_DESCRIBE_MODEL={_EXAMPLE}`."
            )
        folder = Path(name).expanduser()
        if (folder / "open_clip_config.json").is_file() and not (folder / "config.json").is_file():
            raise ModelError(
                f"{name} is a checkpoint of OpenCLIP alone; name one that transformers loads, with a config.json."
            )
        return read_model_card(name, revision=revision)

    def open(self, card: ModelCard, options: TowersOptions) -> EmbeddingBackend:
        """Create the process."""
        return TowersProcess(
            TowersConfig(
                model=card.location,
                revision=card.revision,
                devices=options.devices,
                batch_frames=options.batch_frames,
            ),
            log_path=options.log_path,
            log_as_json=options.log_as_json,
            start_timeout_s=options.start_timeout_s,
            answer_timeout_s=options.answer_timeout_s,
            python=options.python,
        )


TRANSFORMERS = TransformersBackend()
