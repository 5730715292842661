"""Transfer frames between processes through shared memory instead of a pipe.

The sender copies the pixels once into a segment of its own. The receiver maps the segment and unlinks its name, so
that it is freed with the last array that uses it. If the sender dies first, the segment is removed by Python's
resource tracker, which both processes share, or later by `maintain`. If the system has no shared memory, or too little
(containers often have 64 MiB), the pixels go through the pipe.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING

import numpy as np

from reelabel.temporary import SHARED_MEMORY, new_shared_memory_name

if TYPE_CHECKING:
    import numpy.typing as npt

    from reelabel.sampled_frames import SampledFrames

_KIND = "shared_memory"  # the resource tracker's name for it
_MIN_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class SharedFrames:
    """Frames whose pixels are in shared memory.

    Attributes:
        keyframes: Everything but the pixels.
        name: Name of the shared memory segment.
        shape: Shape of the pixels.
    """

    keyframes: SampledFrames
    name: str
    shape: tuple[int, ...]


def to_shared_memory(keyframes: SampledFrames) -> SharedFrames | SampledFrames:
    """Move the pixels to shared memory, in the sender; return the object to send."""
    images = keyframes.images
    if images.nbytes < _MIN_BYTES:
        return keyframes
    name = new_shared_memory_name()
    resource_tracker.register(f"/{name}", _KIND)
    try:
        memory = _create(name, images.nbytes)
    except OSError:
        _unlink(name)
        return keyframes
    _array_on(memory, images.shape)[:] = images
    return SharedFrames(replace(keyframes, images=images[:, :0, :0]), name, images.shape)


def from_shared_memory(sent: SharedFrames | SampledFrames) -> SampledFrames:
    """Map the pixels, in the receiver; frames sent through the pipe are returned as they are."""
    if not isinstance(sent, SharedFrames):
        return sent
    try:
        with (SHARED_MEMORY / sent.name).open("r+b") as file:
            memory = mmap.mmap(file.fileno(), 0)
    finally:
        _unlink(sent.name)
    return replace(sent.keyframes, images=_array_on(memory, sent.shape))


def _create(name: str, size: int) -> mmap.mmap:
    descriptor = os.open(SHARED_MEMORY / name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)  # without it, a full /dev/shm raises SIGBUS during the copy
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)


def _array_on(memory: mmap.mmap, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Wrap a mapping in an array, which keeps the mapping alive."""
    return np.frombuffer(memory, np.uint8).reshape(shape)


def _unlink(name: str) -> None:
    with suppress(FileNotFoundError):
        (SHARED_MEMORY / name).unlink()
    resource_tracker.unregister(f"/{name}", _KIND)
