"""The index on the store: immutable fragments, and generations that say which of them are the index.

    search/<space>/generation-00000007.json     which fragments and lists; the newest valid one counts
    search/<space>/fragment-<name>.arrow         up to 128 MiB of codes
    search/<space>/fragment-<name>.json          their files
    search/<space>/lists-<name>.f32             the centroids

All are sealed. Of two builders that make the same generation, the store lets one win. A builder that is killed leaves
files that no generation names, which a later one removes.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from reelabel.disk import disk_errors
from reelabel.errors import FrameFileError, ObjectMissingError, ObjectTooLargeError, SealError
from tasks.domain import ModelIdentity  # noqa: TC001 - pydantic reads it
from tasks.frame_cache.sealed_files import SealedFiles
from tasks.search.fragment import Rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from infra.settings import Settings
    from tasks.search.catalogue import VectorSpace

_GENERATION = re.compile(r"/generation-(\d{8,18})\.json$")
_NAME = r"^[0-9a-f]{32}$"
_MAX_BYTES = 1024**3  # more than any of these files has
_KEPT_GENERATIONS = 2
# What a builder has written but not yet published, and what a search is still opening, is younger than this.
_LEFT_AFTER = timedelta(days=1)


class FragmentInfo(BaseModel):
    """One fragment of a generation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=_NAME)]
    rows: Annotated[int, Field(ge=1)]
    files: Annotated[int, Field(ge=1)]


class Generation(BaseModel):
    """The index at one time."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # earlier versions wrote more

    version: Literal[1] = 1
    model: ModelIdentity
    dimensions: Annotated[int, Field(ge=1)]
    lists: Annotated[str | None, Field(pattern=_NAME, description="Name of the centroids; None for one list.")] = None
    list_count: Annotated[int, Field(ge=1)] = 1
    fragments: tuple[FragmentInfo, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of all fragments."""
        return sum(fragment.rows for fragment in self.fragments)


