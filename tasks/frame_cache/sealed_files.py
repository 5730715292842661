"""Sealed files beside those of the frame cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from reelabel.seal import NO_KEY
from reelabel.sources.object_store import ObjectStore

if TYPE_CHECKING:
    from infra.settings import StoreSettings
    from reelabel.seal import Seal


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedFiles:
    """Sealed files under one root, usually that of the frame cache, by key."""

    objects: ObjectStore
    root_uri: str
    seal: Seal = NO_KEY

    @classmethod
    def of(cls, store: StoreSettings, objects: ObjectStore | None = None, **more: Any) -> Self:  # noqa: ANN401 - fields
        """Return the files of a store, which None opens; `more` are other fields."""
        assert store.uri is not None
        return cls(objects=objects or ObjectStore(store), root_uri=store.uri, seal=store.seal, **more)

    def uri_of(self, key: str) -> str:
        return f"{self.root_uri.rstrip('/')}/{key}"

    def read_sealed(self, key: str) -> memoryview:
        """Read a file.

        Raises:
            ObjectError: There is none.
            SealError: It was altered, or is another file.
        """
        return self.seal.unwrap(key, self.objects.read(self.uri_of(key)))

    def replace_sealed(self, key: str, data: bytes) -> None:
        self.objects.replace(self.uri_of(key), self.seal.wrap(key, data))
