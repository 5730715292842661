"""Log records as JSON, one object per line."""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from reelabel.text import printable

if TYPE_CHECKING:
    from types import TracebackType

# Fields of the output, and the attribute of a log record that each is taken from; Prefect sets those of other names.
_FIELDS = {
    "run": "run",
    "plan": "plan",
    "shard": "shard",
    "stage": "stage",
    "flow_run": "flow_run_id",
    "flow": "flow_run_name",
    "task": "task_run_name",
    "job": "job",
    "code": "code",
}
# Flows that do one stage of the runs of others.
_STAGES = ("extract", "infer")
_LOG = logging.getLogger("reelabel")


class JsonLines(logging.Formatter):
    """Writes time, level, logger and message, and if known run, plan, shard, stage, flow run, task, job and code."""

    def __init__(self, *_layout: object, **_options: object) -> None:
        """Accept and ignore the arguments of a standard formatter."""
        super().__init__()

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line; line breaks in a message are escaped."""
        line = _line(record.levelname, record.name, record.getMessage(), record.created) | _fields(record)
        if record.exc_info:
            line["error"] = record.exc_text or self.formatException(record.exc_info)
        return _written(line)


def json_line(message: str, *, level: str = "INFO", logger: str = "reelabel", **fields: object) -> str:
    """Return a line of a program that does not log as a line of the log."""
    return _written(_line(level, logger, printable(message), datetime.now(UTC).timestamp()) | fields)


def message_of(line: str) -> str:
    """Return the message of a line of the log, which may be JSON."""
    found = parsed(line)
    return str(found.get("message", line)) if found else line


def parsed(line: str) -> dict[str, object] | None:
    """Return a line that is a JSON object; None if it is not."""
    try:
        found = json.loads(line) if line.startswith("{") else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def log_all_as_json() -> None:
    """Have this process write JSON also where Python itself writes: warnings, and exceptions that nobody catches."""
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
    """Return whether `log_all_as_json` was called."""
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
    """Return what a record says of its work itself, else what the record's context says."""
    own = {field: _value(record, name) for field, name in _FIELDS.items()}
    known = getattr(record, "known", {}) | {field: value for field, value in own.items() if value is not None}
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
    return printable(value) if isinstance(value, str) else value


def _written(line: dict[str, object]) -> str:
    return json.dumps(line, default=str, ensure_ascii=False)
