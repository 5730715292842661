"""Dataclasses on their way from a decoding process to its pool, which trusts nothing of them.

A dataclass is JSON, and its arrays follow each other in a memory file, which is sent along. The process copies them
into it once, seals it and sends its descriptor; the pool maps it. A sealed file can neither shrink, which would kill
the pool with SIGBUS, nor change after it was checked. It has no name, and is freed with the last array that uses it.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import json
import math
import mmap
import os
import re
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import lru_cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from reelabel.errors import InvalidReplyError
from reelabel.pool.wire import map_privately

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    _Array = npt.NDArray[Any]

MAX_TEXT = 2000
_INT64 = 2**63
_FRACTION = re.compile(r"[0-9]{1,10}(/[1-9][0-9]{0,9})?")
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_ALIGNMENT_BYTES = 8
_BLOCK_BYTES = 512
_MOST_SIDES, _LONGEST = 4, 1 << 40
_SMALL_BYTES = 64 * 1024  # arrays up to this size are copied: one that is kept must not keep the pixels


@lru_cache
def _types_of(kind: type) -> dict[str, Any]:
    types = get_type_hints(kind)
    names = [each.name for each in fields(kind)] if is_dataclass(kind) else kind._fields  # type: ignore[attr-defined]
    return {name: types[name] for name in names}


def _options(hint: Any) -> tuple[Any, bool]:  # noqa: ANN401 - any type
    """Return a type without None, and whether None is allowed."""
    if get_origin(hint) not in {Union, UnionType}:
        return hint, False
    return next(part for part in get_args(hint) if part is not NoneType), NoneType in get_args(hint)


@lru_cache
def _arrays_of(kind: type) -> dict[str, np.dtype[Any]]:
    """Return the arrays of a dataclass, and of those in it, by the names of the fields."""
    found: dict[str, np.dtype[Any]] = {}
    for name, hint in _types_of(kind).items():
        inner, _ = _options(hint)
        if get_origin(inner) is np.ndarray:
            found[name] = np.dtype(get_args(get_args(inner)[1])[0])
        elif is_dataclass(inner):
            found |= {f"{name}.{path}": dtype for path, dtype in _arrays_of(cast("type", inner)).items()}
    return found


def has_arrays(kind: type) -> bool:
    """Return whether a dataclass comes with a memory file."""
    return bool(_arrays_of(kind))


def pack(value: Any) -> tuple[bytes, int | None]:  # noqa: ANN401 - any dataclass
    """Return a dataclass as JSON, and the descriptor of the sealed file with its arrays; None if it has none.

    Raises:
        MemoryError: There is no room for the file.
    """
    arrays: dict[str, _Array] = {}
    plain = {"kind": type(value).__name__, "fields": _plain(value, "", arrays)}
    shapes = {path: array.shape for path, array in arrays.items()}
    data = json.dumps(plain | {"arrays": shapes}, separators=(",", ":")).encode()
    return data, _write_all(arrays.values()) if has_arrays(type(value)) else None


def _plain(value: Any, path: str, arrays: dict[str, _Array]) -> Any:  # noqa: ANN401
    if isinstance(value, np.ndarray):
        arrays[path] = np.ascontiguousarray(value, np.uint8 if value.dtype == np.bool_ else None)
        return None
    if is_dataclass(value):
        inner = {each.name: f"{path}.{each.name}".lstrip(".") for each in fields(value)}
        return {name: _plain(getattr(value, name), place, arrays) for name, place in inner.items()}
    if isinstance(value, str):
        return value[:MAX_TEXT].encode(errors="replace").decode()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, Fraction) else value


def _write_all(arrays: Any) -> int:  # noqa: ANN401 - a view of a dictionary
    descriptor = os.memfd_create("frames", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        for array in arrays:
            _write(descriptor, array)
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
    """Return the dataclass that a process has sent, one of some kinds, whose own checks are done as well.

    Args:
        kinds: What it may be.
        data: The JSON.
        descriptor: The memory file, which stays open; None if there was none.
        max_bytes: Size of the largest memory file.

    Raises:
        InvalidReplyError: It is none of these.
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
    if has_arrays(kind) != (descriptor is not None):
        raise InvalidReplyError("a memory file that nobody asked for, or none")
    try:
        arrays = _map_all(kind, sent["arrays"], descriptor, max_bytes)
        return _record(sent["fields"], kind, "", arrays)
    except (ValueError, OSError) as error:  # of the dataclass's own checks, or of a file that cannot be mapped
        raise InvalidReplyError(str(error)[:MAX_TEXT]) from None


