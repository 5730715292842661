"""Log records as JSON, one object a line."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

# What a field is called, and under which names a record may carry it; Prefect names its runs by the later ones.
_FIELDS = {
    "run": ("run", "flow_run_id"),
    "flow": ("flow_run_name",),
    "task": ("task_run_name",),
    "shard": ("shard",),
    "job": ("job",),
    "code": ("code",),
}


class JsonLines(logging.Formatter):
    """Writes time, level, logger and message, and run, flow, task, shard, job and code where they are known."""

    def __init__(self, *_layout: object, **_options: object) -> None:
        """Take what any formatter is configured with, and need none of it."""
        super().__init__()

    def format(self, record: logging.LogRecord) -> str:
        """Write one line; what a message holds cannot begin another."""
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
                line[field] = value
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)
