"""Banks on the store, by the digest of their texts: the texts, so that a later run finds them; and their vectors."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from reelabel.digest import json_digest
from reelabel.errors import ConfigurationError, ObjectError, SealError
from reelabel_engine.environment import find_python
from tasks.description.banks import Bank
from tasks.description.pooling import EmbeddedBank
from tasks.frame_cache.sealed_files import SealedFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tasks.domain import ModelIdentity

_VERSION = 1


def bank_digest(texts: Iterable[str]) -> str:
    """Return the digest of a bank's texts, in their order."""
    return json_digest(list(texts))


@dataclass(frozen=True, slots=True, kw_only=True)
class BankFiles(SealedFiles):
    """Banks in the folder `banks` of the store's root: sealed vectors, and texts that are named by their digest.

    Attributes:
        python: The setting `model.python`, whose packages make the vectors.
    """

    python: Path | None = None

    def keep_texts(self, texts: Sequence[str]) -> str:
        """Store the texts of a bank, unless they are there; return their digest."""
        digest = bank_digest(texts)
        self.objects.write_new(self._texts_uri(digest), json.dumps(list(texts), ensure_ascii=False).encode())
        return digest

    def read_texts(self, digest: str) -> Bank:
        """Read the texts of a bank that an earlier run has used.

        Raises:
            ConfigurationError: They are gone, or were altered.
            StoreUnavailableError: The store is unavailable.
        """
        uri = self._texts_uri(digest)
        try:
            texts = json.loads(self.objects.read(uri))
        except (ObjectError, ValueError):
            texts = None
        if texts is None or bank_digest(texts) != digest:
            raise ConfigurationError(
                f"The bank {uri} of the earlier run is gone or was altered; describe again with the bank's file."
            )
        return Bank(path=Path(uri), texts=tuple(texts), lines=tuple(range(1, len(texts) + 1)))

    def find_vectors(self, texts: Sequence[str], model: ModelIdentity) -> EmbeddedBank | None:
        """Look up the vectors of a bank by a model; None if they must be made."""
        key = _vectors_key(texts, model, self.python)
        try:
            vectors = np.load(io.BytesIO(self.read_sealed(key)), allow_pickle=False)
        except (ObjectError, SealError, ValueError, EOFError):
            return None
        if vectors.ndim != 2 or len(vectors) != len(texts) or vectors.dtype != np.float32:  # noqa: PLR2004
            return None
        return EmbeddedBank(texts=tuple(texts), vectors=vectors)

    def keep_vectors(self, bank: EmbeddedBank, model: ModelIdentity) -> None:
        """Store the vectors of a bank, in place of those that must not be used."""
        buffer, key = io.BytesIO(), _vectors_key(bank.texts, model, self.python)
        np.save(buffer, bank.vectors, allow_pickle=False)
        self.replace_sealed(key, buffer.getvalue())

    def _texts_uri(self, digest: str) -> str:
        return self.uri_of(f"banks/{digest}.json")


def _vectors_key(texts: Sequence[str], model: ModelIdentity, python: Path | None) -> str:
    facts = {"bank": _VERSION, "texts": bank_digest(texts), "model": model.model_dump(mode="json")}
    return f"banks/{json_digest(facts | {'versions': towers_versions(python)})}.npy"


def towers_versions(python: Path | None) -> dict[str, str]:
    """Return the versions of the packages that embed, without importing them; empty if these are not installed.

    Args:
        python: The setting `model.python`.
    """
    try:
        versions = find_python(python, needs="transformers").versions
    except ConfigurationError:
        return {}
    return {name: versions[name] for name in ("torch", "transformers")}