def _map_all(kind: type, shapes: Any, descriptor: int | None, max_bytes: int) -> dict[str, _Array]:  # noqa: ANN401
    types = _arrays_of(kind)
    _require(isinstance(shapes, dict) and shapes.keys() <= types.keys(), "arrays by the names of fields")
    for shape in shapes.values():
        is_list = isinstance(shape, list) and len(shape) <= _MOST_SIDES
        _require(is_list and all(type(side) is int and 0 <= side < _LONGEST for side in shape), "a shape")
    sizes = {path: types[path].itemsize * math.prod(shape) for path, shape in shapes.items()}
    size_bytes = sum(size + _padding(size) for size in sizes.values())
    if size_bytes > max_bytes:
        raise InvalidReplyError(f"{size_bytes:,} bytes of arrays")
    if descriptor is None:
        return {}
    _require_sealed(descriptor, size_bytes)
    memory = map_privately(descriptor, size_bytes) if size_bytes else np.zeros(0, np.uint8)
    arrays, start = {}, 0
    for path, shape in shapes.items():
        array = memory[start : start + sizes[path]].view(np.uint8 if types[path] == np.bool_ else types[path])
        if types[path] == np.bool_:
            _require(array.max(initial=0) <= 1, f"true or false: {path}")
            array = array.view(np.bool_)
        arrays[path] = array.reshape(shape) if sizes[path] > _SMALL_BYTES else array.reshape(shape).copy()
        start += sizes[path] + _padding(sizes[path])
    return arrays


def _require_sealed(descriptor: int, size_bytes: int) -> None:
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:
        raise InvalidReplyError("a descriptor of no memory file") from None
    facts = os.fstat(descriptor)
    if seals & _SEALS != _SEALS or facts.st_size != size_bytes:
        raise InvalidReplyError(f"a memory file of {facts.st_size:,} bytes with seals {seals}")
    # The process has paid for each page: none is a hole, which would be filled at the pool's cost, nor a huge page.
    if facts.st_blocks * _BLOCK_BYTES < size_bytes or os.fstatvfs(descriptor).f_bsize != mmap.PAGESIZE:
        raise InvalidReplyError("a memory file with holes")


def _record(value: Any, kind: type, path: str, arrays: Mapping[str, _Array]) -> Any:  # noqa: ANN401
    types = _types_of(kind)
    _require(isinstance(value, dict) and value.keys() == types.keys(), f"the fields of {kind.__name__}")
    made = {}
    for name, hint in types.items():
        try:
            made[name] = _field(value[name], hint, f"{path}.{name}".lstrip("."), arrays)
        except InvalidReplyError as error:
            raise InvalidReplyError(f"{name}: {error}"[:MAX_TEXT]) from None
    return kind(**made)


def _field(value: Any, hint: Any, path: str, arrays: Mapping[str, _Array]) -> Any:  # noqa: ANN401
    hint, may_be_none = _options(hint)
    is_array = get_origin(hint) is np.ndarray
    if may_be_none and value is None and path not in arrays:
        _require(not any(other.startswith(f"{path}.") for other in arrays), "without arrays")
        return None
    if is_array:
        _require(value is None and path in arrays, "an array")
        return arrays[path]
    return _record(value, cast("type", hint), path, arrays) if is_dataclass(hint) else _checked(value, hint)


def _checked(value: Any, hint: Any) -> Any:  # noqa: ANN401
    """Return a value, if it is of a type: a number is finite and fits into 64 bits, a text is short and printable."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _require(any(type(value) is type(part) and value == part for part in parts), f"one of {parts}", value)
    if hasattr(hint, "_fields"):
        kinds = [*_types_of(hint).values()]
        _require(isinstance(value, list) and len(value) == len(kinds), f"{len(kinds)} values")
        return hint(*map(_checked, value, kinds))
    if origin is tuple:
        _require(isinstance(value, list), "a list")
        if parts[-1] is Ellipsis:
            return tuple(_checked(each, parts[0]) for each in value)
        _require(len(value) == len(parts), f"{len(parts)} values")
        return tuple(map(_checked, value, parts))
    if hint in {int, float}:
        return _number(value, hint)
    _require(isinstance(value, bool if hint is bool else str), f"a {hint.__name__}")
    return value if hint is bool else _text(value, hint)


def _number(value: Any, hint: type) -> Any:  # noqa: ANN401
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_small = is_number and (isinstance(value, float) or -_INT64 <= value < _INT64)
    if hint is int:
        return _require(is_small and isinstance(value, int), "a whole number of 64 bits", value)
    return float(_require(is_small and math.isfinite(value), "a finite number", value))


def _text(value: str, hint: type) -> Any:  # noqa: ANN401
    """Return what a text codes, or itself without control characters, which terminals obey and databases refuse."""
    if hint is bytes:
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidReplyError("not base64") from None
    if hint is Fraction:
        return Fraction(_require(_FRACTION.fullmatch(value) is not None, "a fraction", value))
    if len(value) > MAX_TEXT:
        raise InvalidReplyError(f"a text of {len(value):,} characters")
    return "".join(each if each.isprintable() else "?" for each in value)


def _require(fits: Any, what: str, value: Any = None) -> Any:  # noqa: ANN401
    if not fits:
        raise InvalidReplyError(f"not {what}")
    return value
