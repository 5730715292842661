"""Handing frames from one process to another through shared memory instead of a pipe.

The sender copies them once into a segment of its own; the receiver maps it and takes its name away, so
that it goes with the last array on it. Should the sender die before, Python's resource tracker, which
both share, takes it away, or some day `maintain`. Where the system has no such memory, or not enough of
it (containers often have 64 MiB), frames go through the pipe.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING

import numpy as np

from infra.temporary import SHARED_MEMORY, shared_name

if TYPE_CHECKING:
    import numpy.typing as npt

    from tasks.video.keyframes import Keyframes

_KIND = "shared_memory"  # as the resource tracker calls it
_LEAST_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Parcel:
    """Frames on their way: everything but the pixels, and where those are."""

    keyframes: Keyframes
    name: str
    shape: tuple[int, ...]


def pack(keyframes: Keyframes) -> Parcel | Keyframes:
    """Put the pixels into shared memory, in the process that has them; gives what is to be sent."""
    images = keyframes.images
    if images.nbytes < _LEAST_BYTES:
        return keyframes
    name = shared_name()
    resource_tracker.register(f"/{name}", _KIND)
    try:
        memory = _create(name, images.nbytes)
    except OSError:
        _forget(name)
        return keyframes
    _array_on(memory, images.shape)[:] = images
    return Parcel(replace(keyframes, images=images[:, :0, :0]), name, images.shape)


def unpack(sent: Parcel | Keyframes) -> Keyframes:
    """Map the pixels, in the process that receives them; what came through the pipe stays as it is."""
    if not isinstance(sent, Parcel):
        return sent
    try:
        with (SHARED_MEMORY / sent.name).open("r+b") as file:
            memory = mmap.mmap(file.fileno(), 0)
    finally:
        _forget(sent.name)
    return replace(sent.keyframes, images=_array_on(memory, sent.shape))


def _create(name: str, size: int) -> mmap.mmap:
    descriptor = os.open(SHARED_MEMORY / name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)  # else a full memory is a bus error in the middle of the copy
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)


def _array_on(memory: mmap.mmap, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Lay an array on a mapping, which lasts as long as the array."""
    return np.frombuffer(memory, np.uint8).reshape(shape)


def _forget(name: str) -> None:
    with suppress(FileNotFoundError):
        (SHARED_MEMORY / name).unlink()
    resource_tracker.unregister(f"/{name}", _KIND)
