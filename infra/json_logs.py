"""Log records as JSON, one object per line."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from reelabel.wording import printable

# Fields of the output, and the attributes of a log record they are taken from; Prefect sets the later ones.
_FIELDS = {
    "run": ("run", "flow_run_id"),
    "flow": ("flow_run_name",),
    "task": ("task_run_name",),
    "shard": ("shard",),
    "job": ("job",),
    "code": ("code",),
}


class JsonLines(logging.Formatter):
    """Writes time, level, logger and message, and run, flow, task, shard, job and code if known."""

    def __init__(self, *_layout: object, **_options: object) -> None:
        """Accept and ignore the arguments of a standard formatter."""
        super().__init__()

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line; line breaks in a message are escaped."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for field, names in _FIELDS.items():
            values = (getattr(record, name, None) for name in names)
            value = next((value for value in values if value not in {None, "<unknown>"}), None)
            if value is not None:
                line[field] = printable(value) if isinstance(value, str) else value
        if record.exc_info:
            line["error"] = record.exc_text or self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)
