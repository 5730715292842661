"""Files behind their seals, beside those of the frame cache."""

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
    """Files under one root, by key.

    Attributes:
        root_uri: The root, usually of the frame cache.
    """

    objects: ObjectStore
    root_uri: str
    seal: Seal = NO_KEY

    @classmethod
    def of(cls, store: StoreSettings, objects: ObjectStore | None = None, **more: Any) -> Self:  # noqa: ANN401 - fields
        """Return the files of the store, as read and written by `objects`; None opens them. `more` are other fields."""
        assert store.uri is not None
        return cls(objects=objects or ObjectStore(store), root_uri=store.uri, seal=store.seal, **more)

    def uri_of(self, key: str) -> str:
        """Return the URI of a key."""
        return f"{self.root_uri.rstrip('/')}/{key}"

    def read_sealed(self, key: str) -> memoryview:
        """Read a file.

        Raises:
            ObjectError: There is none.
            SealError: It was altered, or belongs elsewhere.
            StoreUnavailableError: The store is unavailable.
        """
        return self.seal.unwrap(key, self.objects.read(self.uri_of(key)))

    def replace_sealed(self, key: str, data: bytes) -> None:
        """Write a file, in place of one that is there.

        Raises:
            StoreUnavailableError: The store is unavailable.
        """
        self.objects.replace(self.uri_of(key), self.seal.wrap(key, data))
