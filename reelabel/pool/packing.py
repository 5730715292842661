"""Serialization of dataclasses that a decoding process sends to its pool, which trusts none of it.

A dataclass becomes JSON, and its arrays follow each other in a memory file (memfd). The process copies them into it
once, seals it and sends its descriptor; the pool maps it. A sealed file can neither shrink, which would kill the pool
with SIGBUS, nor change after it was checked. It has no name, and is freed with the last array that uses it.
"""

from __future__ import annotations

import fcntl
import json
import math
import mmap
import os
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from reelabel.errors import InvalidReplyError
from reelabel.pool.wire import map_privately
from reelabel.records import MAX_TEXT, arrays_of, from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    _Array = npt.NDArray[Any]

_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_ALIGNMENT_BYTES = 8
_BLOCK_BYTES = 512
_MOST_SIDES, _LONGEST = 4, 1 << 40
_SMALL_BYTES = 64 * 1024  # arrays up to this size are copied: one that is kept must not keep the pixels


def pack(value: Any) -> tuple[bytes, int | None]:  # noqa: ANN401 - any dataclass
    """Return a dataclass as JSON, and the descriptor of the sealed file with its arrays; None if its type has none."""
    kind: type = type(value)
    plain, arrays = to_json(value)
    shapes = {path: array.shape for path, array in arrays.items()}
    message = {"kind": kind.__name__, "fields": plain, "arrays": shapes}
    data = json.dumps(message, separators=(",", ":")).encode()
    return data, _write_all(arrays.values()) if arrays_of(kind) else None


def _write_all(arrays: Iterable[_Array]) -> int:
    descriptor = os.memfd_create("frames", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        for array in arrays:
            _write(descriptor, np.ascontiguousarray(array, np.uint8 if array.dtype == np.bool_ else None))
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except OSError as error:
        os.close(descriptor)
        raise MemoryError from error
    return descriptor


def _write(descriptor: int, values: _Array) -> None:
    view = memoryview(values.tobytes()) if values.nbytes < _SMALL_BYTES else memoryview(cast("Any", values)).cast("B")
    while view:
        view = view[os.write(descriptor, view) :]
    os.write(descriptor, bytes(_padding(values.nbytes)))


def _padding(size_bytes: int) -> int:
    return -size_bytes % _ALIGNMENT_BYTES


def unpack(kinds: Sequence[type], data: bytes, descriptor: int | None, *, max_bytes: int) -> Any:  # noqa: ANN401
    """Return the dataclass that a process has sent, after all checks, its own included.

    Raises InvalidReplyError if it is not one of `kinds`, is invalid, or its arrays exceed `max_bytes`.
    """
    try:
        sent = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidReplyError("not JSON") from None
    if not isinstance(sent, dict) or sent.keys() != {"kind", "fields", "arrays"}:
        raise InvalidReplyError("no message")
    kind = next((each for each in kinds if each.__name__ == sent["kind"]), None)
    if kind is None:
        raise InvalidReplyError("an unexpected kind of message")
    if bool(arrays_of(kind)) != (descriptor is not None):
        raise InvalidReplyError("a memory file that nobody asked for, or none")
    try:
        return from_json(sent["fields"], kind, _map_all(kind, sent["arrays"], descriptor, max_bytes))
    except (ValueError, OSError) as error:  # of a value, or of a file that cannot be mapped
        raise InvalidReplyError(str(error)[:MAX_TEXT]) from None


def _map_all(kind: type, shapes: Any, descriptor: int | None, max_bytes: int) -> dict[str, _Array]:  # noqa: ANN401
    types = arrays_of(kind)
    if not isinstance(shapes, dict) or not shapes.keys() <= types.keys():
        raise InvalidReplyError("not arrays by the names of fields")
    for shape in shapes.values():
        is_list = isinstance(shape, list) and len(shape) <= _MOST_SIDES
        if not is_list or not all(type(side) is int and 0 <= side < _LONGEST for side in shape):
            raise InvalidReplyError("not a shape")
    sizes = {path: types[path].itemsize * math.prod(shape) for path, shape in shapes.items()}
    size_bytes = sum(size + _padding(size) for size in sizes.values())
    if size_bytes > max_bytes:
        raise InvalidReplyError(f"{size_bytes:,} bytes of arrays")
    if descriptor is None:
        return {}
    _check_sealed(descriptor, size_bytes)
    memory = map_privately(descriptor, size_bytes) if size_bytes else np.zeros(0, np.uint8)
    arrays, start = {}, 0
    for path, shape in shapes.items():
        array = memory[start : start + sizes[path]].view(np.uint8 if types[path] == np.bool_ else types[path])
        if types[path] == np.bool_:
            if array.max(initial=0) > 1:
                raise InvalidReplyError(f"not true or false: {path}")
            array = array.view(np.bool_)
        arrays[path] = array.reshape(shape) if sizes[path] > _SMALL_BYTES else array.reshape(shape).copy()
        start += sizes[path] + _padding(sizes[path])
    return arrays


def _check_sealed(descriptor: int, size_bytes: int) -> None:
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:
        raise InvalidReplyError("a descriptor of no memory file") from None
    found = os.fstat(descriptor)
    if seals & _SEALS != _SEALS or found.st_size != size_bytes:
        raise InvalidReplyError(f"a memory file of {found.st_size:,} bytes with seals {seals}")
    # The process has paid for each page: none is a hole, which would be filled at the pool's cost, nor a huge page.
    if found.st_blocks * _BLOCK_BYTES < size_bytes or os.fstatvfs(descriptor).f_bsize != mmap.PAGESIZE:
        raise InvalidReplyError("a memory file with holes")
