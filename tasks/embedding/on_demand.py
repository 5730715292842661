"""Towers that are loaded once something must be embedded, and not where all that is asked for is kept."""

from __future__ import annotations

import json
import threading
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from reelabel.digest import json_digest
from reelabel.errors import ObjectError, SealError
from reelabel_engine.protocol import TowersInfo
from tasks.embedding.bank_file import towers_versions
from tasks.frame_cache.sealed_files import SealedFiles
from tasks.model.lifetime import Lifetime

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from tasks.domain import ModelIdentity
    from tasks.embedding.backend import EmbeddingBackend

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TowersReports(SealedFiles):
    """What the towers of one model report, in the folder `towers` of the store's root.

    It is kept only if the packages that it depends on are those by which it is found again.

    Attributes:
        backend: Name of their backend.
        model: The model.
        on_gpu: Whether they have a GPU, where weights are of another type.
        python: The setting `model.python`.
    """

    backend: str
    model: ModelIdentity
    on_gpu: bool
    python: Path | None = None

    def find(self) -> TowersInfo | None:
        """Look up what they report; None if they must be loaded."""
        try:
            return TowersInfo(**json.loads(bytes(self.read_sealed(self._key))))
        except (ObjectError, SealError, ValueError, TypeError):
            return None

    def keep(self, info: TowersInfo) -> None:
        """Keep what they report, but for what is of one process alone."""
        if info.versions == towers_versions(self.python):
            kept = replace(info, gpus=0, start_ms=0.0)
            self.replace_sealed(self._key, json.dumps(asdict(kept)).encode())

    @property
    def _key(self) -> str:
        facts = {
            "towers": _VERSION,
            "backend": self.backend,
            "model": self.model.model_dump(mode="json"),
            "on_gpu": self.on_gpu,
            "versions": towers_versions(self.python),
        }
        return f"towers/{json_digest(facts)}.json"


class TowersOnDemand(Lifetime):
    """Towers that are loaded once something must be embedded. Thread-safe.

    Attributes:
        loaded: What they have reported since they were loaded; None while they are not.
    """

    loaded: TowersInfo | None = None

    def __init__(
        self,
        towers: EmbeddingBackend,
        reports: TowersReports,
        *,
        charge: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Load nothing yet.

        Args:
            towers: The towers.
            reports: Keeps what they report.
            charge: Measures the time in which they are waited for.
        """
        self._towers, self._reports, self._charge = towers, reports, charge
        self._lock = threading.Lock()

    @property
    def gpus(self) -> int:
        """GPUs that they hold."""
        return self.loaded.gpus if self.loaded else 0

    def start(self) -> None:
        """Start loading them."""
        self._towers.start()

    def wait_ready(self) -> TowersInfo:
        """Return what they report: from an earlier run, if nothing has been embedded yet."""
        return (None if self.loaded else self._reports.find()) or self.wait_loaded()

    def wait_loaded(self) -> TowersInfo:
        """Wait until they are loaded."""
        with self._charge():
            info = self._towers.wait_ready()
        with self._lock:
            if self.loaded is None:
                self._reports.keep(info)
                self.loaded = info
        return info

    def embed_frames(self, videos: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
        """Embed frames; as `EmbeddingBackend.embed_frames`."""
        self.wait_loaded()
        return self._towers.embed_frames(videos)

    def embed_texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed texts; as `EmbeddingBackend.embed_texts`."""
        self.wait_loaded()
        return self._towers.embed_texts(texts)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of texts."""
        self.wait_loaded()
        return self._towers.count_tokens(texts)

    def close(self) -> None:
        """End them."""
        self._towers.close()
