"""Errors raised at the calls that the code of one video, question or message makes."""

import random
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_OURS = tuple(
    f"{_ROOT}/{name}" for name in ("reelabel/", "engine/", "tasks/", "flows/", "tests/flows/test_unexpected.py")
)
# Not OSError: those of the store and the disk are not a video's, and the shard is tried again.
_ERRORS = (
    AssertionError,
    AttributeError,
    IndexError,
    KeyError,
    MemoryError,
    OverflowError,
    RecursionError,
    RuntimeError,
    TypeError,
    UnicodeError,
    ValueError,
    ZeroDivisionError,
)
# Their frames are entered again with every `next`, and an error raised there skips even `finally`.
_RESUMED = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_CLEANS_UP = {"__exit__", "__del__", "close", "release", "_release"}
_NAMES = ("uri", "video_uri", "source_uri", "job_id", "text", "frame_id", "query_id")
_PARTS = ("info", "job", "view", "clip", "identity", "announced", "query", "outcome")


@dataclass
class RaisedCalls:
    """Watches the calls of our functions, and of C's by them, in the threads that start while it is used.

    A call is that of one video or question if what it is given has the mark in its name, or if it is made by such a
    call.

    Attributes:
        mark: What the names of the one have in common.
        at: The function at whose call an error is raised, and at which of its calls; None only counts.
        error: The error.
        boundaries: Functions that are given the one, and go on with the others whatever is raised in them.
        aside: Beginnings of the names of functions that work for all; they, and what they call, are not watched.
        calls: Calls so far, by function.
        where: The function at whose call the error was raised; None if it was not.
    """

    mark: str
    at: tuple[str, int] | None = None
    error: type[Exception] = KeyError
    boundaries: frozenset[str] = frozenset()
    aside: tuple[str, ...] = ()
    calls: Counter = field(default_factory=Counter)
    where: str | None = None
    _inside: threading.local = field(default_factory=threading.local, repr=False)
    _names: dict = field(default_factory=dict, repr=False)
    _is_on: bool = True

    @contextmanager
    def watching(self):
        """Watch during the body."""
        threading.setprofile(self._watch)
        sys.setprofile(self._watch)
        try:
            yield self
        finally:
            self._is_on = False
            sys.setprofile(None)
            threading.setprofile(None)

    def _watch(self, frame, event, argument):
        inside, code = self._inside, frame.f_code
        entry = getattr(inside, "entry", None)
        if event == "return" and frame is entry:
            inside.entry = None
        if event not in {"call", "c_call"} or not self._is_on or self.where:
            return
        name = self._names.get(code) or self._names.setdefault(code, _name_of(code))
        if not name or name in self.boundaries:
            return
        if event == "c_call":
            if entry is not None and not inside.is_aside and not {code.co_name, argument.__name__} & _CLEANS_UP:
                self._count(f"{name} -> {argument.__qualname__}")
            return
        if entry is None:
            is_aside = name.startswith(self.aside)
            if not is_aside and not self._is_about_the_one(frame):
                return
            inside.entry, inside.is_aside = frame, is_aside
        if inside.is_aside or code.co_flags & _RESUMED or code.co_name in _CLEANS_UP:
            return
        self._count(name)

    def _count(self, name):
        self.calls[name] += 1
        if self.at == (name, self.calls[name]):
            self.where = name
            raise self.error("raised by the test")

    def _is_about_the_one(self, frame):
        code, values = frame.f_code, frame.f_locals
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        return any(self._has_mark(values.get(name)) for name in names)

    def _has_mark(self, value, depth=2):
        if isinstance(value, str):
            return self.mark in value
        if value is None or isinstance(value, int | float | bytes | list | dict | set | frozenset | type):
            return False
        if any(self.mark in text for text in (_part(value, name) for name in _NAMES) if isinstance(text, str)):
            return True
        return depth > 0 and any(self._has_mark(_part(value, name), depth - 1) for name in _PARTS)


def _part(value, name):
    try:
        return getattr(value, name, None)
    except Exception:  # noqa: BLE001 - of a property of something unfinished
        return None


def _name_of(code):
    path = code.co_filename
    return f"{Path(path).relative_to(_ROOT)}:{code.co_qualname}" if path.startswith(_OURS) else ""


def raised(run, *, trials, seed, **options):
    """Call `run` once to see its calls, then so often with an error raised at one of them; yield what each returns.

    Each function is as likely as another, and each of its calls. `options` are those of `RaisedCalls`.
    """
    rng = random.Random(seed)
    with RaisedCalls(**options).watching() as seen:
        run()
    assert len(seen.calls) > 10, seen.calls
    for _ in range(trials):
        name = rng.choice(sorted(seen.calls))
        at = (name, rng.randint(1, seen.calls[name]))
        with RaisedCalls(at=at, error=rng.choice(_ERRORS), **options).watching() as calls:
            outcome = run()
        yield calls, outcome