class IndexStore:
    """The index of one space: reads and writes its files, and keeps copies of fragments on this machine."""

    def __init__(self, files: SealedFiles, space: VectorSpace, *, folder: Path) -> None:
        """Store the places; nothing is read yet.

        Args:
            files: Files under the root of the frame cache.
            space: Whose vectors are indexed.
            folder: For copies of fragments, which only this user can write to; created on use.
        """
        self.space = space
        self._objects, self._seal = files.objects, files.seal
        self._root = files.uri_of(f"search/{space.key}")
        self._folder = folder / space.key

    def read_newest(self) -> tuple[Generation | None, list[str]]:
        """Return the newest generation that is valid, and why newer ones are not; None if there is none."""
        faults: list[str] = []
        for _, uri in self._generations():
            name = uri.rpartition("/")[2]
            try:
                return self._read_generation(name), faults
            except FrameFileError as error:
                faults.append(f"The search index {name} is not used: {error.message}")
        return None, faults

    def publish(self, generation: Generation, *, after: int) -> bool:
        """Make a generation the newest.

        Args:
            generation: All of its files have been written.
            after: `newest_number` before it was begun.

        Returns:
            False if another builder has made one in the meantime; then nothing is changed.
        """
        name, data = f"generation-{after + 1:08d}.json", generation.model_dump_json().encode()
        # A write whose answer was lost is repeated by the store's client, and then refused because of itself.
        return self._write(name, data) or self._has(name, data)

    def newest_number(self) -> int:
        """Return the number of the newest generation, valid or not; 0 if there is none."""
        return next((number for number, _ in self._generations()), 0)

    def write_fragment(self, rows: Rows, keys: Sequence[str]) -> FragmentInfo:
        """Write a fragment, which counts once a generation names it."""
        name = secrets.token_hex(16)
        counts = np.bincount(rows.files, minlength=len(keys)).tolist()
        self._write(f"fragment-{name}.json", json.dumps({"keys": list(keys), "rows": counts}).encode())
        self._write(f"fragment-{name}.arrow", rows.encode())
        return FragmentInfo(name=name, rows=len(rows), files=len(keys))

    def read_keys(self, info: FragmentInfo) -> dict[str, int]:
        """Return the keys of a fragment's files, in order, and how many rows each has.

        Raises:
            FrameFileError: They are damaged, altered or missing.
        """
        try:
            found = json.loads(self._copy(f"fragment-{info.name}.json").read_bytes())
            files = dict(zip(map(str, found["keys"]), map(int, found["rows"]), strict=True))
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise FrameFileError(f"Its list of files is damaged ({type(error).__name__}).") from None
        if len(files) != info.files or sum(files.values()) != info.rows:
            raise FrameFileError("Its list of files contradicts what the index says of it.")
        return files

    def open_fragment(self, info: FragmentInfo, generation: Generation) -> Rows:
        """Map a fragment into memory, from the copy on this machine; make the copy if there is none.

        Raises:
            FrameFileError: It is damaged, altered or missing.
        """
        name = f"fragment-{info.name}.arrow"
        expected = {
            "rows": info.rows,
            "files": info.files,
            "dimensions": generation.dimensions,
            "lists": generation.list_count,
        }
        try:
            return Rows.open(self._copy(name), **expected)
        except FrameFileError:  # a copy may be damaged that was sound when it was made
            (self._folder / name).unlink(missing_ok=True)
            return Rows.open(self._copy(name), **expected)

    def write_lists(self, centroids: npt.NDArray[np.float32]) -> str:
        """Write centroids; return their name."""
        name = secrets.token_hex(16)
        self._write(f"lists-{name}.f32", centroids.astype("<f4").tobytes())
        return name

    def read_lists(self, generation: Generation) -> npt.NDArray[np.float32]:
        """Return a generation's centroids; shape (lists, D).

        Raises:
            FrameFileError: They are damaged, altered or missing.
        """
        shape = (generation.list_count, generation.dimensions)
        if generation.lists is None:
            return np.zeros(shape, np.float32)
        found = np.frombuffer(self._read(f"lists-{generation.lists}.f32"), "<f4")
        if found.size != shape[0] * shape[1] or not np.isfinite(found).all():
            raise FrameFileError("The centroids of the search index are not of its size.")
        return found.reshape(shape).astype(np.float32)

    def sweep(self) -> int:
        """Remove files of the store that neither the newest generations nor a running builder need; count them."""
        uris = [uri for _, uri in self._generations()[:_KEPT_GENERATIONS]]
        needed = {uri.rpartition("/")[2] for uri in uris}
        for name in list(needed):
            needed |= self._names(name)
        before = datetime.now(UTC) - _LEFT_AFTER
        left = [
            info.uri
            for info in self._objects.list(self._root)
            if info.uri.rpartition("/")[2] not in needed and info.modified is not None and info.modified < before
        ]
        for uri in left:
            self._objects.remove(uri)
        return len(left)

    def forget_copies(self, generation: Generation) -> None:
        """Remove this machine's copies of fragments that a generation does not name; other processes keep theirs."""
        needed = _names_of(generation)
        for path in self._folder.glob("fragment-*"):
            if path.name not in needed:
                path.unlink(missing_ok=True)

    def discard(self, info: FragmentInfo) -> None:
        """Remove a fragment that was never published."""
        for suffix in ("arrow", "json"):
            self._objects.remove(f"{self._root}/fragment-{info.name}.{suffix}")

    def _generations(self) -> list[tuple[int, str]]:
        """List the generations, newest first."""
        found = ((_GENERATION.search(info.uri), info.uri) for info in self._objects.list(self._root))
        return sorted(((int(match[1]), uri) for match, uri in found if match), reverse=True)

    def _read_generation(self, name: str) -> Generation:
        try:
            generation = Generation.model_validate_json(bytes(self._read(name)))
        except ValidationError:
            raise FrameFileError("It is not a list of fragments.") from None
        if (generation.model, generation.dimensions) != (self.space.model, self.space.dimensions):
            raise FrameFileError("It is of another model.")
        return generation

    def _names(self, generation: str) -> set[str]:
        try:
            return _names_of(self._read_generation(generation))
        except FrameFileError:
            return set()

    def _copy(self, name: str) -> Path:
        """Return this machine's copy of a file, whose seal was verified when it was made."""
        path = self._folder / name
        if not path.is_file():
            data = self._read(name)
            with disk_errors(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                unfinished = path.with_name(f".{name}.{os.getpid()}-{secrets.token_hex(4)}")
                try:
                    unfinished.write_bytes(data)
                    unfinished.replace(path)
                finally:
                    unfinished.unlink(missing_ok=True)
        return path

    def _read(self, name: str) -> memoryview:
        try:
            data = self._objects.read(f"{self._root}/{name}", max_bytes=_MAX_BYTES)
            return self._seal.unwrap(self._sealed_name(name), data)
        except (SealError, ObjectTooLargeError) as error:
            raise FrameFileError(error.message) from None
        except ObjectMissingError:
            raise FrameFileError(f"{name} is missing.") from None

    def _write(self, name: str, data: bytes) -> bool:
        return self._objects.write_new(f"{self._root}/{name}", self._seal.wrap(self._sealed_name(name), data))

    def _has(self, name: str, data: bytes) -> bool:
        try:
            return self._read(name) == data
        except FrameFileError:
            return False

    def _sealed_name(self, name: str) -> str:
        return f"search/{self.space.key}/{name}"


def index_store(settings: Settings, space: VectorSpace) -> IndexStore:
    """Return the index of a space, whose copies on this machine are below `home`."""
    return IndexStore(SealedFiles.of(settings.store), space, folder=settings.home / "search")


def _names_of(generation: Generation) -> set[str]:
    names = {f"fragment-{fragment.name}.{suffix}" for fragment in generation.fragments for suffix in ("arrow", "json")}
    return names | ({f"lists-{generation.lists}.f32"} if generation.lists else set())
