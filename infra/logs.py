"""Logs: printable records with the fields of their context, one JSON object per line if `log.format` is json."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import traceback
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from reelabel.text import escape_controls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType
    from typing import ParamSpec, TypeVar

    Parameters = ParamSpec("Parameters")
    Result = TypeVar("Result")

# Attribute of log records about what a run waits for, which its terminal shows.
IS_OUTAGE = "is_outage"
# Prefect reads every item of its logging configuration from the environment.
PREFECT_JSON_LINES = {
    "PREFECT_LOGGING_FORMATTERS_JSON_CLASS": "infra.logs.JsonLines",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_FORMATTER": "json",
    "PREFECT_LOGGING_COLORS": "false",
}
# Fields of a line, and the attribute of a log record that each is taken from; Prefect sets those of other names.
_FIELDS = {
    **{name: name for name in ("run", "plan", "shard", "stage")},
    "flow_run": "flow_run_id",
    "flow": "flow_run_name",
    "task": "task_run_name",
    **{name: name for name in ("job", "code")},
}
# Flows that do one stage of a run that another flow started.
_STAGES = ("extract", "infer")
_LAYOUT = "\n\t"
# A longer line is broken, so that a program without line breaks cannot fill the memory.
_LONGEST_BYTES = 1 << 16
_LOG = logging.getLogger("reelabel")
_NOTHING: Mapping[str, object] = {}
_known: ContextVar[Mapping[str, object]] = ContextVar("known", default=_NOTHING)
# Also for threads that start without a context, such as those of libraries.
_known_to_all: dict[str, object] = {}


def log_fields() -> dict[str, object]:
    """Return the fields that log lines have here."""
    return {**_known_to_all, **_known.get()}


@contextmanager
def logged(**fields: object) -> Iterator[None]:
    """Add fields to the log lines of the body, and of threads that run in copies of its context; None adds none."""
    token = _known.set({**_known.get(), **_without_none(fields)})
    try:
        yield
    finally:
        _known.reset(token)


@contextmanager
def logged_by_all(**fields: object) -> Iterator[None]:
    """Add fields to all log lines of this process while the body runs; None adds none."""
    before = dict(_known_to_all)
    _known_to_all.update(_without_none(fields))
    try:
        yield
    finally:
        _known_to_all.clear()
        _known_to_all.update(before)


def in_context(call: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Return a function to call in other threads, which then log as part of the same run and task as this one."""
    context = copy_context()

    def call_in_copy(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        return context.copy().run(call, *arguments, **options)

    return call_in_copy


def _without_none(fields: Mapping[str, object]) -> dict[str, object]:
    present = {name: value for name, value in fields.items() if value is not None}
    return {name: value if isinstance(value, int) else str(value) for name, value in present.items()}


class PrintableRecord(logging.LogRecord):
    """A log record that shows invisible characters as symbols, in any handler; in arguments, also line breaks."""

    def __init__(self, *fields: Any, **named: Any) -> None:  # noqa: ANN401 - those of a log record
        super().__init__(*fields, **named)
        self.known = log_fields()
        if isinstance(self.args, tuple):
            self.args = tuple(map(_quoted, self.args))
        elif self.args:
            self.args = {name: _quoted(value) for name, value in self.args.items()}
        if self.exc_info and self.exc_info[0]:
            # Formatters use this text if there is one.
            self.exc_text = escape_controls(
                "".join(traceback.format_exception(*self.exc_info)).rstrip("\n"), keep=_LAYOUT
            )

    def getMessage(self) -> str:  # noqa: N802 - overrides
        return escape_controls(super().getMessage(), keep=_LAYOUT)


def _quoted(value: Any) -> Any:  # noqa: ANN401 - any argument of a log call
    return escape_controls(str(value)) if isinstance(value, str | PurePath | BaseException) else value


class _ToPrefect(logging.Handler):
    """Sends errors that are logged during a run to Prefect, where the run's other log lines are."""

    def emit(self, record: logging.LogRecord) -> None:
        contexts = sys.modules.get("prefect.context")
        if contexts and (contexts.FlowRunContext.get() or contexts.TaskRunContext.get()):
            from prefect.logging.handlers import APILogHandler  # noqa: PLC0415 - imported by now

            APILogHandler().emit(record)


def set_up_logs(*, as_json: bool) -> None:
    """Make the log lines of this process printable, send its errors to Prefect, and write JSON if requested."""
    logging.setLogRecordFactory(PrintableRecord)
    _LOG.addHandler(_ToPrefect(logging.ERROR))
    if as_json:
        log_as_json()


class JsonLines(logging.Formatter):
    """Writes time, level, logger and message, and if known run, plan, shard, stage, flow run, task, job and code."""

    def __init__(self, *_layout: object, **_options: object) -> None:
        super().__init__()

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line; line breaks in a message are escaped."""
        line = _line(record.levelname, record.name, record.getMessage(), record.created) | _fields(record)
        if record.exc_info:
            line["error"] = record.exc_text or self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def json_line(message: str, *, level: str = "INFO", logger: str = "reelabel") -> str:
    """Return a message that was not logged as a line of the log."""
    line = _line(level, logger, escape_controls(message), datetime.now(UTC).timestamp())
    return json.dumps(line, default=str, ensure_ascii=False)


def message_of(line: str) -> str:
    return str((_parsed(line) or {}).get("message", line))


def json_copy(log: int, *, logger: str) -> int:
    """Return a descriptor whose lines a thread writes to a log as JSON; JSON lines stay as they are.

    The thread closes the log. A log that is full or gone loses lines, but never stops a program.
    """
    source, sink = os.pipe()
    threading.Thread(target=_copy_as_json, args=(source, log, logger), name="json-log", daemon=True).start()
    return sink


def _copy_as_json(source: int, log: int, logger: str) -> None:
    with open(source, "rb") as lines, open(log, "wb", buffering=0) as target:
        for line in iter(lambda: lines.readline(_LONGEST_BYTES), b""):
            if text := line.decode(errors="replace").rstrip():
                with suppress(OSError):
                    target.write(f"{text if _parsed(text) else json_line(text, logger=logger)}\n".encode())


def _parsed(line: str) -> dict[str, object] | None:
    try:
        found = json.loads(line) if line.startswith("{") else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def log_as_json() -> None:
    """Have this process write JSON also where Python itself writes: warnings, and uncaught exceptions."""
    root = logging.getLogger()
    _LOG.setLevel(logging.INFO)
    if not root.handlers:  # Prefect, once imported, sets its own
        handler = logging.StreamHandler()
        handler.setFormatter(JsonLines())
        root.addHandler(handler)
    logging.captureWarnings(capture=True)
    sys.excepthook = _log_exception
    threading.excepthook = _log_thread
    sys.unraisablehook = _log_unraisable


def logs_are_json() -> bool:
    return sys.excepthook is _log_exception


def _log_exception(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
    _LOG.critical("%s: %s", kind.__name__, error, exc_info=(kind, error, at))


def _log_thread(hook: threading.ExceptHookArgs) -> None:
    if hook.exc_type is not SystemExit and hook.exc_value is not None:
        _log_exception(hook.exc_type, hook.exc_value, hook.exc_traceback)


def _log_unraisable(hook: sys.UnraisableHookArgs) -> None:
    if hook.exc_value is not None:
        what = hook.err_msg or "Exception ignored"
        _LOG.error("%s in %r", what, hook.object, exc_info=(hook.exc_type, hook.exc_value, hook.exc_traceback))


def _line(level: str, logger: str, message: str, at_s: float) -> dict[str, object]:
    time = datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")
    return {"time": time, "level": level.lower(), "logger": logger, "message": message}


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """Return the fields that a record has itself, or else those of its context."""
    own = {field: _value(record, name) for field, name in _FIELDS.items()}
    known = getattr(record, "known", {}) | _without_none(own)
    flow = getattr(record, "flow_name", None)
    if flow in _STAGES:
        known.setdefault("stage", flow)
    elif "flow_run" in known:  # a flow run of another flow is a run of its own
        known.setdefault("run", known["flow_run"])
    return {name: known[name] for name in _FIELDS if name in known}


def _value(record: logging.LogRecord, name: str) -> object:
    value = getattr(record, name, None)
    if value == "<unknown>":  # as Prefect says
        return None
    return escape_controls(value) if isinstance(value, str) else value
