"""Stores the texts and vectors of banks, by the digest of their texts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from reelabel.digest import json_digest
from reelabel.errors import ConfigurationError, ObjectError, SealError
from reelabel_engine.devices import visible_gpus
from reelabel_engine.environment import find_python
from reelabel_engine.protocol import EncoderInfo
from tasks.description.banks import Bank
from tasks.description.pooling import TextBank
from tasks.frame_cache.sealed_files import SealedFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from tasks.domain import ModelIdentity
    from tasks.embedding.encoder import Encoder

_VERSION = 1


def bank_digest(texts: Iterable[str]) -> str:
    return json_digest(list(texts))


@dataclass(frozen=True, slots=True, kw_only=True)
class BankFiles(SealedFiles):
    """Banks in the folder `banks` of the store's root: signed vectors, and texts named by their digest."""

    python: Path | None = None

    def save_texts(self, texts: Sequence[str]) -> str:
        digest = bank_digest(texts)
        self.objects.write_new(self._texts_uri(digest), json.dumps(list(texts), ensure_ascii=False).encode())
        return digest

    def read_texts(self, digest: str) -> Bank:
        """Read the texts of a bank that an earlier run has used.

        Raises:
            ConfigurationError: They are missing or were altered.
            StoreUnavailableError: The store is unavailable.
        """
        uri = self._texts_uri(digest)
        try:
            texts = json.loads(self.objects.read(uri))
            is_same = isinstance(texts, list) and bank_digest(texts) == digest
        except (ObjectError, ValueError, RecursionError):
            is_same = False
        if not is_same:
            raise ConfigurationError(
                f"The bank {uri} of the earlier run is missing or was altered; describe again with the bank's file."
            )
        return Bank(path=Path(uri), texts=tuple(texts), lines=tuple(range(1, len(texts) + 1)))

    def load_vectors(
        self, texts: Sequence[str], model: ModelIdentity
    ) -> tuple[npt.NDArray[np.float32], EncoderInfo] | None:
        """Look up the vectors of texts, of shape (K, D), and what the encoder reported; None if they are not stored."""
        try:
            data = bytes(self.read_sealed(_vectors_key(texts, model, self.python)))
            facts, _, rows = data.partition(b"\n")
            info = EncoderInfo(**json.loads(facts))
            vectors = np.frombuffer(rows, np.float32).reshape(len(texts), info.dimensions)
        except (ObjectError, SealError, ValueError, TypeError):
            return None
        return vectors, info

    def save_vectors(
        self, texts: Sequence[str], vectors: npt.NDArray[np.float32], info: EncoderInfo, model: ModelIdentity
    ) -> None:
        """Store the vectors of texts, and the encoder's report without the parts that are specific to a process."""
        facts = json.dumps(asdict(replace(info, gpus=0, start_ms=0.0))).encode()
        data = facts + b"\n" + np.ascontiguousarray(vectors, np.float32).tobytes()
        self.replace_sealed(_vectors_key(texts, model, self.python), data)

    def embed(self, bank: Bank, encoder: Encoder, model: ModelIdentity) -> tuple[TextBank, EncoderInfo]:
        """Return a bank with its vectors and the encoder's report, stored or computed now.

        Raises:
            ConfigurationError: A text is too long for the model.
            ModelError: The model cannot be loaded.
        """
        stored = self.load_vectors(bank.texts, model)
        if stored is None:
            found, info = encoder.embed_texts(bank.texts), encoder.info()
            bank.check_lengths(found.tokens, info.max_tokens)
            self.save_vectors(bank.texts, found.vectors, info, model)
            stored = found.vectors, info
        vectors, info = stored
        return TextBank(texts=bank.texts, vectors=vectors), info

    def _texts_uri(self, digest: str) -> str:
        return self.uri_of(f"banks/{digest}.json")


def _vectors_key(texts: Sequence[str], model: ModelIdentity, python: Path | None) -> str:
    facts = {
        "bank": _VERSION,
        "texts": bank_digest(texts),
        "model": model.model_dump(mode="json"),
        "on_gpu": bool(visible_gpus()),  # if weights have another type
        "versions": encoder_versions(python),
    }
    return f"banks/{json_digest(facts)}.vectors"


def encoder_versions(python: Path | None) -> dict[str, str]:
    """Return the versions of the packages used for embedding, without importing them; empty if not installed."""
    try:
        versions = find_python(python, needs="transformers").versions
    except ConfigurationError:
        return {}
    return {name: versions[name] for name in ("torch", "torchvision", "transformers")}
